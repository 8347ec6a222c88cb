/* A run's steps as plots: loss, throughput, measured against simulated and more. The pointer or the arrow keys choose a
 * step, which all plots show; a table says the same in words. While a run goes on, they grow. */

const FEW = 30, PLOT = { least: 200, height: 190, left: 56, right: 10, top: 12, bottom: 22 };
const SVG = (() => { // the page holds no address, not even this name
  const template = document.createElement("template");
  template.innerHTML = "<svg></svg>";
  return template.content.firstChild.namespaceURI;
})();

function drawing(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}


const plotNumber = value => Math.abs(value) < 0.01 && value !== 0 ? value.toExponential(2) : numberWords(value);
const plotSeconds = value => timeWords(value);

/* What is plotted: heading, words for a value, and the lists of a history's values, by name where there are several. */
const plotTable = [
  ["loss", plotNumber, [["", "loss"]]],
  ["evaluation loss", plotNumber, [["", "eval_loss", "eval_step"]]],
  ["tokens per second", plotNumber, [["", "tokens_per_second"]]],
  ["step time", plotSeconds, [["", "step_seconds"]]],
  ["makespan", plotSeconds, [["measured", "makespan_seconds"], ["simulated", "simulated_seconds"]]],
  ["idle", percentWords, [["", "idle_share"]]],
  ["model FLOPs utilization", percentWords, [["", "mfu"]]],
  ["gradient norm", plotNumber, [["", "gradient_norm"]]],
];

