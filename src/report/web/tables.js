/* Tables under the timeline. Texts from the data go into text nodes alone. */

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) made.append(child);
  return made;
}

function cell(value, attributes = {}) { return element("td", attributes, value); }

function table(caption, headings, rows) {
  const head = element("tr", {}, ...headings.map(text => text instanceof Element ? text : element("th", { scope: "col" }, text)));
  const body = rows.map(row => element("tr", {}, ...row.map((value, k) => value instanceof Element && /^T[HD]$/.test(value.tagName)
    ? value : k === 0 ? element("th", { scope: "row" }, value) : cell(value))));
  return element("div", { class: "scroll" }, element("table", {}, element("caption", {}, caption), element("thead", {}, head),
    element("tbody", {}, ...body)));
}

function section(id, heading, ...children) {
  return element("section", { id, "aria-labelledby": id + "-heading" }, element("h2", { id: id + "-heading" }, heading), ...children);
}

function shareBar(share) {
  const bar = element("i");
  bar.style.width = Math.max(0, Math.min(100, 100 * share)) + "%";
  return element("span", { class: "share", role: "img", "aria-label": percentWords(share) }, bar);
}

function jump(view, panel, i, text) {
  return element("button", { type: "button", class: "link", onclick: () => {
    view.go(panel, i);
    panel.canvas.focus();
    panel.canvas.scrollIntoView({ block: "center" });
  } }, text);
}

function panelTitle(panel) {
  const { program, timeline } = panel;
  return [program.title, timeline.title].filter(text => text).join(", ");
}

/* The same within the tables: what all panels share is left out. */
function shortTitle(view, panel) {
  if (view.page.programs.length === 1) return panel.timeline.title;
  return view.panels.length === view.page.programs.length ? panel.program.title : panelTitle(panel);
}

/* A run's step against its simulation, and the second program's timelines against their like of the first. */
function makespanRows(page, every) {
  const [first, second] = page.programs, rows = [], differing = page.programs.find(program => program.timelines.length > 1);
  const against = base => timeline => { const of = base(timeline); return of ? signedPercent(timeline.makespan / of.makespan - 1) : "–"; };
  if (differing)
    rows.push([againstWords(differing), ...every(against(({ program, title }) => title === "measured" ? program.timelines.find(other => other.title !== title) : null))]);
  if (second)
    rows.push(["against the first", ...every(against(({ program, title }) => program === first ? null
      : first.timelines.find(other => other.title === title) || first.timelines[first.timelines.length - 1]))]);
  return rows;
}

function againstWords({ timelines: [expected, measured] }) { return measured.title + " against " + expected.title; }

function summaryTable(page, view) {
  const { panels } = view, every = make => panels.map(panel => make(panel.timeline, panel.program));
  const words = text => cell(text, { class: "words" });
  const rows = [
    ["step", ...every(timeline => timeWords(timeline.makespan, timeline.makespan, 6))],
    ["schedule", ...every((timeline, program) => words(program.schedule || "not known"))],
    ["program", ...every((timeline, program) => words(rankWords(program.ranks) + ", " + program.microbatches + " microbatches, " +
      program.count + " instructions, " + (program.verified ? "verified" : "not verified") + ", digest " + program.digest))],
    ["idle", ...every(timeline => percentWords(timeline.idleShare) + " of all rank time")],
    ["bubble", ...every(timeline => percentWords(timeline.bubbleWhole) + " of the step, " + percentWords(timeline.bubbleStage) + " of the worst rank's body")],
  ];
  if (page.programs.some(program => program.bound !== null))
    rows.splice(1, 0, ["no order takes less than", ...every((timeline, program) => program.bound === null ? "–" : timeWords(program.bound, timeline.makespan, 6))]);
  rows.splice(1, 0, ...makespanRows(page, every));
  if (page.programs.some(program => program.flops && program.flops.peak > 0))
    rows.push(["model FLOPs utilization", ...every((timeline, { flops, ranks }) => flops && flops.peak > 0 ? percentWords(flops.total / flops.peak / ranks / timeline.makespan) : "–")]);
  if (panels.some(panel => panel.timeline.peakFeatures > 0))
    rows.push(["features alive at once", ...every(timeline => String(timeline.peakFeatures))]);
  const made = [table("", ["", ...panels.map(panelTitle)], rows)];
  const FACTS = 8; // in one column
  for (let k = 0; k < page.facts.length; k += FACTS)
    made.push(table("", ["", ""], page.facts.slice(k, k + FACTS).map(([name, value]) => [name, words(value)])));
  return made;
}

