/* Puts the page together. */

const keyTable = [
  ["← →", "the rank's instruction before or behind"], ["↑ ↓", "the rank above or below, at the same time"],
  ["Home End", "the rank's first or last instruction"], ["a d, Shift+← →", "earlier, later"], ["w s, + −", "zoom in, out"],
  ["f, 0", "the whole step"], ["Enter", "zoom to the instruction"], ["[ ]", "lower, taller rows"], ["c", "critical path on or off"],
  ["g, Shift+g", "next, previous instruction on the critical path"], ["m", "along the message, to its other end"],
  ["k", "where the rank's memory peaks"], ["/", "search"], ["n p", "next, previous match"], ["t", "the other timeline"],
  ["Escape", "choose nothing"], ["?", "this list"],
];

function setTheme(view, theme) {
  document.documentElement.dataset.theme = theme;
  view.setTheme();
  makeLegend(view);
}

function makeLegend(view) {
  const { page, palette } = view, { ink } = page, used = new Set(), legend = document.getElementById("legend");
  const regionOf = new Map();
  for (const { timeline, program } of view.panels) {
    for (let i = 0; i < program.count; i++) if (timeline.finish[i] > timeline.start[i]) used.add(timeline.inks[i] >> 1);
    for (const region of program.regions) {
      const names = regionOf.get(region.set) || new Set();
      regionOf.set(region.set, names.add(region.name));
    }
  }
  legend.replaceChildren(...[...used].sort((a, b) => a - b).map(number => {
    const mark = element("i", { class: number >= ink.idle ? "idle" : "work" });
    mark.style.background = palette.css(2 * number);
    const names = number < ink.optimizer ? [...(regionOf.get(Math.floor(number / ink.kinds)) || [])].join(" or ") + " " : number >= ink.idle ? "idle: " : "";
    const letter = number < ink.idle ? " (" + page.inks[number][1] + ")" : "";
    return element("span", {}, mark, names + (number === ink.unknown ? "no cause known" : page.inks[number][0]) + letter);
  }));
}

function showDetail(view, selected) {
  const box = document.getElementById("detail");
  if (!selected) {
    box.replaceChildren(element("p", {}, "Choose an instruction: click it, or move to it with the arrow keys. ? lists all keys."));
    return;
  }
  const { program, i } = selected, panel = view.active, lines = [];
  describe(selected.timeline, i).forEach((line, k) => lines.push(element("p", {}, k === 0 ? element("strong", {}, line) : line)));
  for (const other of view.panels)
    if (other !== panel && other.program === program)
      lines.push(element("p", {}, other.timeline.title + ": " + timeWords(other.timeline.seconds(i)) + ", from " +
        timeWords(other.timeline.startSeconds(i), other.timeline.makespan, 6) + " (" + panel.timeline.title + " against it: " +
        signedPercent(selected.timeline.seconds(i) / other.timeline.seconds(i) - 1) + ")"));
  if (program.stage[i] >= 0) lines.push(element("p", {}, stageWords(program, program.stage[i])));
  const { incoming, outgoing } = program.messagesOf(i), links = [];
  for (const wait of incoming) links.push(jump(view, panel, view.computeBeside(program.partner[wait]), "from rank " + program.rankOf(program.partner[wait])));
  for (const send of outgoing) links.push(jump(view, panel, view.computeBeside(program.partner[send]), "to rank " + program.rankOf(program.partner[send])));
  if (links.length > 0) lines.push(element("p", {}, "Messages: ", ...links.flatMap((link, k) => k > 0 ? [", ", link] : [link])));
  box.replaceChildren(...lines);
}

function stageWords(program, stage) {
  const { region, begin, end } = program.stages[stage];
  const modules = program.modules.filter(module => module.layers[0] < end && module.layers[1] > begin).map(module => module.name);
  const layers = end - begin === 1 ? "layer " + begin : end > begin ? "layers " + begin + " to " + (end - 1) : "no layers";
  return "Stage " + stage + ", " + program.stageName(stage) + ": " + layers + (modules.length > 0 ? " of " + modules.join(", ") : "") +
    (program.regions[region].skeleton ? "; region " + program.regions[region].name + " runs " + program.regions[region].skeleton : "");
}

function makePanels(page, view, box) {
  const panels = [];
  for (const program of page.programs)
    for (const timeline of program.timelines) {
      const id = "panel-" + panels.length, title = element("h3", { id: id + "-title" });
      const canvas = element("canvas", { class: "lanes", id, tabindex: "0", role: "application", "aria-labelledby": id + "-title",
        "aria-describedby": "detail", "aria-roledescription": "timeline" });
      const strip = timeline.memory ? element("canvas", { class: "memory", id: id + "-memory", role: "img", "aria-describedby": id + "-memory-words" }) : null;
      const words = element("p", { class: "memory-words", id: id + "-memory-words" });
      if (strip) strip.setAttribute("aria-label", "Memory of the chosen rank over time");
      box.append(element("div", { class: "panel" }, title, canvas, ...(strip ? [strip, words] : [])));
      panels.push([timeline, canvas, strip, words, title]);
    }
  for (const [timeline, canvas, strip, words, title] of panels) {
    const panel = view.addPanel(timeline, canvas, strip, words);
    const { program } = panel;
    title.append(panelTitle(panel) || "Step", element("span", {}, timeWords(timeline.makespan, timeline.makespan, 6) + ", " + rankWords(program.ranks) + ", " +
      percentWords(timeline.idleShare) + " idle"));
    listen(view, panel, document.getElementById("tip"));
  }
}

