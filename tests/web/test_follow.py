#!/usr/bin/env python3
"""The page of a run that goes on, in a browser: it grows, loads itself anew, and looks as it did; then the run is over.

MOTET names the command. Exits with 77 (skipped) where there is no browser. SCREENSHOTS=DIR keeps pictures.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from browser import console, open_browser, open_report, require_browser, state

MOTET = os.environ["MOTET"]
INTERVAL = 0.1


class Run:
    """A training run's directory, written step by step as the training loop does."""

    def __init__(self, folder, microbatches=4):
        self.folder = folder
        self.program = folder.parent / (folder.name + ".program.json")
        subprocess.run([MOTET, "plan", "--schedule", "<vision: transpose, llm: 1f1b>", "--ranks", "3", "--microbatches", str(microbatches), "--unit",
                        "vision: f=1; llm: f=1, b=2", "-o", self.program, "--summary"], check=True, capture_output=True)
        lists = json.loads(self.program.read_text())["lists"]
        self.counts = [len(rank) for rank in lists]

    def begin(self, steps):
        (self.folder / "timeline").mkdir(parents=True)
        (self.folder / "job.yaml").write_text(f"train:\n  steps: {steps}\n")

    def step(self, number, loss):
        line = {"step": number, "loss": loss, "tokens": 1000, "step_seconds": 0.5, "makespan_seconds": 0.45, "simulated_seconds": 0.36,
                "mfu": 0.25, "idle_share": 0.125, "gradient_norm": 1.5}
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def timeline(self, step, pace):
        """Every instruction takes `pace` seconds, one after the other on each rank."""
        base = self.folder / "timeline" / f"step-{step}"
        Path(f"{base}.program.json").write_text(self.program.read_text())
        start = [pace * k for count in self.counts for k in range(count)]
        times = json.dumps({"format": "motet-times-1", "start": start, "finish": [t + pace for t in start]})
        Path(f"{base}.simulated.json").write_text(times)
        Path(f"{base}.part").write_text(times)
        os.rename(f"{base}.part", f"{base}.times.json")

    def end(self, step):
        (self.folder / "checkpoints" / f"step-{step}").mkdir(parents=True)