function idleTable(view) {
  const rows = [], headings = ["cause"];
  for (const panel of view.panels) headings.push(shortTitle(view, panel), "of all idle time", "");
  headings.push(element("th", { scope: "col", class: "words" }, "meaning"));
  const idle = view.panels.map(({ timeline, program }) => timeline.idleShare * program.ranks * timeline.makespan);
  for (let cause = 0; cause <= view.panels[0].timeline.idleByCause.length; cause++) {
    const seconds = view.panels.map(({ timeline }, k) => cause < timeline.idleByCause.length ? timeline.idleByCause[cause]
      : idle[k] - timeline.idleByCause.reduce((sum, of) => sum + of, 0));
    if (seconds.every((of, k) => !(of > 1e-6 * idle[k]))) continue;
    const row = [causeNames[cause]];
    seconds.map((of, k) => Math.abs(of) > 1e-9 * idle[k] ? of : 0).forEach((of, k) => row.push(of > 1e-3 * idle[k] ? timeWords(of, idle[k]) : timeWords(of), percentWords(of / idle[k]), cell(shareBar(of / idle[k]))));
    row.push(cell(causeSentences[cause].replace(/^[^:]*: /, ""), { class: "words" }));
    rows.push(row);
  }
  return section("idle", "Idle time by cause", table("Rank-seconds, added up over all ranks.", headings, rows));
}

/* Seconds and counts of compute by region and kind. */
function workOf({ timeline, program }) {
  const work = new Map();
  for (let i = 0; i < program.count; i++) {
    if (!program.isCompute(i)) continue;
    const region = program.stage[i] >= 0 ? program.regions[program.stages[program.stage[i]].region].name : "";
    const key = region + "\n" + program.kindName(i), row = work.get(key) || { region, kind: program.kindName(i), seconds: 0, count: 0 };
    row.seconds += timeline.seconds(i);
    row.count++;
    work.set(key, row);
  }
  return work;
}

function workTable(view) {
  const works = view.panels.map(workOf), keys = [...new Set(works.flatMap(work => [...work.keys()]))];
  const headings = ["what"];
  const compare = view.panels.length === 2, [over, under] = view.page.programs.length === 1 ? [1, 0] : [0, 1]; // measured by simulated
  for (const panel of view.panels) headings.push(...(compare ? [shortTitle(view, panel), "each"] : [shortTitle(view, panel), "each", "count", "of rank time"]));
  if (compare) headings.push(over === 1 ? againstWords(view.page.programs[0]) : "first against second");
  const rows = keys.map(key => {
    const found = works.map(work => work.get(key)), any = found.find(row => row), row = [[any.region, kindWords[any.kind]].filter(text => text).join(" ")];
    found.forEach((work, k) => {
      const { timeline, program } = view.panels[k];
      row.push(...(work ? [timeWords(work.seconds, program.ranks * timeline.makespan), timeWords(work.seconds / work.count)] : ["–", "–"]));
      if (!compare) row.push(String(work.count), percentWords(work.seconds / program.ranks / timeline.makespan));
    });
    if (compare) row.push(found[0] && found[1] ? signedPercent(found[over].seconds / found[under].seconds - 1) : "–");
    return row;
  });
  return section("work", "Work by region", table("Seconds of compute, added up over all ranks.", headings, rows));
}

/* Operations by module, their rate by region: what a module asks for, how fast the ranks do it, and what of their peak that
 * is. Where a region is one module, its row says both. */
