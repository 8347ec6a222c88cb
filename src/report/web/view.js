/* What is looked at: a span of time common to all panels, a chosen instruction; and moving about in it. */

class View {
  constructor(page) {
    this.page = page;
    this.timelines = page.programs.flatMap(program => program.timelines);
    this.longest = Math.max(...this.timelines.map(timeline => timeline.makespan), 1e-300);
    this.from = 0;
    this.span = this.longest;
    this.selected = null; // {program, timeline, i}
    this.showCritical = true;
    this.searchNumber = 0;
    this.frames = [];
    this.panels = [];
    this.listeners = [];
    this.memo = {}; // how tables are sorted and unfolded
  }
  addPanel(timeline, canvas, strip, words) {
    const panel = new Panel(this, timeline, canvas);
    if (strip) panel.memory = new MemoryStrip(panel, strip, words);
    this.panels.push(panel);
    this.active = this.active || panel;
    return panel;
  }
  resize() {
    for (const panel of this.panels) {
      panel.resize();
      if (panel.memory) panel.memory.resize();
    }
    this.refresh();
  }
  setTheme() {
    this.palette = new Palette(this.page);
    this.refresh();
  }
  refresh() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.drawNow(); });
  }
  drawNow() {
    const begin = performance.now();
    for (const panel of this.panels) {
      panel.draw(this.palette);
      if (panel.memory) panel.memory.draw(this.palette);
    }
    this.frames.push(performance.now() - begin);
    if (this.frames.length > 1000) this.frames.shift();
  }
  look(from, span) {
    const tick = Math.min(...this.timelines.map(timeline => timeline.tick));
    this.span = Math.min(this.longest, Math.max(span, 20 * tick));
    this.from = Math.max(0, Math.min(this.longest - this.span, from));
    this.refresh();
  }
  fit() { this.look(0, this.longest); }
  zoom(factor, around = this.from + this.span / 2) {
    const span = Math.min(this.longest, this.span * factor);
    this.look(around - (around - this.from) * (span / this.span), span);
  }
  pan(share) { this.look(this.from + share * this.span, this.span); }

  select(panel, i, { quiet = false } = {}) {
    this.active = panel;
    this.selected = i >= 0 ? { program: panel.program, timeline: panel.timeline, i } : null;
    if (i >= 0)
      for (const other of this.panels)
        if (other.program === panel.program) other.showRank(panel.program.rankOf(i));
    if (!quiet) for (const listener of this.listeners) listener(this.selected);
    this.refresh();
  }
  /* Brings an instruction into view, with something around it. */
  go(panel, i) {
    const { timeline } = panel, start = timeline.startSeconds(i), seconds = timeline.seconds(i);
    const inside = start >= this.from && start + seconds <= this.from + this.span;
    const legible = seconds === 0 || seconds / this.span > 1 / 400;
    if (!inside || !legible) {
      const span = legible && seconds < this.span ? this.span : Math.min(this.longest, Math.max(seconds * 40, this.longest / 1e6));
      this.look(start + seconds / 2 - span / 2, span);
    }
    this.select(panel, i);
  }
  /* Up and down: what the rank above or below does at the same time. */
  moveRank(by) {
    const panel = this.active, { timeline, program } = panel;
    const rank = Math.max(0, Math.min(program.ranks - 1, panel.rank + by));
    const own = this.selected && this.selected.program === program;
    const time = own ? (timeline.start[this.selected.i] + timeline.finish[this.selected.i]) / 2 : (this.from + this.span / 2) / timeline.tick;
    let i = timeline.firstEndingAfter(rank, time);
    if (i >= program.begin[rank + 1]) i = this.lastTimed(rank);
    if (i < program.begin[rank]) { panel.showRank(rank); this.refresh(); return; }
    this.go(panel, i);
  }
  lastTimed(rank) {
    const { timeline, program } = this.active;
    let i = program.begin[rank + 1] - 1;
    while (i >= program.begin[rank] && timeline.finish[i] <= timeline.start[i]) i--;
    return i;
  }
  /* Left and right: the rank's instruction before or behind, of those that take time. */
  moveInstruction(by) {
    const panel = this.active, { timeline, program } = panel, own = this.selected && this.selected.program === program;
    let i = own ? this.selected.i + by : timeline.firstEndingAfter(panel.rank, this.from / timeline.tick);
    const rank = own ? program.rankOf(this.selected.i) : panel.rank;
    while (i >= program.begin[rank] && i < program.begin[rank + 1] && timeline.finish[i] <= timeline.start[i]) i += by;
    if (i >= program.begin[rank] && i < program.begin[rank + 1]) this.go(panel, i);
  }
  moveToEnd(last) {
    const panel = this.active, { timeline, program } = panel, { rank } = panel;
    let i = last ? this.lastTimed(rank) : program.begin[rank];
    while (!last && i < program.begin[rank + 1] && timeline.finish[i] <= timeline.start[i]) i++;
    if (i >= program.begin[rank] && i < program.begin[rank + 1]) this.go(panel, i);
  }
  moveOnCritical(by) {
    const panel = this.active, { critical } = panel.timeline;
    if (critical.length === 0) return;
    const now = this.selected ? this.selected.timeline.start[this.selected.i] : 0, { timeline } = panel;
    let k = this.selected ? critical.indexOf(this.selected.i) : -1;
    if (k < 0) k = critical.findIndex(i => timeline.start[i] >= now) - (by > 0 ? 1 : 0);
    for (k += by; k >= 0 && k < critical.length && timeline.finish[critical[k]] <= timeline.start[critical[k]];) k += by;
    if (k >= 0 && k < critical.length) this.go(panel, critical[k]);
  }
  moveAlongMessage() {
    const { selected } = this;
    if (!selected) return;
    const { program } = selected, { incoming, outgoing } = program.messagesOf(selected.i);
    const waits = program.kind(selected.i) === KIND.WAIT;
    const end = waits ? program.partner[selected.i] : outgoing.length > 0 ? program.partner[outgoing[0]] : incoming.length > 0 ? program.partner[incoming[0]] : -1;
    if (end >= 0) this.go(this.active, this.computeBeside(end));
  }
  /* A post takes no time: show the compute that it belongs to. */
  computeBeside(i) {
    const { program, timeline } = this.active;
    if (timeline.finish[i] > timeline.start[i]) return i;
    const rank = program.rankOf(i), sends = program.kind(i) === KIND.SEND;
    for (let at = i; at >= program.begin[rank] && at < program.begin[rank + 1]; at += sends ? -1 : 1)
      if (program.isCompute(at)) return at;
    return i;
  }
  changePanel() {
    this.active = this.panels[(this.panels.indexOf(this.active) + 1) % this.panels.length];
    this.active.canvas.focus();
  }
}

