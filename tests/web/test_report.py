#!/usr/bin/env python3
"""The report in a browser: what it shows, clicks, keys, search, zoom, hostile names, runs, size.

MOTET names the command. Exits with 77 (skipped) where there is no browser. SCREENSHOTS=DIR keeps pictures.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from browser import console, open_browser, open_report, require_browser, state

MOTET = os.environ["MOTET"]
RANKS, MICROBATCHES = 4, 8
UNIT = "vision: f=1; llm: f=1, b=2"


def motet(*arguments):
    return subprocess.run([MOTET, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def plan(path, schedule="<vision: transpose, llm: 1f1b>", ranks=RANKS, microbatches=MICROBATCHES, unit=UNIT, *more):
    motet("plan", "--schedule", schedule, "--ranks", ranks, "--microbatches", microbatches, "--unit", unit, "-o", path,
          "--summary", *more)
    return path


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.web = cls.enterClassContext(open_browser())
        cls.program = plan(cls.folder / "plan.json")
        cls.page = cls.folder / "plan.html"
        motet("report", cls.program, "--unit", UNIT, "--alpha", "0.05", "-o", cls.page, "--title", "A plan")

    def setUp(self):
        open_report(self.web, self.page)

    def tearDown(self):
        self.assertEqual(console(self.web), [])
        if "SCREENSHOTS" in os.environ:
            self.web.save_screenshot(str(Path(os.environ["SCREENSHOTS"]) / f"{self._testMethodName}.png"))

    def see(self, expression):
        return state(self.web, expression)

    def text(self, selector):
        return self.web.find_element("css selector", selector).text

    def keys(self, *keys):
        """To whatever has the focus, as a person's would go."""
        from selenium.webdriver import ActionChains

        chain = ActionChains(self.web)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def focus(self, selector="#panel-0"):
        self.web.execute_script("document.querySelector(arguments[0]).focus()", selector)

    def find(self, rank, kind, microbatch, panel=0):
        """The number of an instruction of the llm."""
        return self.see(f"""(() => {{ const p = view.panels[{panel}].program;
            for (let i = p.begin[{rank}]; i < p.begin[{rank + 1}]; i++)
              if (p.kindName(i) === "{kind}" && p.microbatch[i] === {microbatch} && p.stageName(p.stage[i]).startsWith("llm")) return i; }})()""")

    def place(self, i, panel=0):
        """The middle of an instruction on the page, from the canvas's middle as the driver counts."""
        return self.see(f"""(() => {{ const p = view.panels[{panel}], t = p.timeline, box = p.canvas.getBoundingClientRect();
            const x = p.xOf((t.startSeconds({i}) + t.finishSeconds({i})) / 2) / p.scale + 1, y = (p.yOf(p.program.rankOf({i})) + p.rowHeight / 2) / p.scale + 1;
            return [Math.round(x - box.width / 2), Math.round(y - box.height / 2)]; }})()""")

    def pointer(self, i, panel=0):
        from selenium.webdriver import ActionChains

        canvas = self.web.find_element("id", f"panel-{panel}")
        return ActionChains(self.web).move_to_element_with_offset(canvas, *self.place(i, panel))

    def draw(self):
        """Waits for the frame that is asked for."""
        self.web.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


