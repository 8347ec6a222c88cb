/* One timeline's lanes: ranks from top to bottom, time to the right. The lanes are written as pixels (rows.js fills a
 * line of inks a rank), everything else, which is little, is drawn over them. */

const GUTTER = 64, AXIS = 22, TALLEST_ROW = 40, USUAL_ROW = 24, MOST_LANES = 520;

function themeColor(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function pixelOf(rgb) { return 0xff000000 | (rgb & 255) << 16 | (rgb & 0xff00) | rgb >> 16; }

function mixColors(one, other, share) {
  let mixed = 0;
  for (let shift = 0; shift < 24; shift += 8)
    mixed |= Math.round((one >> shift & 255) * (1 - share) + (other >> shift & 255) * share) << shift;
  return mixed;
}

/* Colours of inks as pixels: whole lanes, and lanes without their idle time (for the upper part of a row, so that idle
 * time differs from work by its height too). */
class Palette {
  constructor(page) {
    const dark = document.documentElement.dataset.theme === "dark";
    const { ink } = page, ground = parseInt(themeColor("--ground").slice(1), 16);
    this.ground = ground;
    this.whole = new Uint32Array(256);
    this.work = new Uint32Array(256);
    this.letters = new Array(128);
    this.rgb = new Array(128).fill(ground);
    page.inks.forEach(([, , even, odd, evenLetter, oddLetter], number) => {
      const idle = number >= ink.idle;
      const colors = idle ? [dark ? odd : even, dark ? odd : even] : [even, odd];
      colors.forEach((color, parity) => {
        this.rgb[2 * number + parity] = color;
        this.letters[2 * number + parity] = "#" + (parity ? oddLetter : evenLetter).toString(16).padStart(6, "0");
      });
    });
    for (let code = 0; code < 128; code++) {
      const color = this.rgb[code], work = code < 2 * ink.idle ? color : ground;
      this.whole[code] = pixelOf(color);
      this.work[code] = pixelOf(work);
      this.whole[code | DIMMED] = pixelOf(mixColors(color, ground, 0.85));
      this.work[code | DIMMED] = pixelOf(mixColors(work, ground, 0.85));
    }
    this.line = themeColor("--line");
    this.text = themeColor("--text");
    this.quiet = themeColor("--quiet");
    this.accent = themeColor("--accent");
    this.groundColor = themeColor("--ground");
  }
  css(code) { return "#" + this.rgb[code].toString(16).padStart(6, "0"); }
}

class Panel {
  constructor(view, timeline, canvas) {
    this.view = view;
    this.timeline = timeline;
    this.program = timeline.program;
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.rows = new Rows(timeline);
    this.scroll = 0;    // device pixels of lanes above the upper edge
    this.rowHeight = 0; // device pixels, whole
    this.wanted = Math.max(1, Math.min(USUAL_ROW, Math.floor(MOST_LANES / this.program.ranks)));
    this.rank = 0;
  }
  resize() {
    const scale = window.devicePixelRatio || 1;
    this.scale = scale;
    this.rowHeight = Math.max(1, Math.round(this.wanted * scale));
    const lanes = Math.min(MOST_LANES * scale, this.rowHeight * this.program.ranks);
    this.width = Math.max(GUTTER + 50, Math.round(this.canvas.clientWidth * scale));
    this.left = Math.round(GUTTER * scale);
    this.top = Math.round(AXIS * scale);
    this.height = this.top + Math.ceil(lanes);
    this.canvas.width = this.width;
    this.canvas.height = this.height;
    this.canvas.style.height = this.height / scale + "px";
    this.laneWidth = this.width - this.left;
    this.laneHeight = this.height - this.top;
    this.image = null;
    this.scrollTo(this.scroll);
  }
  scrollTo(scroll) {
    const most = Math.max(0, this.rowHeight * this.program.ranks - this.laneHeight);
    this.scroll = Math.max(0, Math.min(most, Math.round(scroll)));
    this.painted = null;
  }
  makeTaller(factor) {
    const middle = (this.scroll + this.laneHeight / 2) / this.rowHeight;
    this.wanted = Math.max(1, Math.min(TALLEST_ROW, Math.max(this.wanted + Math.sign(factor - 1), Math.round(this.wanted * factor))));
    if (factor < 1) this.wanted = Math.max(1, Math.min(this.wanted, Math.floor(this.rowHeight / this.scale * factor) || 1));
    this.resize();
    this.scrollTo(middle * this.rowHeight - this.laneHeight / 2);
  }
  xOf(seconds) { return this.left + (seconds - this.view.from) / this.view.span * this.laneWidth; }
  yOf(rank) { return this.top + rank * this.rowHeight - this.scroll; }
  secondsAt(x) { return this.view.from + (x - this.left) / this.laneWidth * this.view.span; }
  rankAt(y) {
    const rank = Math.floor((y - this.top + this.scroll) / this.rowHeight);
    return y >= this.top && rank >= 0 && rank < this.program.ranks ? rank : -1;
  }
  /* What lies under a place of the canvas (CSS pixels): {rank, i}, i = -1 for nothing. */
  find(cssX, cssY) {
    const x = cssX * this.scale, y = cssY * this.scale, rank = this.rankAt(y);
    if (rank < 0 || x < this.left) return { rank, i: -1 };
    const { timeline } = this, time = this.secondsAt(x) / timeline.tick;
    let i = timeline.at(rank, time);
    if (i < 0) { // a pixel beside a narrow one counts too
      const near = 1.5 * this.view.span / this.laneWidth / timeline.tick, next = timeline.firstEndingAfter(rank, time - near);
      if (next < this.program.begin[rank + 1] && timeline.start[next] <= time + near) i = next;
    }
    return { rank, i };
  }
  showRank(rank) {
    this.rank = rank;
    const y = rank * this.rowHeight;
    if (y < this.scroll) this.scrollTo(y);
    else if (y + this.rowHeight > this.scroll + this.laneHeight) this.scrollTo(y + this.rowHeight - this.laneHeight);
  }

  draw(palette) {
    this.paintLanes(palette);
    const { context } = this;
    context.putImageData(this.image, this.left, this.top);
    this.drawAxis(palette);
    this.drawGutter(palette);
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.laneWidth, this.laneHeight);
    context.clip();
    this.drawLabels(palette);
    if (this.view.showCritical) this.drawCritical(palette);
    this.drawSelection(palette);
    context.restore();
  }
  paintLanes(palette) {
    const key = [this.view.from, this.view.span, this.scroll, this.rowHeight, this.rows.matches !== null && this.view.searchNumber];
    if (this.painted && this.image && this.painted.palette === palette && key.every((value, k) => value === this.painted.key[k])) return;
    if (!this.image) {
      this.image = this.context.createImageData(this.laneWidth, this.laneHeight);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.line = new Uint8Array(this.laneWidth);
    }
    this.painted = { key, palette };
    const { pixels, line, laneWidth, rowHeight } = this, ground = pixelOf(palette.ground);
    const from = this.view.from / this.timeline.tick, step = this.view.span / this.laneWidth / this.timeline.tick;
    const whole = new Uint32Array(laneWidth), work = new Uint32Array(laneWidth);
    const gap = rowHeight >= 6 ? Math.max(1, Math.round(rowHeight / 12)) : 0;
    const upper = rowHeight >= 6 ? Math.round(rowHeight * 0.4) : 0;
    let used = 0;
    for (let rank = Math.floor(this.scroll / rowHeight); rank < this.program.ranks; rank++) {
      const y = rank * rowHeight - this.scroll;
      if (y >= this.laneHeight) break;
      this.rows.paint(rank, from, step, line);
      for (let x = 0; x < laneWidth; x++) {
        whole[x] = palette.whole[line[x]];
        work[x] = palette.work[line[x]];
      }
      for (let k = Math.max(0, -y); k < rowHeight && y + k < this.laneHeight; k++) {
        const place = (y + k) * laneWidth;
        if (k >= rowHeight - gap) pixels.fill(ground, place, place + laneWidth);
        else pixels.set(k < upper ? work : whole, place);
      }
      used = Math.min(this.laneHeight, y + rowHeight);
    }
    pixels.fill(ground, used * laneWidth);
  }
  drawAxis(palette) {
    const { context, scale } = this, { from, span } = this.view;
    context.fillStyle = palette.groundColor;
    context.fillRect(0, 0, this.width, this.top);
    const unit = timeUnit(this.view.longest), rough = span / Math.max(2, this.laneWidth / scale / 110) * unit.perSecond;
    const power = 10 ** Math.floor(Math.log10(rough)), pace = [1, 2, 5, 10].find(n => n * power >= rough) * power / unit.perSecond;
    context.font = 11 * scale + "px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (let n = Math.ceil(from / pace); n * pace <= from + span; n++) {
      const x = Math.round(this.xOf(n * pace));
      context.fillStyle = palette.line;
      context.fillRect(x, this.top - 5 * scale, Math.max(1, scale), 5 * scale);
      context.fillStyle = palette.quiet;
      const text = numberWords(n * pace * unit.perSecond, 8) + " " + unit.name;
      if (x + 4 * scale + context.measureText(text).width < this.width) context.fillText(text, x + 4 * scale, this.top / 2);
    }
  }
  drawGutter(palette) {
    const { context, scale } = this;
    context.fillStyle = palette.groundColor;
    context.fillRect(0, this.top, this.left, this.laneHeight);
    context.font = 11 * scale + "px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = Math.ceil(13 * scale / this.rowHeight), first = Math.floor(this.scroll / this.rowHeight);
    for (let rank = first; rank < this.program.ranks; rank++) {
      const y = this.yOf(rank);
      if (y >= this.height) break;
      if (rank % every !== 0 && rank !== this.rank) continue;
      const chosen = rank === this.rank;
      context.fillStyle = chosen ? palette.accent : palette.quiet;
      context.fillText((every > 1 && !chosen ? "" : "rank ") + rank, this.left - 8 * scale, y + this.rowHeight / 2);
      if (chosen) context.fillRect(this.left - 4 * scale, y, 3 * scale, Math.max(2, this.rowHeight));
    }
  }
  /* Letters and microbatch numbers, where there is room. */
  drawLabels(palette) {
    const { context, scale, timeline, program } = this;
    if (this.rowHeight < 13 * scale) return;
    context.font = 11 * scale + "px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "center";
    const from = this.view.from / timeline.tick, until = from + this.view.span / timeline.tick;
    const room = 15 * scale, narrowest = room / this.laneWidth * this.view.span / timeline.tick;
    for (let rank = Math.floor(this.scroll / this.rowHeight); rank < program.ranks && this.yOf(rank) < this.height; rank++) {
      const y = this.yOf(rank) + this.rowHeight * 0.47, end = program.begin[rank + 1];
      const first = timeline.firstEndingAfter(rank, from);
      if (this.tooManyToLabel(first, end, until, narrowest)) continue;
      for (let i = first; i < end && timeline.start[i] < until; i++) {
        if (timeline.finish[i] - timeline.start[i] < narrowest || !program.isCompute(i)) continue;
        if (this.rows.matches && !this.rows.matches[i]) continue;
        const left = Math.max(this.left, this.xOf(timeline.startSeconds(i)));
        const width = Math.min(this.width, this.xOf(timeline.finishSeconds(i))) - left;
        if (width < room) continue;
        const letter = this.view.page.inks[timeline.inks[i] >> 1][1], number = program.microbatch[i];
        context.fillStyle = palette.letters[timeline.inks[i]];
        context.fillText(number < 0 ? letter : width > 34 * scale ? letter + number : String(number), left + width / 2, y);
      }
    }
  }
  /* Where the instructions in view are mostly too narrow for a label, looking at each would cost more than it shows. */
  tooManyToLabel(first, end, until, narrowest) {
    const probe = first + 8000;
    return probe < end && this.timeline.start[probe] < until && narrowest > 0;
  }
  drawCritical(palette) {
    const { context, timeline, scale } = this, { critical } = timeline;
    const until = this.view.from + this.view.span, strip = Math.max(1, Math.min(3 * scale, Math.round(this.rowHeight / 5)));
    let low = 0, high = critical.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (timeline.finishSeconds(critical[middle]) < this.view.from) low = middle + 1; else high = middle;
    }
    const lines = new Path2D(), strips = new Path2D();
    let lastX = -1e9, lastY = -1e9;
    for (let k = Math.max(0, low - 1); k < critical.length; k++) {
      const i = critical[k];
      if (timeline.startSeconds(i) > until) break;
      const y = this.yOf(this.program.rankOf(i)) + this.rowHeight - strip, x1 = this.xOf(timeline.finishSeconds(i));
      const waits = !this.program.isCompute(i); // of a wait only its end belongs to the path
      const x0 = waits && k > 0 ? Math.min(x1, Math.max(lastX, this.xOf(timeline.startSeconds(i)))) : this.xOf(timeline.startSeconds(i));
      if (x1 - lastX < 0.5 && Math.abs(y - lastY) < 1) continue;
      if (lastX > -1e9 && y !== lastY) {
        lines.moveTo(lastX, lastY + strip / 2);
        lines.lineTo(Math.max(x0, lastX), y + strip / 2);
      }
      strips.rect(x0, y, Math.max(1, x1 - x0), strip);
      lastX = x1;
      lastY = y;
    }
    context.strokeStyle = context.fillStyle = palette.text;
    context.lineWidth = Math.max(1, scale);
    context.stroke(lines);
    context.fill(strips);
  }
  drawSelection(palette) {
    const { selected } = this.view;
    if (!selected || selected.program !== this.program) return;
    const { context, scale, timeline } = this, { i } = selected, rank = this.program.rankOf(i);
    const x = this.xOf(timeline.startSeconds(i)), width = Math.max(2 * scale, this.xOf(timeline.finishSeconds(i)) - x), y = this.yOf(rank);
    context.lineWidth = 2 * scale;
    context.strokeStyle = palette.groundColor;
    context.strokeRect(x - 2 * scale, y - 1 * scale, width + 4 * scale, this.rowHeight + 1 * scale);
    context.strokeStyle = palette.text;
    context.strokeRect(x, y + scale, width, Math.max(2, this.rowHeight - 2 * scale));
    const { incoming, outgoing } = this.program.messagesOf(i);
    for (const wait of incoming) this.drawArrow(palette, this.program.partner[wait], wait);
    for (const send of outgoing) this.drawArrow(palette, send, this.program.partner[send]);
  }
  drawArrow(palette, send, wait) {
    const { context, timeline, scale } = this, half = this.rowHeight / 2;
    const x0 = this.xOf(timeline.startSeconds(send)), y0 = this.yOf(this.program.rankOf(send)) + half;
    const x1 = this.xOf(timeline.finishSeconds(wait)), y1 = this.yOf(this.program.rankOf(wait)) + half;
    const bend = Math.max(6 * scale, (x1 - x0) / 2), head = 6 * scale;
    const path = new Path2D();
    path.moveTo(x0, y0);
    path.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    path.moveTo(x1 - head, y1 - head * 0.6);
    path.lineTo(x1, y1);
    path.lineTo(x1 - head, y1 + head * 0.6);
    context.strokeStyle = palette.groundColor;
    context.lineWidth = 4.5 * scale;
    context.stroke(path);
    context.strokeStyle = palette.accent;
    context.lineWidth = 2 * scale;
    context.stroke(path);
  }
}
