/* A rank's lane as a line of inks, one a pixel. Near enough, instructions are drawn one by one; from further away a
 * pyramid of buckets, on its lowest level each with the ink that fills most of it, keeps the work to one look a pixel. */

const NOTHING = 127, DIMMED = 128, BUCKETS = 16384, LEVELS = 7, PYRAMID_FROM = 2048;
const PYRAMID_BYTES = 2 * BUCKETS; // room for all levels of a rank

class Rows {
  constructor(timeline) {
    this.timeline = timeline;
    this.pyramids = new Array(timeline.program.ranks);
    this.matchPyramids = [];
    this.matches = null; // Uint8Array, one an instruction, while a search is on
  }
  setMatches(matches) {
    this.matches = matches;
    this.matchPyramids = new Array(this.timeline.program.ranks);
  }
  bucketTicks() { return this.timeline.ticks / BUCKETS; }

  pyramidOf(rank) {
    if (!this.pyramids[rank]) this.pyramids[rank] = this.build(rank);
    return this.pyramids[rank];
  }
  /* Level k begins at byte 2 * (BUCKETS - (BUCKETS >> k)). */
  build(rank) {
    const { timeline } = this, { program, start, finish, inks } = timeline;
    const pyramid = new Uint8Array(PYRAMID_BYTES).fill(NOTHING), width = this.bucketTicks();
    const sums = new Float64Array(128), touched = [];
    let bucket = 0;
    const close = () => {
      let most = 0, ink = NOTHING;
      for (const of of touched) {
        if (sums[of] > most) { most = sums[of]; ink = of; }
        sums[of] = 0;
      }
      touched.length = 0;
      pyramid[bucket] = ink;
    };
    for (let i = program.begin[rank]; i < program.begin[rank + 1]; i++) {
      if (finish[i] <= start[i]) continue;
      const first = Math.floor(start[i] / width), last = Math.min(BUCKETS - 1, Math.ceil(finish[i] / width) - 1);
      for (let b = first; b <= last; b++) {
        if (b !== bucket) { close(); bucket = b; }
        if (sums[inks[i]] === 0) touched.push(inks[i]);
        sums[inks[i]] += Math.min(finish[i], (b + 1) * width) - Math.max(start[i], b * width);
      }
    }
    close();
    this.buildLevels(pyramid, rank);
    return pyramid;
  }
  /* Two buckets make one: either of them by a coin that is always the same one for its place, so that inks keep their
   * shares from afar, in no pattern of their own, and nothing flickers when the view moves. */
  buildLevels(pyramid, rank) {
    for (let level = 1, from = 0; level < LEVELS; level++) {
      const count = BUCKETS >> level, to = 2 * (BUCKETS - count);
      for (let b = 0; b < count; b++) {
        let coin = Math.imul(b, 0x9e3779b1) ^ Math.imul(rank, 0x7feb352d) ^ Math.imul(level, 0x846ca68b);
        coin = Math.imul(coin ^ coin >>> 16, 0x7feb352d);
        coin = Math.imul(coin ^ coin >>> 15, 0x846ca68b);
        pyramid[to + b] = pyramid[from + 2 * b + (coin >>> 31)];
      }
      from = to;
    }
  }
  matchesOf(rank) {
    if (!this.matchPyramids[rank]) {
      const { program, start, finish } = this.timeline, hits = new Uint8Array(PYRAMID_BYTES), width = this.bucketTicks();
      for (let i = program.begin[rank]; i < program.begin[rank + 1]; i++) {
        if (!this.matches[i]) continue;
        const last = Math.min(BUCKETS - 1, Math.max(Math.floor(start[i] / width), Math.ceil(finish[i] / width) - 1));
        for (let b = Math.floor(start[i] / width); b <= last; b++) hits[b] = 1;
      }
      for (let level = 1, from = 0; level < LEVELS; level++) {
        const count = BUCKETS >> level, to = 2 * (BUCKETS - count);
        for (let b = 0; b < count; b++) hits[to + b] = hits[from + 2 * b] | hits[from + 2 * b + 1];
        from = to;
      }
      this.matchPyramids[rank] = hits;
    }
    return this.matchPyramids[rank];
  }

  /* Fills `line` with the inks of a rank from time `from` on, `step` ticks a pixel. */
  paint(rank, from, step, line) {
    const { program } = this.timeline;
    const many = program.begin[rank + 1] - program.begin[rank] > PYRAMID_FROM;
    if (many && step >= this.bucketTicks()) this.paintFar(rank, from, step, line);
    else this.paintNear(rank, from, step, line);
  }
  paintFar(rank, from, step, line) {
    const pyramid = this.pyramidOf(rank), hits = this.matches ? this.matchesOf(rank) : null;
    const level = Math.min(LEVELS - 1, Math.floor(Math.log2(step / this.bucketTicks())));
    const count = BUCKETS >> level, begin = 2 * (BUCKETS - count), width = this.bucketTicks() * (1 << level);
    let at = (from + step / 2) / width;
    const pace = step / width;
    for (let x = 0; x < line.length; x++, at += pace) {
      const bucket = Math.floor(at);
      if (bucket < 0 || bucket >= count) line[x] = NOTHING;
      else line[x] = pyramid[begin + bucket] | (hits && !hits[begin + bucket] ? DIMMED : 0);
    }
  }
  paintNear(rank, from, step, line) {
    const { program, start, finish, inks } = this.timeline, { matches } = this;
    line.fill(matches ? NOTHING | DIMMED : NOTHING);
    const end = program.begin[rank + 1], until = from + step * line.length;
    for (let i = this.timeline.firstEndingAfter(rank, from); i < end && start[i] < until; i++) {
      if (finish[i] <= start[i]) continue;
      const left = Math.max(0, Math.round((start[i] - from) / step));
      let right = Math.min(line.length, Math.round((finish[i] - from) / step));
      if (right <= left) { // narrower than a pixel: only where nothing is yet
        if (left >= line.length || line[left] % DIMMED !== NOTHING) continue;
        right = left + 1;
      }
      const ink = matches && !matches[i] ? inks[i] | DIMMED : inks[i];
      for (let x = left; x < right; x++) line[x] = ink;
    }
  }
}