class Shown(Report):
    def test_summary_is_the_plans(self):
        told = json.loads(motet("simulate", self.program, "--unit", UNIT, "--alpha", "0.05", "--json"))
        self.assertEqual(self.web.title, "A plan")
        self.assertEqual(self.text("h1"), "A plan")
        summary = self.text("#summary")
        self.assertIn(f"{told['makespan']:.6g} s", summary)
        self.assertIn(told["digest"], summary)
        self.assertIn(f"{100 * told['idle_share']:.1f}%", summary)
        for cause, seconds in told["idle_by_cause"].items():
            shown = cause.replace("warm_up", "warm-up").replace("cool_down", "cool-down").replace("data_parallel", "data-parallel").replace("_", " ")
            self.assertEqual(shown in self.text("#idle"), seconds > 1e-9, cause)

    def test_instructions_are_the_programs(self):
        self.assertEqual(self.see("page.programs[0].count"), json.loads(motet("simulate", self.program, "--unit", UNIT, "--json"))["instructions"])
        self.assertEqual(self.see("view.panels[0].program.ranks"), RANKS)

    def test_blocks_have_their_colours(self):
        forward = self.find(0, "FWD", 0)
        backward = self.find(RANKS - 1, "BWD", 2)
        for i, colour in ((forward, (0, 95, 175)), (backward, (255, 175, 0))):
            pixel = self.see(f"""(() => {{ const p = view.panels[0], t = p.timeline;
                const x = p.xOf(t.startSeconds({i}) * 0.75 + t.finishSeconds({i}) * 0.25), y = p.yOf(p.program.rankOf({i})) + p.rowHeight * 0.2;
                return Array.from(p.context.getImageData(x, y, 1, 1).data.slice(0, 3)); }})()""")
            self.assertEqual(tuple(pixel), colour)

    def test_what_would_change_the_step(self):
        rows = self.text("#what-if")
        self.assertIn("vision 20% faster", rows)
        self.assertIn("llm 50% faster", rows)

    def test_memory_says_where_its_peak_is(self):
        self.assertRegex(self.text("#panel-0-memory-words"), rf"Rank 0 holds at most {RANKS} microbatches, at .*: forward of llm\.0, microbatch {RANKS - 1}\.")

    def test_everything_has_a_name(self):
        nameless = self.web.execute_script("""return [...document.querySelectorAll("button, input, canvas, dialog, section, [role=img]")].filter(element =>
            !(element.textContent.trim() || element.getAttribute("aria-label") || element.title ||
              (element.labels && element.labels.length) || document.getElementById(element.getAttribute("aria-labelledby") || "-"))).map(element => element.outerHTML)""")
        self.assertEqual(nameless, [])

    def test_contrast_in_both_themes(self):
        def luminance(colour):
            parts = [int(colour[k:k + 2], 16) / 255 for k in (1, 3, 5)]
            parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]  # WCAG 2.2

        for theme in ("light", "dark"):
            self.web.execute_script(f"motetReport.setTheme('{theme}')")
            colours = self.web.execute_script("const s = getComputedStyle(document.documentElement); return ['--ground', '--raised', '--text', '--quiet', '--accent'].map(n => s.getPropertyValue(n).trim())")
            for ground in colours[:2]:
                for ink in colours[2:]:
                    light, dark = sorted((luminance(ground), luminance(ink)), reverse=True)
                    self.assertGreaterEqual((light + 0.05) / (dark + 0.05), 4.5, (theme, ground, ink))
            self.draw()


    def test_colours_for_dichromats(self):
        """Inks that mean different things differ for people without one kind of cones, by Machado et al. (2009, severity 1) in CIELAB."""
        kinds_of_cones = {"all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
                          "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
                          "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
                          "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]}

        def lab(colour, seen):
            rgb = [((colour >> shift) & 255) / 255 for shift in (16, 8, 0)]
            rgb = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
            r, g, b = [min(1, max(0, sum(k * c for k, c in zip(row, rgb)))) for row in seen]
            xyz = ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089)
            x, y, z = [t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz]
            return 116 * y - 16, 500 * (x - y), 200 * (y - z)

        def apart(one, other, least, what):
            for cones, seen in kinds_of_cones.items():
                self.assertGreater(sum((a - b) ** 2 for a, b in zip(lab(one, seen), lab(other, seen))) ** 0.5, least, (what, cones))

        inks, ink = self.see("page.inks"), self.see("page.ink")
        # The first sharded and the first replicated region; input gradients alone are a backward in looks, and have their letter.
        work = [(number, name, even, odd) for number, (name, _, even, odd, *_) in enumerate(inks[:2 * ink["kinds"]]) if name != "input gradients"]
        for k, (_, name, *colours) in enumerate(work):
            for _, other, *others in work[:k]:
                for one in colours:
                    for two in others:
                        if name != other:
                            apart(one, two, 8, (name, other))
        for theme in (2, 3):  # greys mean the pipeline's own shape; what came late differs from them and from one another
            idle = [(row[0], row[theme]) for row in inks[ink["idle"]:]]
            for k, (name, colour) in enumerate(idle):
                for other, second in idle[:k]:
                    if not {name, other} <= {"warm-up", "cool-down", "idle"}:
                        apart(colour, second, 15, (name, other))


