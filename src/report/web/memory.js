/* What the chosen rank holds over time, under its timeline, with the instruction at which it holds most. */

const MEMORY_HEIGHT = 84;

class MemoryStrip {
  constructor(panel, canvas, words) {
    this.panel = panel;
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.words = words;
    this.peaks = this.findPeaks();
  }
  /* Of each rank: {bytes, time in ticks, i}: the first instruction running then that can take memory. */
  findPeaks() {
    const { timeline } = this.panel, { memory, program } = timeline, peaks = [];
    for (let rank = 0; rank < program.ranks; rank++) {
      let bytes = -1, time = 0;
      for (let k = memory.begin[rank]; k < memory.begin[rank + 1]; k++)
        if (memory.bytes[k] > bytes) { bytes = memory.bytes[k]; time = memory.time[k]; }
      peaks.push({ bytes: Math.max(0, bytes), time, i: this.instructionOf(rank, time) });
    }
    return peaks;
  }
  instructionOf(rank, time) {
    const { timeline } = this.panel, { program } = timeline;
    const end = program.begin[rank + 1];
    let i = timeline.firstEndingAfter(rank, time);
    if (i >= end || timeline.start[i] > time) i = Math.max(program.begin[rank], i - 1);
    while (i < end && !program.isCompute(i)) i++;
    return i < end && timeline.start[i] <= time ? i : -1;
  }
  resize() {
    this.canvas.width = this.panel.width;
    this.canvas.height = Math.round(MEMORY_HEIGHT * this.panel.scale);
    this.canvas.style.height = MEMORY_HEIGHT + "px";
  }
  draw(palette) {
    const { panel, context } = this, { timeline, rank, scale } = panel, { memory } = timeline;
    const height = this.canvas.height, foot = 4 * scale, room = height - 18 * scale - foot;
    context.fillStyle = palette.groundColor;
    context.fillRect(0, 0, this.canvas.width, height);
    const peak = this.peaks[rank], most = Math.max(1, peak.bytes);
    const yOf = bytes => height - foot - bytes / most * room;
    context.save();
    context.beginPath();
    context.rect(panel.left, 0, panel.laneWidth, height);
    context.clip();
    const area = this.path(memory, rank, yOf, height - foot);
    context.fillStyle = palette.accent;
    context.globalAlpha = 0.25;
    context.fill(area);
    context.globalAlpha = 1;
    context.strokeStyle = palette.accent;
    context.lineWidth = Math.max(1, scale);
    context.stroke(area);
    const x = panel.xOf(peak.time * timeline.tick);
    context.fillStyle = palette.text;
    context.beginPath();
    context.arc(x, yOf(peak.bytes), 3.5 * scale, 0, 7);
    context.fill();
    context.restore();
    context.font = 11 * scale + "px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.fillStyle = palette.quiet;
    context.fillText(memory.activation ? numberWords(most / memory.activation) : bytesWords(most), panel.left - 8 * scale, yOf(most));
    context.fillText("0", panel.left - 8 * scale, yOf(0) - 2 * scale);
    this.describe(rank, peak);
  }
  /* A staircase; of what falls into one pixel its highest and its last value. */
  path(memory, rank, yOf, floor) {
    const { panel } = this, { timeline } = panel, path = new Path2D();
    const from = panel.view.from / timeline.tick, until = (panel.view.from + panel.view.span) / timeline.tick;
    let low = memory.begin[rank], high = memory.begin[rank + 1];
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (memory.time[middle] < from) low = middle + 1; else high = middle;
    }
    let k = Math.max(memory.begin[rank], low - 1), y = yOf(memory.bytes[k] || 0), pixel = panel.left;
    path.moveTo(panel.left - 2, floor + 2);
    path.lineTo(panel.left - 2, y);
    for (k++; k < end && memory.time[k] <= until; k++) {
      const x = panel.xOf(memory.time[k] * timeline.tick), next = yOf(memory.bytes[k]);
      if (x - pixel >= 0.5) { path.lineTo(x, y); pixel = x; }
      path.lineTo(pixel, next);
      y = next;
    }
    const last = Math.min(panel.width + 2, panel.xOf(timeline.makespan));
    path.lineTo(last, y);
    path.lineTo(last, floor + 2);
    return path;
  }
  describe(rank, peak) {
    const { timeline } = this.panel, { memory, program } = timeline;
    const text = "Rank " + rank + " holds at most " + memoryWords(memory, peak.bytes) + ", at " +
      timeWords(peak.time * timeline.tick, timeline.makespan) + (peak.i >= 0 ? ": " + instructionWords(program, peak.i) : "") + ".";
    if (this.words.textContent !== text) this.words.textContent = text;
  }
}