function flopsTable(view, program) {
  const { flops } = program, panels = view.panels.filter(panel => panel.program === program), rows = [];
  const headings = ["", "forward", "gradients of inputs", "of weights", "together", ...panels.flatMap(panel => [
    panels.length > 1 ? panel.timeline.title + ", while it computes" : "while it computes", ...(flops.peak > 0 ? ["of the peak"] : [])])];
  const seconds = panels.map(panel => secondsByRegion(panel));
  const rates = (total, k, time) => [time > 0 ? flopsWords(total / time) + "/s" : "–", ...(flops.peak > 0 ? [time > 0 ? percentWords(total / time / flops.peak) : "–"] : [])];
  const cells = ({ forward, input, weight, total }) => [forward, input, weight, total].map(value => value > 0 ? flopsWords(value) : "–");
  program.regions.forEach((region, r) => {
    const inside = ({ stage }) => program.stages[stage].region === r, modules = program.modules.map((module, j) => j).filter(j => flops.pieces.some(piece => inside(piece) && piece.module === j));
    const nameOf = j => program.modules[j].name + (program.modules[j].trains ? "" : ", frozen");
    for (const j of modules) {
      const sum = flops.sum(piece => inside(piece) && piece.module === j);
      rows.push([nameOf(j), ...cells(sum), ...panels.flatMap((panel, k) => modules.length === 1 ? rates(sum.total, k, seconds[k][r]) : rates(0, k, 0))]);
    }
    const sum = flops.sum(inside);
    if (modules.length > 1) rows.push(["all of " + region.name, ...cells(sum), ...panels.flatMap((panel, k) => rates(sum.total, k, seconds[k][r]))]);
  });
  const all = flops.sum(() => true);
  rows.push(["the step", ...cells(all), ...panels.flatMap((panel, k) => rates(all.total, k, panel.timeline.busy.reduce((sum, busy) => sum + busy, 0)))]);
  return table((view.page.programs.length > 1 ? program.title + ": p" : "P") + "roducts and attention of the step's own shapes, two operations a multiply-add; what is computed again counts once, and frozen layers have no gradients of weights." +
    (flops.peak > 0 ? " A rank's peak is " + flopsWords(flops.peak) + "/s. Utilization of the whole step, idle time included (MFU): " + panels.map(({ timeline }) =>
      (panels.length > 1 ? timeline.title + " " : "") + percentWords(flops.total / flops.peak / program.ranks / timeline.makespan)).join(", ") + "." : ""), headings, rows);
}

function secondsByRegion({ timeline, program }) {
  const seconds = new Float64Array(program.regions.length);
  for (let i = 0; i < program.count; i++)
    if (program.kind(i) <= KIND.RECOMPUTE) seconds[program.stages[program.stage[i]].region] += timeline.seconds(i);
  return seconds;
}

function whatIfTable(view) {
  const rows = [];
  for (const program of view.page.programs)
    for (const row of program.whatIf)
      rows.push([(view.page.programs.length > 1 ? program.title + ": " : "") + row.change, timeWords(row.makespan, row.before, 6), signedPercent(row.makespan / row.before - 1)]);
  if (rows.length === 0) return null;
  return section("what-if", "What would change the step", table("Each simulated again, in the order of this program; without a change it takes " +
    view.page.programs.filter(program => program.whatIf.length > 0).map(program => timeWords(program.whatIf[0].before, program.whatIf[0].before, 6)).join(" and ") + ".", ["change", "step", "difference"], rows));
}

function causeOfRank({ timeline, program }, rank) {
  const sums = new Float64Array(8);
  for (let i = program.begin[rank]; i < program.begin[rank + 1]; i++)
    if (!program.isCompute(i)) sums[Math.min(7, timeline.cause[i])] += timeline.finish[i] - timeline.start[i];
  const most = sums.indexOf(Math.max(...sums));
  return sums[most] > 0 ? causeNames[most] : "–";
}

/* Sortable; the first rows, and all on request. */
function rankTable(view, panel) {
  const { timeline, program } = panel, FIRST = 12;
  const list = timeline.busy.map((busy, rank) => ({ rank, busy, idle: timeline.makespan - busy, cause: causeOfRank(panel, rank),
    peak: panel.memory ? panel.memory.peaks[rank] : null }));
  const columns = [["rank", row => row.rank], ["busy", row => row.busy], ["idle", row => row.idle], ["most of it", row => row.cause],
    ...(panel.memory ? [["peak memory", row => row.peak.bytes]] : [])];
  const box = element("div"), key = "ranks-" + view.panels.indexOf(panel);
  const memo = view.memo[key] = view.memo[key] || { sortBy: 2, down: true, all: program.ranks <= FIRST };
  const draw = () => {
    const { sortBy, down, all } = memo, key = columns[sortBy][1], sorted = [...list].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1) || a.rank - b.rank);
    const head = columns.map(([name], k) => element("th", { scope: "col", "aria-sort": k === sortBy ? (down ? "descending" : "ascending") : undefined },
      element("button", { type: "button", onclick: () => { memo.down = k === sortBy ? !down : k > 0; memo.sortBy = k; draw(); } }, name)));
    if (panel.memory) head.push(element("th", { scope: "col", class: "words" }, "at"));
    const rows = (all ? sorted : sorted.slice(0, FIRST)).map(row => element("tr", {},
      element("th", { scope: "row" }, jump(view, panel, firstTimed(timeline, row.rank), "rank " + row.rank)),
      cell(timeWords(row.busy, timeline.makespan)), cell(timeWords(row.idle, timeline.makespan) + " (" + percentWords(row.idle / timeline.makespan) + ")"),
      cell(row.cause, { class: "words" }), ...(panel.memory ? [cell(memoryWords(timeline.memory, row.peak.bytes)),
        cell(row.peak.i >= 0 ? jump(view, panel, row.peak.i, instructionWords(program, row.peak.i)) : "–", { class: "words" })] : [])));
    box.replaceChildren(element("div", { class: "scroll" }, element("table", {}, element("caption", {}, panelTitle(panel)),
      element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))));
    if (!all) box.append(element("button", { type: "button", onclick: () => { memo.all = true; draw(); } }, "All " + program.ranks + " ranks"));
  };
  draw();
  return box;
}