class Pointed(Report):
    def test_click_chooses_and_shows_messages(self):
        i = self.find(1, "FWD", 3)
        self.pointer(i).click().perform()
        self.assertEqual(self.see("view.selected.i"), i)
        detail = self.text("#detail")
        self.assertIn("rank 1: forward of llm.1, microbatch 3", detail)
        self.assertIn("from rank 0", detail)
        self.assertIn("to rank 2", detail)
        self.web.find_element("xpath", "//div[@id='detail']//button[text()='to rank 2']").click()
        self.assertEqual(self.see("[view.selected.program.rankOf(view.selected.i), view.selected.program.microbatch[view.selected.i]]"), [2, 3])

    def test_hovering_idle_time_says_why(self):
        i = self.see("""(() => { const { program, timeline } = view.panels[0];
            for (let i = program.begin[2]; i < program.begin[3]; i++) if (program.kindName(i) === "WAIT" && timeline.seconds(i) > 0.5) return i; })()""")
        self.pointer(i).perform()
        tip = self.text("#tip")
        self.assertIn("waits for", tip)
        self.assertIn("idle, ", tip)
        self.assertIn("warm-up: before this rank's first backward", tip)

    def test_wheel_zooms_and_drag_pans(self):
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
        from selenium.webdriver.common.keys import Keys

        canvas = self.web.find_element("id", "panel-0")
        ActionChains(self.web).key_down(Keys.CONTROL).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -300).key_up(Keys.CONTROL).perform()
        self.assertLess(self.see("view.span / view.longest"), 0.5)
        before = self.see("view.from")
        ActionChains(self.web).move_to_element(canvas).click_and_hold().move_by_offset(-200, 0).release().perform()
        self.assertGreater(self.see("view.from"), before)
        self.assertIsNone(self.see("view.selected"))
        self.web.find_element("id", "fit").click()
        self.assertEqual(self.see("[view.from, view.span === view.longest]"), [0, True])

    def test_tables_sort_and_jump(self):
        head = self.web.find_element("xpath", "//section[@id='ranks']//th/button[text()='busy']")
        head.click()
        self.assertEqual(self.web.find_element("xpath", "//section[@id='ranks']//th[.='busy']").get_attribute("aria-sort"), "descending")
        self.web.find_element("xpath", "//section[@id='ranks']//button[text()='rank 3']").click()
        self.assertEqual(self.see("view.panels[0].rank"), 3)