/* Pointer and wheel on a panel's canvas. */
function listen(view, panel, tip) {
  const { canvas } = panel;
  let drag = null;
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left - 1, y: event.clientY - box.top - 1 };
  };
  canvas.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { ...place(event), from: view.from, scroll: panel.scroll, moved: false };
  });
  canvas.addEventListener("pointermove", event => {
    const { x, y } = place(event);
    if (drag) {
      if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4) drag.moved = true;
      if (drag.moved) {
        tip.hidden = true;
        panel.scrollTo(drag.scroll - (y - drag.y) * panel.scale);
        view.look(drag.from - (x - drag.x) * panel.scale / panel.laneWidth * view.span, view.span);
      }
      return;
    }
    const { i } = panel.find(x, y);
    showTip(tip, i >= 0 ? describe(panel.timeline, i).join("\n") : "", event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerup", event => {
    const { x, y } = place(event), moved = drag && drag.moved;
    drag = null;
    if (moved) return;
    const { rank, i } = panel.find(x, y);
    if (i < 0 && rank >= 0) panel.rank = rank;
    view.select(panel, i);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("focus", () => { view.active = panel; });
  canvas.addEventListener("dblclick", event => view.zoom(0.5, panel.secondsAt(place(event).x * panel.scale)));
  canvas.addEventListener("wheel", event => {
    const step = event.deltaMode === 1 ? 16 : 1;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      view.zoom(Math.exp((event.deltaY + event.deltaX) * step / 300), panel.secondsAt(place(event).x * panel.scale));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan((event.deltaX || event.deltaY) * step * panel.scale / panel.laneWidth);
    } else {
      const before = panel.scroll;
      panel.scrollTo(before + event.deltaY * step * panel.scale);
      if (panel.scroll === before) return; // the page scrolls
      view.refresh();
    }
    event.preventDefault();
  }, { passive: false });
}

function showTip(tip, text, x, y) {
  tip.hidden = text === "";
  if (tip.hidden) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > window.innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
}