function firstTimed(timeline, rank) {
  const { program } = timeline;
  let i = program.begin[rank];
  while (i < program.begin[rank + 1] - 1 && timeline.finish[i] <= timeline.start[i]) i++;
  return Math.min(i, program.count - 1);
}

/* What the critical path is made of, and its longest elements. */
function criticalTable(view, panel) {
  const { timeline, program } = panel, kinds = new Map();
  let before = 0;
  const parts = Array.from(timeline.critical, i => {
    const finish = timeline.finishSeconds(i), seconds = Math.max(0, finish - before);
    before = Math.max(before, finish);
    return { i, seconds };
  });
  for (const { i, seconds } of parts) {
    const region = program.stage[i] >= 0 && program.isCompute(i) ? program.regions[program.stages[program.stage[i]].region].name + " " : "";
    const kind = program.kind(i), what = kind >= KIND.SEND && kind <= KIND.WAIT ? "transfers" : region + kindWords[program.kindName(i)];
    kinds.set(what, (kinds.get(what) || 0) + seconds);
  }
  const rows = [...kinds].filter(([, seconds]) => seconds > 0).sort((a, b) => b[1] - a[1])
    .map(([what, seconds]) => [what, timeWords(seconds, timeline.makespan), percentWords(seconds / timeline.makespan), cell(shareBar(seconds / timeline.makespan))]);
  const longest = [...parts].sort((a, b) => b.seconds - a.seconds || a.i - b.i).slice(0, 5).filter(part => part.seconds > 0);
  return element("div", {}, table(panelTitle(panel) + ": what the step's length is made of.", ["on the path", "seconds", "of the step", ""], rows),
    element("p", {}, "Longest: ", ...longest.flatMap((part, k) => [k > 0 ? "; " : "",
      jump(view, panel, part.i, "rank " + program.rankOf(part.i) + " " + instructionWords(program, part.i)), " " + timeWords(part.seconds)])));
}

/* A measured timeline under the expected one of its program: where they differ most. */
function differenceTable(view, program) {
  const [expected, measured] = program.timelines, rows = [];
  const panel = view.panels.find(({ timeline }) => timeline === measured);
  for (let i = 0; i < program.count; i++)
    if (program.isCompute(i)) rows.push([Math.abs(measured.seconds(i) - expected.seconds(i)), i]);
  rows.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  return table("Compute whose two times are furthest apart.", ["instruction", expected.title, measured.title, "difference"], rows.slice(0, 15).filter(row => row[0] > 0).map(([, i]) => [
    jump(view, panel, i, "rank " + program.rankOf(i) + " " + instructionWords(program, i)), timeWords(expected.seconds(i)), timeWords(measured.seconds(i)),
    signedPercent(measured.seconds(i) / expected.seconds(i) - 1)]));
}

function makeTables(page, view, summary, box) {
  summary.append(...summaryTable(page, view));
  const grid = element("div", { class: "grid" });
  const differing = page.programs.filter(program => program.timelines.length > 1);
  const counted = page.programs.filter(program => program.flops);
  box.append(idleTable(view), ...(counted.length > 0 ? [section("flops", "Operations", ...counted.map(program => flopsTable(view, program)))] : []), grid);
  const parts = [whatIfTable(view), workTable(view), section("ranks", "Ranks", ...view.panels.map(panel => rankTable(view, panel))),
    section("critical-path", "Critical path", ...view.panels.filter(panel => panel.timeline.critical.length > 0).map(panel => criticalTable(view, panel)))];
  if (differing.length > 0) parts.push(section("differences", "Largest differences", ...differing.map(program => differenceTable(view, program))));
  grid.append(...parts.filter(part => part));
}