function makeKeys(view, search, input) {
  const actions = {
    ArrowLeft: () => view.moveInstruction(-1), ArrowRight: () => view.moveInstruction(1), ArrowUp: () => view.moveRank(-1), ArrowDown: () => view.moveRank(1),
    PageUp: () => view.moveRank(-10), PageDown: () => view.moveRank(10), Home: () => view.moveToEnd(false), End: () => view.moveToEnd(true),
    a: () => view.pan(-0.25), d: () => view.pan(0.25), w: () => view.zoom(0.7), "+": () => view.zoom(0.7), "=": () => view.zoom(0.7),
    s: () => view.zoom(1 / 0.7), "-": () => view.zoom(1 / 0.7), f: () => view.fit(), 0: () => view.fit(), c: () => toggleCritical(view),
    g: () => view.moveOnCritical(1), G: () => view.moveOnCritical(-1), m: () => view.moveAlongMessage(), n: () => search.step(1), p: () => search.step(-1),
    t: () => view.changePanel(), "[": () => view.active.makeTaller(1 / 1.4), "]": () => view.active.makeTaller(1.4), "/": () => input.focus(),
    "?": () => document.getElementById("help").showModal(), Escape: () => view.select(view.active, -1),
    Enter: () => {
      if (!view.selected) return;
      const { timeline, i } = view.selected, seconds = Math.max(timeline.seconds(i), view.longest / 1e5);
      view.look(timeline.startSeconds(i) - seconds, 3 * seconds);
    },
    k: () => {
      const { memory, rank } = view.active;
      if (memory && memory.peaks[rank].i >= 0) view.go(view.active, memory.peaks[rank].i);
    },
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
    if (event.target === input) {
      if (event.key === "Escape") { input.value = ""; search.run(""); view.active.canvas.focus(); event.preventDefault(); }
      return;
    }
    const own = event.target.classList && event.target.classList.contains("lanes"); // the rest of the page keeps its own keys
    if (!own && (/^(Arrow|Page|Home|End|Enter)/.test(event.key) || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName))) return;
    if (own && event.shiftKey && /^Arrow(Left|Right)$/.test(event.key)) view.pan(event.key === "ArrowLeft" ? -0.25 : 0.25);
    else if (actions[event.key]) actions[event.key]();
    else return;
    document.getElementById("tip").hidden = true;
    view.refresh();
    event.preventDefault();
  });
  document.getElementById("keys").append(...keyTable.map(([keys, what]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)),
    cell(what, { class: "words" }))));
}

function toggleCritical(view) {
  view.showCritical = !view.showCritical;
  document.getElementById("critical").setAttribute("aria-pressed", String(view.showCritical));
  view.refresh();
}

function makeBar(view, search, input) {
  const on = (id, act) => document.getElementById(id).addEventListener("click", act);
  on("zoom-in", () => view.zoom(0.6));
  on("zoom-out", () => view.zoom(1 / 0.6));
  on("fit", () => view.fit());
  on("critical", () => toggleCritical(view));
  on("help-button", () => document.getElementById("help").showModal());
  on("search-previous", () => search.step(-1));
  document.getElementById("search-form").addEventListener("submit", event => {
    event.preventDefault();
    if (input.value.trim() !== search.query) search.run(input.value);
    search.step(1);
  });
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => search.run(input.value), 150);
  });
}

/* Timelines and everything that is about them; a run that has none yet does without. */
function makeTimelines(page, view) {
  const input = document.getElementById("search"), search = new Search(view, document.getElementById("search-result"));
  makePanels(page, view, document.getElementById("panels"));
  view.resize();
  makeTables(page, view, document.getElementById("summary"), document.getElementById("tables"));
  makeBar(view, search, input);
  makeKeys(view, search, input);
  view.listeners.push(selected => showDetail(view, selected));
  showDetail(view, null);
  new ResizeObserver(() => view.resize()).observe(document.getElementById("panels"));
  return search;
}

function showMessage(text) {
  const message = document.getElementById("message");
  if (message.textContent !== text) message.textContent = text;
  message.hidden = text === "";
}

async function start() {
  const page = await readPage(), view = new View(page), timed = page.programs.length > 0;
  const kept = takeKept();
  document.documentElement.dataset.theme = kept && kept.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  if (kept) view.memo = kept.memo;
  showMessage(page.message);
  document.getElementById("main").hidden = false;
  for (const id of ["timeline-section", "summary-section"]) document.getElementById(id).hidden = !timed;
  const search = timed ? makeTimelines(page, view) : null;
  view.setTheme();
  makeLegend(view);
  const plots = new Plots(page, document.getElementById("plots"), document.getElementById("tip"));
  document.getElementById("theme").addEventListener("click", () => setTheme(view, document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
  const state = new KeptState(view, search, plots);
  if (kept) state.restore(kept);
  history.scrollRestoration = page.live ? "manual" : "auto";
  const live = page.live ? new Live(page, plots, state, kept ? kept.loadedFor : "") : null;
  document.getElementById("loading").remove();
  window.motetReport = { page, view, search, plots, state, live, setTheme: theme => setTheme(view, theme) };
}

setTimeout(() => { // after the first paint, so that a large report says that it is reading
  start().catch(error => {
    document.getElementById("loading").textContent = "This report cannot be shown: " + error.message;
    throw error;
  });
}, 0);
