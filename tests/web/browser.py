"""Headless Chromium for the tests of the report: one browser, its console, a page's own handles."""

import contextlib
import shutil
import sys
import tempfile

SKIPPED = 77  # the exit code that CTest counts as skipped


def find_browser():
    """The browser and its driver, or the reason why there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        return None, "no chromium or no chromedriver here (Debian packages chromium, chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return None, "no selenium for this Python (Debian package python3-selenium)"
    return (browser, driver), None


def require_browser():
    found, reason = find_browser()
    if found is None:
        print(f"SKIPPED web tests: {reason}")
        sys.exit(SKIPPED)
    return found


@contextlib.contextmanager
def open_browser(width=1400, height=1000, dark=False):
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    browser, driver = require_browser()
    with tempfile.TemporaryDirectory() as profile:
        options = Options()
        options.binary_location = browser
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                         "--force-device-scale-factor=1", f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(argument)
        if dark:
            options.add_argument("--force-dark-mode")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        web = webdriver.Chrome(service=Service(driver), options=options)
        try:
            yield web
        finally:
            web.quit()


def open_report(web, path, seconds=120):
    """Loads a report and waits until it stands; anything on the console is an error."""
    from selenium.webdriver.support.ui import WebDriverWait

    web.get(f"file://{path}")
    WebDriverWait(web, seconds).until(lambda w: w.execute_script("return window.motetReport !== undefined"))
    written = console(web)
    assert written == [], written
    return web


def console(web):
    """What the page has written or done wrong since the last look; reading pixels back is the tests' own doing."""
    return [entry["message"] for entry in web.get_log("browser") if "readback" not in entry["message"]]


def state(web, expression):
    """An expression over the report's view, page and search."""
    return web.execute_script(f"const {{view, page, search}} = window.motetReport; return {expression};")
