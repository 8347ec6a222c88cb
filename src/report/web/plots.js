/* A run's steps as plots: loss, evaluation loss, throughput, step time. The pointer or the arrow keys choose a step, which
 * all plots show; a table says the same in words. */

const PLOT = { width: 460, height: 190, left: 56, right: 10, top: 12, bottom: 22 };
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

/* One number's course: of every run that the page shows, as [steps, values]. */
class Plot {
  constructor(heading, words, series, range) {
    Object.assign(this, { heading, words, series, range });
    const known = series.flatMap(({ values }) => values.filter(value => value !== null));
    this.low = known.reduce((least, value) => Math.min(least, value), Infinity);
    this.high = known.reduce((most, value) => Math.max(most, value), -Infinity);
    this.output = element("output", {}, "");
    this.svg = drawing("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, preserveAspectRatio: "none", tabindex: "0", role: "application",
      "aria-roledescription": "plot", "aria-label": heading + " by step: left and right arrow keys go from step to step" });
    this.draw();
    this.figure = element("figure", {}, element("figcaption", {}, heading), this.svg, this.output);
  }
  x(step) {
    const [from, to] = this.range;
    return PLOT.left + (to > from ? (step - from) / (to - from) : 0.5) * (PLOT.width - PLOT.left - PLOT.right);
  }
  y(value) {
    const share = this.high > this.low ? (this.high - value) / (this.high - this.low) : 0.5;
    return PLOT.top + share * (PLOT.height - PLOT.top - PLOT.bottom);
  }
  draw() {
    const { svg } = this;
    this.series.forEach((series, k) => svg.append(drawing("path", { d: this.path(series), class: k > 0 ? "second" : "first", "vector-effect": "non-scaling-stroke" })));
    const label = (x, y, anchor, text) => svg.append(drawing("text", { x, y, "text-anchor": anchor }, text));
    label(PLOT.left - 6, PLOT.top + 4, "end", this.words(this.high));
    if (this.high > this.low) label(PLOT.left - 6, PLOT.height - PLOT.bottom, "end", this.words(this.low));
    label(PLOT.left, PLOT.height - 6, "start", String(this.range[0]));
    label(PLOT.width - PLOT.right, PLOT.height - 6, "end", "step " + this.range[1]);
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
  /* The series' values at the step, or at the last one before it that has some. */
  show(step) {
    const words = [];
    this.cursor.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(step));
    this.series.forEach(({ name, steps, values }, k) => {
      const i = lastAtOrBefore(steps, step), known = i >= 0 && values[i] !== null;
      this.marks[k].setAttribute("visibility", known ? "visible" : "hidden");
      if (!known) return;
      this.marks[k].setAttribute("cx", this.x(steps[i]));
      this.marks[k].setAttribute("cy", this.y(values[i]));
      words.push((name ? name + ", " : "") + "step " + steps[i] + ": " + this.words(values[i]));
    });
    this.text = words.join("; ") || "step " + step + ": not known";
    this.output.textContent = this.text;
  }
}

function lastAtOrBefore(steps, step) {
  let low = 0, high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function valueTable(runs, plots) {
  const FIRST = 50, box = element("div"), steps = [...new Set(plots.flatMap(plot => plot.series.flatMap(series => series.steps)))].sort((a, b) => b - a);
  const columns = plots.flatMap(plot => plot.series.map(series => ({ name: [plot.heading, series.name].filter(text => text).join(", "), words: plot.words,
    at: new Map(series.steps.map((step, i) => [step, series.values[i]])) })));
  const fill = all => {
    const rows = (all ? steps : steps.slice(0, FIRST)).map(step => [String(step), ...columns.map(({ at, words }) => at.has(step) && at.get(step) !== null ? words(at.get(step)) : "–")]);
    box.replaceChildren(table("Newest first.", ["step", ...columns.map(column => column.name)], rows));
    if (!all && steps.length > FIRST) box.append(element("button", { type: "button", onclick: () => fill(true) }, "All " + steps.length + " steps"));
  };
  const details = element("details", { id: "plot-values" }, element("summary", {}, "Values by step"), box);
  details.addEventListener("toggle", () => { if (details.open && box.childElementCount === 0) fill(false); });
  return details;
}

function makePlots(page, box, tip) {
  const runs = page.sides.filter(side => side.history).map(side => ({ name: side.title, ...side.history }));
  if (runs.length === 0) return;
  const number = value => Math.abs(value) < 0.01 && value !== 0 ? value.toExponential(2) : numberWords(value);
  const seconds = value => timeWords(value), all = runs.flatMap(run => run.step);
  const range = [all.reduce((a, b) => Math.min(a, b)), all.reduce((a, b) => Math.max(a, b))];
  const plots = [["loss", number, "step", "loss"], ["evaluation loss", number, "eval_step", "eval_loss"],
    ["tokens per second", number, "step", "tokens_per_second"], ["step time", seconds, "step", "step_seconds"]]
    .map(([heading, words, at, key]) => [heading, words, runs.map(run => ({ name: runs.length > 1 ? run.name : "", steps: run[at], values: run[key] }))])
    .filter(([, , series]) => series.some(({ values }) => values.some(value => value !== null)))
    .map(([heading, words, series]) => new Plot(heading, words, series, range));
  let chosen = range[1];
  const choose = step => {
    chosen = Math.max(range[0], Math.min(range[1], step));
    for (const plot of plots) plot.show(chosen);
  };
  for (const plot of plots) {
    const steps = [...new Set(plot.series.flatMap(series => series.steps))].sort((a, b) => a - b);
    const keys = { ArrowLeft: () => steps[lastAtOrBefore(steps, chosen - 1)], ArrowRight: () => steps[lastAtOrBefore(steps, chosen) + 1],
      Home: () => steps[0], End: () => steps[steps.length - 1] };
    plot.svg.addEventListener("keydown", event => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      const step = keys[event.key]();
      if (step !== undefined) choose(step);
      event.preventDefault();
    });
    plot.svg.addEventListener("focus", () => choose(chosen));
    plot.svg.addEventListener("pointermove", event => {
      const frame = plot.svg.getBoundingClientRect(), x = (event.clientX - frame.left) / frame.width * PLOT.width;
      const wanted = range[0] + (x - PLOT.left) / (PLOT.width - PLOT.left - PLOT.right) * (range[1] - range[0]);
      const before = lastAtOrBefore(steps, wanted), next = Math.min(steps.length - 1, before + 1);
      choose(before >= 0 && wanted - steps[before] <= steps[next] - wanted ? steps[before] : steps[next]);
      showTip(tip, plot.heading + ", " + plot.text, event.clientX, event.clientY);
    });
    plot.svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  box.append(section("training", "Training", element("div", { class: "plots" }, ...plots.map(plot => plot.figure)), valueTable(runs, plots)));
}