class Typed(Report):
    def test_arrows_walk_through_time_and_ranks(self):
        from selenium.webdriver.common.keys import Keys

        self.focus()
        self.keys(Keys.HOME)
        first = self.see("view.selected.i")
        self.assertEqual(first, self.see("(() => { const { timeline, program } = view.panels[0]; let i = 0; while (timeline.seconds(i) === 0) i++; return i; })()"))
        self.keys(Keys.ARROW_RIGHT)
        self.assertGreater(self.see("view.selected.i"), first)
        self.keys(Keys.ARROW_LEFT)
        self.assertEqual(self.see("view.selected.i"), first)
        self.keys(Keys.ARROW_DOWN)
        self.assertEqual(self.see("view.panels[0].rank"), 1)
        time = self.see("view.selected.timeline.startSeconds(view.selected.i)")
        self.assertLessEqual(time, self.see(f"view.panels[0].timeline.finishSeconds({first})"))
        self.keys(Keys.END, Keys.ARROW_UP)
        self.assertEqual(self.see("view.panels[0].rank"), 0)
        self.assertIn("rank 0: ", self.text("#detail"))

    def test_zoom_and_pan_keys(self):
        from selenium.webdriver.common.keys import Keys

        self.focus()
        self.keys("+", "+", "w")
        self.assertAlmostEqual(self.see("view.span / view.longest"), 0.7 ** 3, places=6)
        before = self.see("view.from")
        self.keys("d")
        self.assertAlmostEqual(self.see("(view.from - %r) / view.span" % before), 0.25, places=6)
        self.keys("a", "s")
        self.assertAlmostEqual(self.see("view.span / view.longest"), 0.7 ** 2, places=6)
        self.keys("f")
        self.assertEqual(self.see("view.span === view.longest"), True)
        i = self.find(2, "BWD", 1)
        self.web.execute_script(f"const {{view}} = motetReport; view.select(view.panels[0], {i})")
        self.keys(Keys.ENTER)
        self.assertAlmostEqual(self.see(f"view.span / view.panels[0].timeline.seconds({i})"), 3, places=4)
        self.keys(Keys.ESCAPE)
        self.assertIsNone(self.see("view.selected"))

    def test_critical_path_keys(self):
        self.focus()
        walked = []
        for _ in range(200):
            self.keys("g")
            i = self.see("view.selected.i")
            if walked and walked[-1] == i:
                break
            walked.append(i)
        timed = self.see("Array.from(view.panels[0].timeline.critical).filter(i => view.panels[0].timeline.seconds(i) > 0)")
        self.assertEqual(walked, timed)
        self.keys("c")
        self.assertEqual(self.web.find_element("id", "critical").get_attribute("aria-pressed"), "false")

    def test_message_and_peak_keys(self):
        i = self.find(0, "FWD", 2)
        self.web.execute_script(f"const {{view}} = motetReport; view.select(view.panels[0], {i})")
        self.focus()
        self.keys("m")
        self.assertEqual(self.see("[view.panels[0].rank, view.selected.program.microbatch[view.selected.i]]"), [1, 2])
        self.keys("k")
        self.assertEqual(self.see("view.selected.i"), self.see("view.panels[0].memory.peaks[1].i"))

    def test_search(self):
        from selenium.webdriver.common.keys import Keys

        self.focus()
        self.keys("/", "llm bwd mb 5", Keys.ENTER)
        self.assertEqual(self.text("#search-result"), f"match 1 of {RANKS}")
        seen = set()
        for _ in range(RANKS):
            seen.add(self.see("view.selected.program.rankOf(view.selected.i)"))
            self.assertEqual(self.see("[view.selected.program.kindName(view.selected.i), view.selected.program.microbatch[view.selected.i]]"), ["BWD", 5])
            self.focus()
            self.keys("n")
        self.assertEqual(seen, set(range(RANKS)))
        counts = {"fwd vision": MICROBATCHES, "stage:1 fwd": MICROBATCHES, "rank 2 llm.2 fwd": MICROBATCHES, "llm.9": 0, "mb 3 forward": RANKS + 1}
        for query, count in counts.items():
            self.assertEqual(self.see(f"(search.run({json.dumps(query)}), search.hits.length)"), count, query)
        idle = self.see("(search.run('idle warm-up'), search.hits.length)")
        self.assertEqual(idle, self.see("view.panels[0].timeline.cause.reduce((n, cause, i) => n + (cause === 0 && view.panels[0].timeline.seconds(i) > 0), 0)"))
        self.web.find_element("id", "search").send_keys(Keys.ESCAPE)
        self.assertIsNone(self.see("view.panels[0].rows.matches"))

    def test_help_and_tab_order(self):
        from selenium.webdriver.common.keys import Keys

        self.focus()
        self.keys("?")
        self.assertTrue(self.web.find_element("id", "help").is_displayed())
        self.keys(Keys.ESCAPE)
        self.assertFalse(self.web.find_element("id", "help").is_displayed())
        self.focus(".skip")
        reached = []
        for _ in range(14):
            self.keys(Keys.TAB)
            reached.append(self.web.execute_script("return document.activeElement.id"))
        for wanted in ("theme", "search", "zoom-in", "fit", "critical", "help-button", "panel-0"):
            self.assertIn(wanted, reached)
        before = self.see("view.span")
        self.focus("#search")
        self.keys("+w")  # typing is not zooming
        self.assertEqual(self.see("view.span"), before)

    def test_rows_grow(self):
        self.focus()
        before = self.see("view.panels[0].rowHeight")
        self.keys("]", "]")
        self.assertGreater(self.see("view.panels[0].rowHeight"), before)
        self.keys("[", "[", "[")
        self.assertLess(self.see("view.panels[0].rowHeight"), before)