/* One number's course: of every run that the page shows, as [steps, values]. */
class Plot {
  constructor(heading, words) {
    Object.assign(this, { heading, words });
    this.output = element("output", { "aria-live": "off" }, ""); // announced while the plot has the focus
    this.svg = drawing("svg", { tabindex: "0", role: "application",
      "aria-roledescription": "plot", "aria-label": heading + " by step: left and right arrow keys go from step to step" });
    this.caption = element("figcaption", {}, heading);
    this.figure = element("figure", {}, this.caption, this.svg, this.output);
    this.svg.addEventListener("focus", () => this.output.setAttribute("aria-live", "polite"));
    this.svg.addEventListener("blur", () => this.output.setAttribute("aria-live", "off"));
  }
  get known() { return this.high >= this.low; }
  update(series, range) {
    Object.assign(this, { series, range, low: Infinity, high: -Infinity });
    for (const { values } of series)
      for (const value of values) {
        if (value === null) continue;
        this.low = Math.min(this.low, value);
        this.high = Math.max(this.high, value);
      }
    this.steps = [...new Set(series.flatMap(({ steps }) => steps))].sort((a, b) => a - b);
    this.caption.replaceChildren(this.heading, ...(series.length > 1 ? series.map(({ name }, k) => element("span", {}, plotKey(k), name)) : []));
  }
  x(step) {
    const [from, to] = this.range;
    return PLOT.left + (to > from ? (step - from) / (to - from) : 0.5) * (this.width - PLOT.left - PLOT.right);
  }
  y(value) {
    const share = this.high > this.low ? (this.high - value) / (this.high - this.low) : 0.5;
    return PLOT.top + share * (PLOT.height - PLOT.top - PLOT.bottom);
  }
  draw() {
    const { svg } = this;
    this.width = Math.max(PLOT.least, svg.clientWidth);
    svg.setAttribute("viewBox", `0 0 ${this.width} ${PLOT.height}`);
    svg.replaceChildren();
    this.series.forEach((series, k) => {
      svg.append(drawing("path", { d: this.path(series), class: "series-" + k }));
      if (series.steps.length > FEW) return; // few values are marked: a line needs two
      series.values.forEach((value, i) => { if (value !== null) svg.append(drawing("circle", { cx: this.x(series.steps[i]), cy: this.y(value), r: 2, class: "series-" + k })); });
    });
    const label = (x, y, anchor, text) => svg.append(drawing("text", { x, y, "text-anchor": anchor }, text));
    label(PLOT.left - 6, PLOT.top + 4, "end", this.words(this.high));
    if (this.high > this.low) label(PLOT.left - 6, PLOT.height - PLOT.bottom, "end", this.words(this.low));
    label(PLOT.left, PLOT.height - 6, "start", String(this.range[0]));
    label(this.width - PLOT.right, PLOT.height - 6, "end", "step " + this.range[1]);
    this.cursor = drawing("line", { class: "cursor", y1: PLOT.top, y2: PLOT.height - PLOT.bottom, visibility: "hidden" });
    this.marks = this.series.map(() => drawing("circle", { r: 3, visibility: "hidden" }));
    svg.append(this.cursor, ...this.marks);
  }
  /* Of the steps that fall into one column the least and the largest value are kept, so that no peak is lost. */
  path({ steps, values }) {
    let path = "", down = false, column = -1, least = 0, most = 0;
    const close = () => { if (column >= 0 && most > least) path += "V" + this.y(most).toFixed(1) + "V" + this.y(least).toFixed(1); };
    for (let i = 0; i < steps.length; i++) {
      const value = values[i];
      if (value === null) { close(); down = false; column = -1; continue; }
      const x = this.x(steps[i]), at = Math.floor(x * 2);
      if (down && at === column) { least = Math.min(least, value); most = Math.max(most, value); continue; }
      close();
      path += (down ? "L" : "M") + x.toFixed(1) + " " + this.y(value).toFixed(1) + (down ? "" : "h0.1");
      [column, least, most, down] = [at, value, value, true];
    }
    close();
    return path;
  }
  /* The series' values at the step, or at the last one before it that has some; of measured against simulated how far they
   * are apart, too. */
  show(step) {
    const words = [], shown = [];
    this.cursor.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(step));
    this.series.forEach(({ name, steps, values }, k) => {
      const i = lastAtOrBefore(steps, step), known = i >= 0 && values[i] !== null;
      this.marks[k].setAttribute("visibility", known ? "visible" : "hidden");
      if (!known) return;
      this.marks[k].setAttribute("cx", this.x(steps[i]));
      this.marks[k].setAttribute("cy", this.y(values[i]));
      words.push((name ? name + ", " : "") + "step " + steps[i] + ": " + this.words(values[i]));
      shown.push({ name, step: steps[i], value: values[i] });
    });
    if (shown.length === 2 && shown[0].step === shown[1].step && /measured$/.test(shown[0].name) && /simulated$/.test(shown[1].name))
      words.push("measured against simulated " + signedPercent(shown[0].value / shown[1].value - 1));
    this.text = words.join("; ") || "step " + step + ": not known";
    if (this.output.textContent !== this.text) this.output.textContent = this.text;
  }
}

/* A piece of a series' line. */
function plotKey(k) {
  const key = drawing("svg", { class: "key", viewBox: "0 0 28 10", "aria-hidden": "true" });
  key.append(drawing("path", { d: "M0 5H28", class: "series-" + k }));
  return key;
}

