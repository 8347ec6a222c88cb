/* A page that is written anew while its run goes on. Beside it lies a small script with what has happened since, which it
 * loads again and again: that works from a file too, where nothing can be fetched. Plots grow in place; when there is another
 * page, it loads itself, and everything looks as before. */

/* How the page is looked at, kept over its loading itself anew. */
class KeptState {
  constructor(view, search, plots) { Object.assign(this, { view, search, plots }); }
  take() {
    const { view, search, plots } = this, { selected } = view;
    return {
      from: view.from, span: view.span === view.longest ? null : view.span, critical: view.showCritical, theme: document.documentElement.dataset.theme,
      memo: view.memo, query: search ? search.query : "", top: this.anchor().getBoundingClientRect().top, focus: document.activeElement ? document.activeElement.id : "",
      active: view.panels.indexOf(view.active), panels: view.panels.map(({ rank, wanted, scroll }) => ({ rank, wanted, scroll })),
      selected: selected ? { panel: view.panels.findIndex(panel => panel.timeline === selected.timeline), ...nameOf(selected.program, selected.i) } : null,
      step: plots.chosen, looking: plots.looking, values: plots.details.open,
    };
  }
  restore(kept) {
    const { view, search, plots } = this;
    if (search) {
      view.showCritical = !kept.critical;
      toggleCritical(view);
      view.panels.forEach((panel, k) => {
        const had = kept.panels[k];
        if (!had || had.rank >= panel.program.ranks) return;
        Object.assign(panel, { rank: had.rank, wanted: had.wanted });
        panel.resize();
        panel.scrollTo(had.scroll);
      });
      view.active = view.panels[kept.active] || view.active;
      if (kept.span !== null) view.look(kept.from, kept.span);
      document.getElementById("search").value = kept.query;
      if (kept.query !== "") search.run(kept.query);
      const panel = kept.selected ? view.panels[kept.selected.panel] : null, i = panel ? findNamed(panel.program, kept.selected) : -1;
      if (i >= 0) view.select(panel, i);
    }
    plots.chosen = plots.range && kept.step !== null && kept.step < plots.range[1] ? kept.step : null;
    plots.looking = kept.looking;
    plots.details.open = kept.values;
    plots.update();
    const focused = document.getElementById(kept.focus);
    if (focused) focused.focus({ preventScroll: true });
    window.scrollBy(0, this.anchor().getBoundingClientRect().top - kept.top);
  }
  /* What stays where it is on the screen, whatever has grown above it. */
  anchor() { return this.view.active ? this.view.active.canvas : document.getElementById("plots"); }
}

/* The history's entry keeps the state: that works for files as well, and nobody else reads it. */
function keep(state) { history.replaceState({ motetReport: state }, ""); }

function takeKept() {
  const kept = history.state && history.state.motetReport;
  if (kept) history.replaceState(null, "");
  return kept;
}

/* An instruction by what it is: another step's program has the same one elsewhere in its list. */
function nameOf(program, i) {
  const rank = program.rankOf(i), same = { rank, code: program.code[i], stage: program.stageName(program.stage[i]), microbatch: program.microbatch[i] };
  let before = 0;
  for (let at = program.begin[rank]; at < i; at++) if (isNamed(program, at, same)) before++;
  return { ...same, before };
}

function isNamed(program, i, { code, stage, microbatch }) {
  return program.code[i] === code && program.microbatch[i] === microbatch && program.stageName(program.stage[i]) === stage;
}

function findNamed(program, name) {
  if (name.rank >= program.ranks) return -1;
  let left = name.before, found = -1;
  for (let i = program.begin[name.rank]; i < program.begin[name.rank + 1] && left >= 0; i++)
    if (isNamed(program, i, name)) { found = i; left--; }
  return found;
}