class Others(Report):
    def test_hostile_names(self):
        evil = "</script><script>window.broken = 1</script><b id='broken'>\"'&😀"
        text = self.program.read_text()
        program = json.loads(text.replace('"llm"', json.dumps(evil)))
        del program["digest"]  # of the program as it was
        path = self.folder / "evil.json"
        path.write_text(json.dumps(program))
        page = self.folder / "evil.html"
        motet("report", path, "--unit", "f=1, b=2", "-o", page, "--title", evil)
        open_report(self.web, page)
        self.assertIsNone(self.web.execute_script("return window.broken || document.getElementById('broken')"))
        self.assertEqual(self.web.title, evil)
        self.web.execute_script("const {view} = motetReport; view.moveToEnd(true); view.moveInstruction(-1)")
        self.draw()
        self.assertIn(evil, self.see("view.panels[0].program.regions.map(r => r.name)"))
        self.assertIn(evil, self.text("#tables"))
        self.assertIsNone(self.web.execute_script("return window.broken || document.getElementById('broken')"))

    def test_two_plans(self):
        other = plan(self.folder / "prefix.json", "<vision: transpose(order=prefix), llm: 1f1b>")
        page = self.folder / "two.html"
        motet("report", self.program, "--against", other, "--unit", UNIT, "-o", page)
        open_report(self.web, page)
        self.assertEqual(self.see("view.panels.length"), 2)
        told = [json.loads(motet("simulate", path, "--unit", UNIT, "--json"))["makespan"] for path in (self.program, other)]
        self.assertIn(f"{100 * (told[1] / told[0] - 1):.1f}%".lstrip("-"), self.text("#summary"))
        scales = self.see("view.panels.map(panel => panel.xOf(view.longest / 2))")
        self.assertEqual(scales[0], scales[1])
        self.focus("#panel-1")
        from selenium.webdriver.common.keys import Keys
        self.keys(Keys.HOME)
        self.assertEqual(self.see("view.selected.program === view.panels[1].program"), True)
        self.focus("#panel-1")
        self.keys("t")
        self.assertEqual(self.web.execute_script("return document.activeElement.id"), "panel-0")

    def make_run(self):
        """A run whose forwards took half as long again as simulated, and whose every instruction began a bit late."""
        run = self.folder / "run"
        (run / "timeline").mkdir(parents=True, exist_ok=True)
        program = self.program.read_text()
        kinds, begin, start, finish = self.see("[Array.from(page.programs[0].code, c => c & 31), Array.from(page.programs[0].begin), "
                                               "Array.from({length: page.programs[0].count}, (_, i) => view.panels[0].timeline.startSeconds(i)), "
                                               "Array.from({length: page.programs[0].count}, (_, i) => view.panels[0].timeline.finishSeconds(i))]")
        measured = {"format": "motet-times-1", "start": [1.5 * t + 0.001 for t in start], "finish": [1.5 * t + 0.001 for t in finish]}
        for name, content in (("step-3.program.json", program), ("step-3.times.json", json.dumps(measured))):
            (run / "timeline" / name).write_text(content)
        lines = [{"step": k, "loss": 5.0 - k, "tokens": 100 * k, "mfu": None} for k in range(1, 5)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run, start, finish

    def test_run(self):
        run, start, finish = self.make_run()
        page = self.folder / "run.html"
        motet("report", run, "-o", page)
        open_report(self.web, page)
        self.assertEqual(self.see("view.panels.map(panel => panel.timeline.title)")[1], "measured")
        self.assertEqual(self.see("view.panels.length"), 2)
        self.assertAlmostEqual(self.see("view.panels[1].timeline.makespan"), 1.5 * max(finish) + 0.001, places=6)
        self.assertIn("loss 2", self.text("#summary").replace("\n", " "))  # the line of step 3
        # With the plan's own times beside them the differences are known: half as long again, everywhere.
        (run / "timeline" / "step-3.simulated.json").write_text(json.dumps({"format": "motet-times-1", "start": start, "finish": finish}))
        motet("report", run, "-o", page, "--step", 3)
        open_report(self.web, page)
        self.assertEqual(self.see("view.panels.map(panel => panel.timeline.title)"), ["simulated", "measured"])
        self.assertAlmostEqual(self.see("view.panels[0].timeline.makespan"), max(finish), places=6)
        titles = self.web.find_elements("css selector", ".panel h3")  # measured under simulated, on the screen too
        self.assertLess(titles[0].location["y"], titles[1].location["y"])
        self.assertEqual([word in title.text for title, word in zip(titles, ("simulated", "measured"))], [True, True])
        longer = f"{100 * ((1.5 * max(finish) + 0.001) / max(finish) - 1):+.1f}%"
        self.assertIn("measured against simulated – " + longer, self.text("#summary").replace("\n", " "))
        work = self.web.find_elements("css selector", "#work tr")
        self.assertTrue(work[0].text.endswith("measured against simulated"), work[0].text)
        self.assertEqual([row.text.split()[-1] for row in work[1:]], ["+50.0%"] * 3 + ["–"])  # the optimizer takes no time
        rows = self.web.find_elements("css selector", "#differences tbody tr")
        self.assertGreater(len(rows), 3)
        for row in rows:
            self.assertTrue(row.text.endswith("+50.0%"), row.text)
        rows[0].find_element("tag name", "button").click()
        self.assertEqual(self.see("view.panels.indexOf(view.active)"), 1)  # of the measured one, held against the one above
        self.assertIn("simulated: ", self.text("#detail"))
        self.assertIn("(measured against it: +50.0%)", self.text("#detail"))
        self.assertFalse(self.web.find_element("id", "message").is_displayed())

    def test_operations_of_a_run(self):
        run, start, finish = self.make_run()
        stages = self.see("page.programs[0].stages.map(s => page.programs[0].regions[s.region].name)")
        made = {"vision": (3e9, 0, 0), "llm": (1e9, 1e9, 2e9)}  # of a microbatch in a stage: forward, gradients of inputs, of weights
        parts = ("forward", "input_gradient", "weight_gradient")
        pieces = [{"stage": s, "module": 0 if name == "vision" else 1, **{part: [(m + 1) * value for m in range(MICROBATCHES)] for part, value in zip(parts, made[name])}}
                  for s, name in enumerate(stages)]
        (run / "timeline" / "step-3.flops.json").write_text(json.dumps({"format": "motet-flops-1", "peak_per_second": 1e11, "pieces": pieces}))
        page = self.folder / "flops.html"
        motet("report", run, "-o", page)
        open_report(self.web, page)
        rows = [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in self.web.find_elements("css selector", "#flops tbody tr")]
        times = sum(range(1, MICROBATCHES + 1))  # 36
        total = times * (3 + RANKS * 4)
        self.assertEqual(rows[0][:5], ["vision, frozen", f"{3 * times} GFLOP", "–", "–", f"{3 * times} GFLOP"])
        self.assertEqual(rows[1][:5], ["llm", f"{RANKS * times} GFLOP", f"{RANKS * times} GFLOP", f"{2 * RANKS * times} GFLOP", f"{4 * RANKS * times} GFLOP"])
        self.assertEqual(rows[2][4], f"{total} GFLOP")
        seconds = 1.5 * MICROBATCHES  # the encoder, measured: a microbatch takes one and a half
        self.assertEqual(rows[0][7:9], [f"{3 * times / seconds:.4g} GFLOP/s", f"{100 * 3e9 * times / seconds / 1e11:.1f}%"])
        mfu = f"{100 * total * 1e9 / (1e11 * RANKS * (1.5 * max(finish) + 0.001)):.1f}%"
        self.assertIn("measured " + mfu, self.text("#flops"))
        self.assertRegex(self.text("#summary").replace("\n", " "), r"model FLOPs utilization \S+% " + re.escape(mfu))
        i = self.find(1, "BWD", 5)  # gradients of inputs and weights of the sixth microbatch: 18 GFLOP in three seconds
        self.web.execute_script(f"const {{view}} = motetReport; view.select(view.panels[0], {i})")
        self.assertIn("18 GFLOP, 6 GFLOP/s: 6.0% of the rank's peak", self.text("#detail"))
        self.assertEqual(json.loads(motet("show", run, "--json"))["flops"]["total"], total * 1e9)

    def test_plots_of_a_run(self):
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.keys import Keys

        run, _, _ = self.make_run()
        lines = [{"step": k, "loss": 6.0 - k, "tokens": 100 * k, "step_seconds": 0.5} for k in range(1, 6)]
        lines[3]["loss"] = None
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 6, "lo')
        (run / "evaluation.jsonl").write_text('{"step": 2, "eval_loss": 4.5}\n{"step": 4, "eval_loss": 3.5}\n')
        page = self.folder / "plots.html"
        motet("report", run, "-o", page)
        open_report(self.web, page)
        figures = self.web.find_elements("css selector", "#training figure")
        self.assertEqual([figure.find_element("tag name", "figcaption").text for figure in figures],
                         ["loss", "evaluation loss", "tokens per second", "step time"])
        told = lambda k: figures[k].find_element("tag name", "output").text
        plot = figures[0].find_element("tag name", "svg")
        self.web.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].focus()", plot)
        self.keys(Keys.HOME)
        self.assertEqual([told(k) for k in range(4)], ["step 1: 5", "step 1: not known", "step 1: 200", "step 1: 500 ms"])
        self.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertEqual([told(k) for k in range(4)], ["step 3: 3", "step 2: 4.5", "step 3: 600", "step 3: 500 ms"])
        self.keys(Keys.ARROW_RIGHT)
        self.assertEqual(told(0), "step 4: not known")
        self.keys(Keys.END, Keys.ARROW_LEFT, Keys.END)
        self.assertEqual(told(0), "step 5: 1")
        # The pointer at the plot's left end: the first step.
        width = plot.size["width"]
        ActionChains(self.web).move_to_element_with_offset(plot, round(-width / 2 + 60 / 460 * width), 0).perform()
        self.assertEqual(self.text("#tip"), "loss, step 1: 5")
        # The line goes down by the same amount from step to step and has a hole at step 4.
        path = figures[0].find_element("tag name", "path").get_attribute("d")
        self.assertEqual((path.count("M"), path.count("L")), (2, 2), path)
        self.assertFalse(self.web.find_elements("css selector", "#plot-values table"))
        self.web.find_element("css selector", "#plot-values summary").click()
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.web, 10).until(lambda web: web.find_elements("css selector", "#plot-values table"))
        rows = [[cell.text for cell in row.find_elements("css selector", "th, td")] for row in self.web.find_elements("css selector", "#plot-values tbody tr")]
        self.assertEqual(rows[0], ["5", "1", "–", "1000", "500 ms"])
        self.assertEqual(rows[1], ["4", "–", "3.5", "800", "500 ms"])
        self.assertEqual(len(rows), 5)
        (run / "evaluation.jsonl").unlink()
        motet("report", self.program, "--unit", UNIT, "-o", page)
        open_report(self.web, page)
        self.assertFalse(self.web.find_elements("id", "training"))

    def test_failed_run(self):
        run, _, _ = self.make_run()
        told = {"message": "a message that never came: <b>activation</b>", "rank": 2, "instruction": 17, "microbatch": 3}
        (run / "failure.json").write_text(json.dumps(told))
        page = self.folder / "failed.html"
        motet("report", run, "-o", page)
        open_report(self.web, page)
        self.assertEqual(self.text("#message"), "This run failed: rank 2: instruction 17: microbatch 3: " + told["message"])
        (run / "failure.json").unlink()

    def test_broken_runs_are_refused(self):
        run, _, _ = self.make_run()
        page = self.folder / "broken.html"
        cases = {"{": "step-3.times.json", "{}": "start", '{"format": "motet-times-1", "start": [1]}': "start"}
        for content, word in cases.items():
            (run / "timeline" / "step-3.times.json").write_text(content)
            told = subprocess.run([MOTET, "report", run, "-o", page, "--json"], capture_output=True, text=True)
            self.assertEqual(told.returncode, 2)
            self.assertIn(word, json.dumps(json.loads(told.stdout)))
        self.assertFalse(page.exists())

    def test_many_instructions(self):
        """256 ranks, 655,000 instructions: every frame stays short, and from afar inks keep their shares."""
        unit = "llm: f=1, b=2"
        program = plan(self.folder / "large.json", "<llm: 1f1b>", 256, 256, unit)
        page = self.folder / "large.html"
        motet("report", program, "--unit", unit, "-o", page)
        open_report(self.web, page)
        self.draw()
        times = self.web.execute_script("""const { view } = motetReport, times = [];
            for (let k = 0; k < 60; k++) {
              view.look(k / 60 * view.longest, view.longest * [0.9, 0.3, 0.1, 0.01, 0.001][k % 5]);
              view.pending = false;
              const begin = performance.now();
              view.drawNow();
              view.panels[0].context.getImageData(0, 0, 1, 1);
              times.push(performance.now() - begin);
            }
            return times;""")
        print(f"\nframe of 256 ranks: median {statistics.median(times):.1f} ms, longest {max(times):.1f} ms", file=sys.stderr)
        self.assertLess(statistics.median(times), 50)
        shares = self.web.execute_script("""const { view } = motetReport, panel = view.panels[0], { timeline, program } = panel, { rows } = panel;
            const rank = 100, line = new Uint8Array(1000), seen = new Float64Array(128), true_ = new Float64Array(128);
            for (let k = 0; k < 20; k++) { rows.paintFar(rank + k, 0, timeline.ticks / line.length, line); for (const ink of line) seen[ink >> 1 << 1] += 1 / 20000; }
            for (let i = program.begin[rank]; i < program.begin[rank + 20]; i++) true_[timeline.inks[i] >> 1 << 1] += (timeline.finish[i] - timeline.start[i]) / timeline.ticks / 20;
            return [Array.from(seen), Array.from(true_)];""")
        for ink, (seen, true) in enumerate(zip(*shares)):
            self.assertAlmostEqual(seen, true, delta=0.02, msg=f"ink {ink}")

    def test_narrow_and_dark(self):
        self.web.set_window_size(500, 800)
        try:
            self.web.execute_script("motetReport.setTheme('dark')")
            self.draw()
            self.assertLessEqual(self.web.execute_script("return document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0)
        finally:
            self.web.set_window_size(1400, 1000)


del Report  # only its parts are tests
if __name__ == "__main__":
    require_browser()
    unittest.main(verbosity=1)