function lastAtOrBefore(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function valueTable(plots, box, all) {
  const FIRST = 50, steps = [...new Set(plots.flatMap(plot => plot.steps))].sort((a, b) => b - a);
  const columns = plots.flatMap(plot => plot.series.map(series => ({ name: [plot.heading, series.name].filter(text => text).join(", "), words: plot.words,
    at: new Map(series.steps.map((step, i) => [step, series.values[i]])) })));
  const rows = (all ? steps : steps.slice(0, FIRST)).map(step => [String(step), ...columns.map(({ at, words }) => at.has(step) && at.get(step) !== null ? words(at.get(step)) : "–")]);
  box.replaceChildren(table("Newest first.", ["step", ...columns.map(column => column.name)], rows));
  if (!all && steps.length > FIRST) box.append(element("button", { type: "button", onclick: () => valueTable(plots, box, true) }, "All " + steps.length + " steps"));
}

/* The plots of a page's runs. `chosen` is the step that they show, null for the newest. */
class Plots {
  constructor(page, box, tip) {
    this.runs = page.sides.filter(side => side.history).map(side => ({ name: side.title, history: side.history }));
    this.tip = tip;
    this.chosen = null;
    this.plots = plotTable.map(([heading, words]) => this.listen(new Plot(heading, words)));
    this.grid = element("div", { class: "plots" });
    this.values = element("div");
    this.details = element("details", { id: "plot-values" }, element("summary", {}, "Values by step"), this.values);
    this.details.addEventListener("toggle", () => { if (this.details.open) valueTable(this.shown, this.values, false); });
    this.section = section("training", "Training", this.grid, this.details);
    this.box = box;
    this.update();
    new ResizeObserver(() => this.draw()).observe(this.grid);
  }
  /* Draws the same anew where plots have another width. */
  draw() {
    const other = (this.shown || []).filter(plot => plot.svg.clientWidth > 0 && Math.max(PLOT.least, plot.svg.clientWidth) !== plot.width);
    for (const plot of other) plot.draw();
    if (other.length > 0 && (this.chosen !== null || this.looking)) this.show();
  }
  /* Draws what the runs' histories say now. */
  update() {
    const { runs } = this, all = runs.flatMap(({ history }) => history.step);
    if (all.length === 0) return;
    if (!this.section.isConnected) this.box.append(this.section);
    this.range = [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
    plotTable.forEach(([, , lists], k) => this.plots[k].update(runs.flatMap(({ name, history }) => lists.map(([list, key, at]) => (
      { name: [runs.length > 1 ? name : "", list].filter(text => text).join(", "), steps: history[at || "step"], values: history[key] }))), this.range));
    const shown = this.plots.filter(plot => plot.known);
    if (!this.shown || shown.length !== this.shown.length) this.grid.replaceChildren(...shown.map(plot => plot.figure));
    this.shown = shown;
    for (const plot of shown) plot.draw();
    if (this.details.open) valueTable(shown, this.values, false);
    if (this.chosen !== null || this.looking) this.show();
  }
  show() {
    const step = this.chosen === null ? this.range[1] : this.chosen;
    for (const plot of this.shown) plot.show(step);
  }
  choose(step) {
    const [from, to] = this.range;
    this.chosen = step >= to ? null : Math.max(from, step);
    this.looking = true; // somebody has looked: from now on there is a cursor
    this.show();
  }
  get step() { return this.chosen === null ? this.range[1] : this.chosen; }
  listen(plot) {
    plot.svg.addEventListener("keydown", event => {
      const { steps } = plot, keys = { ArrowLeft: () => steps[lastAtOrBefore(steps, this.step - 1)], ArrowRight: () => steps[lastAtOrBefore(steps, this.step) + 1],
        Home: () => steps[0], End: () => steps[steps.length - 1] };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = keys[event.key]();
      if (step !== undefined) this.choose(step);
      event.preventDefault();
    });
    plot.svg.addEventListener("focus", () => this.choose(this.step));
    plot.svg.addEventListener("pointermove", event => {
      const { steps } = plot, frame = plot.svg.getBoundingClientRect(), x = (event.clientX - frame.left) / frame.width * plot.width;
      const wanted = this.range[0] + (x - PLOT.left) / (plot.width - PLOT.left - PLOT.right) * (this.range[1] - this.range[0]);
      const before = lastAtOrBefore(steps, wanted), next = Math.min(steps.length - 1, before + 1);
      this.choose(before >= 0 && wanted - steps[before] <= steps[next] - wanted ? steps[before] : steps[next]);
      showTip(this.tip, plot.heading + ", " + plot.text, event.clientX, event.clientY);
    });
    plot.svg.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    return plot;
  }
}