class Follow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.web = cls.enterClassContext(open_browser())

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.page = self.folder / "a page.html"
        self.news = self.folder / "a page.html.live.js"

    def follow(self, run):
        process = subprocess.Popen([MOTET, "report", run.folder, "--follow", "--interval", str(INTERVAL), "-o", self.page],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.until(lambda: self.news.exists())
        return process

    def until(self, holds, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                value = holds()
            except Exception as error:  # the page is just loading
                value, fault = None, error
            if value:
                return value
            time.sleep(0.05)
        self.fail(f"not within {seconds} s" + (f": {fault}" if "fault" in locals() else ""))

    def see(self, expression):
        return state(self.web, expression)

    def text(self, selector):
        return self.web.find_element("css selector", selector).text

    def shot(self, name):
        if "SCREENSHOTS" in os.environ:
            self.web.save_screenshot(str(Path(os.environ["SCREENSHOTS"]) / f"follow-{name}.png"))

    def test_a_run_from_before_its_beginning_to_its_end(self):
        run = Run(self.folder / "run")
        process = self.follow(run)
        open_report(self.web, self.page)
        self.assertIn("no step is done yet", self.text("#live-words"))
        self.assertFalse(self.web.find_element("id", "timeline-section").is_displayed())
        self.shot("waiting")
        # Steps come into the page as it stands.
        self.web.execute_script("window.mark = 1")
        run.begin(20)
        run.step(1, 5.0)
        run.step(2, 4.0)
        self.until(lambda: self.see("page.sides[0].history.step.length") == 2)
        self.until(lambda: "step 2 of 20, 9 s left, loss 4," in self.text("#live-words"))
        self.assertIn("measured against simulated +25.0%", self.text("#live-words"))
        headings = [caption.text.split("\n")[0] for caption in self.web.find_elements("css selector", "#training figcaption")]
        self.assertEqual(headings, ["loss", "tokens per second", "step time", "makespan", "idle", "model FLOPs utilization",
                                    "gradient norm"])
        self.assertEqual(self.web.execute_script("return window.mark"), 1)
        # A timeline comes with another page, which loads itself.
        run.timeline(2, 1.0)
        self.until(lambda: self.see("view.panels.length") == 2)
        self.assertTrue(self.web.find_element("id", "timeline-section").is_displayed())
        # Looked at in one's own way ...
        self.web.execute_script("""
            const { view, search, plots, setTheme } = window.motetReport;
            setTheme("dark");
            view.look(3, 7);
            view.select(view.panels[1], view.panels[1].program.begin[1] + 4);
            view.panels[1].makeTaller(1.4);
            toggle = document.getElementById("critical"); toggle.click();
            document.getElementById("search").value = "llm bwd"; search.run("llm bwd");
            plots.choose(1);
            document.querySelector("#ranks th button").click();
            document.getElementById("panel-1").focus();
            window.scrollTo(0, 120);""")
        look = """(() => { const { selected } = view; return [view.from, view.span, view.showCritical, search.query, document.documentElement.dataset.theme,
            selected && selected.program.rankOf(selected.i), selected && selected.program.kindName(selected.i), selected && selected.program.microbatch[selected.i],
            selected && view.panels.findIndex(p => p.timeline === selected.timeline), view.panels.indexOf(view.active), view.panels[1].wanted, plots_chosen(),
            document.querySelector("#ranks th").getAttribute("aria-sort"), document.activeElement.id, Math.round(view.active.canvas.getBoundingClientRect().top)]; })()"""
        look = look.replace("plots_chosen()", "window.motetReport.plots.chosen")
        before = self.see(look)
        self.shot("before")
        self.web.execute_script("window.mark = 2")
        run.step(3, 3.5)
        run.step(4, 3.25)
        run.timeline(4, 2.0)
        self.until(lambda: self.web.execute_script("return window.mark") is None and self.see("view.panels.length") == 2)
        self.shot("after")
        self.assertEqual(self.see("view.panels[0].timeline.makespan"), 2.0 * max(run.counts))
        after = self.see(look)
        self.assertAlmostEqual(after.pop(), before.pop(), delta=2)
        self.assertEqual(after, before)  # ... and as it was, in another step
        self.assertIn("step 4", self.text("h1"))
        self.assertIn("step 1: 5", self.text("#training figure output"))
        # A timeline that does not read leaves the page as it is, and the next one comes all the same.
        self.web.execute_script("window.mark = 5")
        (run.folder / "timeline" / "step-5.times.json").write_text("{")
        run.step(5, 3.0)
        self.until(lambda: self.see("page.sides[0].history.step.length") == 5)
        time.sleep(5 * INTERVAL)
        self.assertEqual(self.web.execute_script("return window.mark"), 5)
        # Held: the timeline stays, the plots grow; let go, the newer one comes.
        self.web.execute_script("window.mark = 3; document.getElementById('hold').click()")
        run.timeline(6, 1.0)
        run.step(6, 2.5)
        self.until(lambda: self.see("page.sides[0].history.loss.join(' ')") == "5 4 3.5 3.25 3 2.5")
        self.until(lambda: "a newer timeline is there" in self.text("#live-words"))
        self.assertEqual(self.web.execute_script("return window.mark"), 3)
        self.web.execute_script("document.getElementById('hold').click()")
        self.until(lambda: self.web.execute_script("return window.mark") is None and self.see("view.panels[0].timeline.makespan") == max(run.counts))
        # The run goes back to step 3 and on from there.
        lines = (run.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
        (run.folder / "metrics.jsonl").write_text("".join(lines[:3]))
        run.step(4, 8.0)
        self.until(lambda: self.see("page.sides[0].history.loss.join(' ')") == "5 4 3.5 8")
        # The end: a page that needs nothing beside it.
        for number in range(5, 21):
            run.step(number, 2.0)
        time.sleep(5 * INTERVAL)
        self.assertIsNone(process.poll())  # the last evaluation and the checkpoint are still to come
        with open(run.folder / "evaluation.jsonl", "w") as file:
            file.write('{"step": 20, "eval_loss": 2.125}\n')
        run.end(20)
        self.assertEqual(process.wait(20), 0, process.stderr.read())
        self.until(lambda: self.see("page.live === undefined"))
        self.assertFalse(self.news.exists())
        self.assertNotIn("live.js", self.page.read_text())
        self.assertFalse(self.web.find_element("id", "live").is_displayed())
        self.assertEqual(self.see("[page.sides[0].history.step.length, page.sides[0].history.eval_loss]"), [20, [2.125]])
        self.assertEqual(self.see("[search.query, document.documentElement.dataset.theme]"), ["llm bwd", "dark"])
        self.assertEqual(console(self.web), [])
        subprocess.run([MOTET, "report", run.folder, "-o", self.folder / "again.html"], check=True)
        self.assertEqual(self.page.read_bytes(), (self.folder / "again.html").read_bytes())

    def test_a_run_that_fails_and_one_that_is_left(self):
        run = Run(self.folder / "run")
        run.begin(10)
        run.step(1, 5.0)
        run.timeline(1, 1.0)
        failure = run.folder / "failure.json"
        failure.write_text('{"message": "of an earlier start"}')
        os.utime(failure, (1e9, 1e9))
        process = self.follow(run)
        open_report(self.web, self.page)
        self.assertIn("of an earlier start", self.text("#message"))
        failure.unlink()
        self.until(lambda: not self.web.find_element("id", "message").is_displayed())
        failure.write_text('{"message": "<b>out of pictures</b>", "rank": 1}')
        self.assertEqual(process.wait(20), 0)
        self.until(lambda: "rank 1: <b>out of pictures</b>" in self.text("#message"))
        self.assertFalse(self.news.exists())
        # Ended by Ctrl-C, twice for at once.
        failure.unlink()
        process = self.follow(run)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 0)
        self.assertNotIn("live.js", self.page.read_text())
        # Killed: the page says that nobody writes it any more, and does not load itself for ever.
        process = self.follow(run)
        open_report(self.web, self.page)
        process.kill()
        process.wait()
        self.news.unlink()
        self.until(lambda: "whoever writes this page has ended" in self.text("#live-words"))
        self.web.execute_script("window.mark = 4")
        time.sleep(8 * INTERVAL)
        self.assertEqual(self.web.execute_script("return window.mark"), 4)

    def test_what_cannot_be_followed(self):
        for path, words in ((self.folder / "none" / "run", "neither does the directory"), (Path(MOTET), "is no directory")):
            done = subprocess.run([MOTET, "report", path, "--follow", "-o", self.page], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
            self.assertFalse(self.page.exists())


if __name__ == "__main__":
    require_browser()
    unittest.main()