class Live {
  constructor(page, plots, state, loadedFor) {
    Object.assign(this, { page, plots, state, loadedFor, held: false, beat: -1, news: null, pressed: false });
    this.history = page.sides[0].history;
    this.words = document.getElementById("live-words");
    this.heard = performance.now();
    document.getElementById("live").hidden = false;
    document.getElementById("hold").addEventListener("click", () => this.hold(!this.held));
    addEventListener("pointerdown", () => { this.pressed = true; });
    for (const name of ["pointerup", "pointercancel"]) addEventListener(name, () => { this.pressed = false; });
    addEventListener("beforeunload", () => keep({ ...this.state.take(), loadedFor: this.loadedFor }));
    window.motetLive = news => this.take(news);
    this.tell();
    this.look();
  }
  hold(held) {
    this.held = held;
    document.getElementById("hold").setAttribute("aria-pressed", String(held));
    this.turn();
    this.tell();
  }
  look() {
    const script = document.createElement("script");
    const next = () => {
      script.remove();
      setTimeout(() => this.look(), 1000 * Math.max(0.2, this.page.live.seconds));
    };
    script.onload = () => { this.tell(); next(); };
    script.onerror = () => { // the file goes after the last page has been written
      if (!this.gone) {
        this.gone = true;
        this.turn();
      }
      this.tell();
      next();
    };
    script.src = encodeURIComponent(this.page.live.file) + "?" + Date.now();
    document.head.append(script);
  }
  take(news) {
    this.gone = false;
    if (news.beat === this.beat) return;
    this.beat = news.beat;
    this.heard = performance.now();
    this.news = news;
    this.grow(news);
    showMessage(news.message);
    this.turn();
  }
  /* The news have everything behind a step and an evaluation. */
  grow({ after, history: more }) {
    const { history } = this, steps = lastAtOrBefore(history.step, after.step) + 1, evaluations = lastAtOrBefore(history.eval_step, after.evaluation) + 1;
    history.planned_steps = more.planned_steps;
    for (const [key, list] of Object.entries(more))
      if (Array.isArray(list)) history[key].splice(/^eval_/.test(key) ? evaluations : steps, Infinity, ...list);
    this.plots.update();
  }
  /* Loads the newer page, unless somebody is just dragging or reading. */
  turn() {
    const wanted = this.gone ? "last" : this.news ? this.news.page : this.page.live.page;
    if (wanted === this.page.live.page || this.held || this.pressed || document.getElementById("help").open) return;
    const key = this.page.live.page + " " + wanted;
    if (this.loadedFor === key) return; // that has been tried, and is not there
    this.loadedFor = key;
    location.reload();
  }
  tell() {
    const { history, words } = this, last = history.step.length - 1, parts = [];
    const at = key => last >= 0 ? history[key][last] : null, add = (text, value) => { if (value !== null && Number.isFinite(value)) parts.push(text(value)); };
    if (last < 0) parts.push("no step is done yet");
    else parts.push("step " + history.step[last] + (history.planned_steps > 0 ? " of " + history.planned_steps : ""));
    add(value => durationWords(value) + " left", remainingSeconds(history));
    add(value => "loss " + plotNumber(value), at("loss"));
    add(value => plotNumber(value) + " tokens/s", at("tokens_per_second"));
    add(value => "step " + plotSeconds(value), at("step_seconds"));
    add(value => "measured against simulated " + signedPercent(value - 1), at("simulated_seconds") ? at("makespan_seconds") / at("simulated_seconds") : null);
    add(value => percentWords(value) + " idle", at("idle_share"));
    const quiet = (performance.now() - this.heard) / 1000;
    if (this.gone || quiet > 3 * Math.max(5, this.page.live.seconds))
      parts.push("no news for " + durationWords(quiet) + ": whoever writes this page has ended, or sleeps");
    else if (this.held && this.news && this.news.page !== this.page.live.page) parts.push("a newer timeline is there");
    const text = "Live: " + parts.join(", ") + ".";
    if (words.textContent !== text) words.textContent = text;
  }
}

function remainingSeconds(history) {
  const done = history.step[history.step.length - 1], recent = history.step_seconds.slice(-10).filter(value => value !== null);
  if (!(history.planned_steps > 0) || done === undefined || recent.length === 0) return null;
  return Math.max(0, history.planned_steps - done) * recent.reduce((sum, value) => sum + value, 0) / recent.length;
}

function durationWords(seconds) {
  const whole = Math.round(seconds);
  if (whole < 60) return whole + " s";
  if (whole < 3600) return Math.floor(whole / 60) + " min " + whole % 60 + " s";
  return Math.floor(whole / 3600) + " h " + Math.floor(whole / 60) % 60 + " min";
}
