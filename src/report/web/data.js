/* The page's data: a JSON document, and columns of whole numbers, compressed, as base64 text in elements of their own
 * (docs/report.md). Everything is decoded once into typed arrays; instructions are numbered over all ranks. */

const CODE_KIND = 31, CODE_RECV = 32, CODE_JOINED = 32, CODE_NEXT = 64, CODE_GRADIENT = 128;

const base64Values = (() => {
  const values = new Uint8Array(128);
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (let i = 0; i < 64; i++) values[digits.charCodeAt(i)] = i;
  return values;
})();

function base64Bytes(text) {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array(text.length / 4 * 3 - padding);
  for (let i = 0, at = 0; i < text.length; i += 4) {
    const group = base64Values[text.charCodeAt(i)] << 18 | base64Values[text.charCodeAt(i + 1)] << 12 |
      base64Values[text.charCodeAt(i + 2)] << 6 | base64Values[text.charCodeAt(i + 3)];
    bytes[at++] = group >> 16; // writes beyond the end of a typed array do nothing
    bytes[at++] = group >> 8;
    bytes[at++] = group;
  }
  return bytes;
}

const columns = new Map(); // bytes of all columns by their names

async function inflateColumns() {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser cannot decompress; those from 2023 on can");
  await Promise.all([...document.querySelectorAll("script[type='text/plain']")].map(async element => {
    const stream = new Blob([base64Bytes(element.textContent.trim())]).stream().pipeThrough(new DecompressionStream("deflate"));
    columns.set(element.id, new Uint8Array(await new Response(stream).arrayBuffer()));
    element.remove();
  }));
}

function columnBytes(id) {
  const bytes = columns.get(id);
  columns.delete(id);
  return bytes;
}

/* Numbers of seven bits a byte; above 28 bits shifts no longer serve. */
class ColumnReader {
  constructor(id) {
    this.bytes = columnBytes(id);
    this.at = 0;
    this.before = 0;
  }
  get more() { return this.at < this.bytes.length; }
  unsigned() {
    let byte = this.bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  signed() {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  difference() { return this.before += this.signed(); }
}

function readDifferences(id, array) {
  const reader = new ColumnReader(id);
  for (let i = 0; i < array.length; i++) array[i] = reader.difference();
  return array;
}

function readDifferencesToEnd(id) {
  const reader = new ColumnReader(id), values = [];
  while (reader.more) values.push(reader.difference());
  return values;
}

class Program {
  constructor(side, page) {
    this.page = page;
    Object.assign(this, { title: side.title, schedule: side.schedule, digest: side.digest, bound: side.bound, ranks: side.ranks,
      replicas: side.replicas, microbatches: side.microbatches, verified: side.verified, regions: side.regions,
      modules: side.modules, peaks: side.peaks, whatIf: side.what_if });
    this.stages = side.stages.map(([region, slab, begin, end]) => ({ region, slab, begin, end }));
    this.begin = readDifferences(side.rank_begin, new Int32Array(side.ranks + 1));
    this.count = this.begin[side.ranks];
    this.code = columnBytes(side.kind);
    this.stage = readDifferences(side.stage, new Int32Array(this.count));
    this.microbatch = readDifferences(side.microbatch, new Int32Array(this.count));
    this.partner = new Int32Array(this.count);
    const partner = new ColumnReader(side.partner);
    for (let i = 0; i < this.count; i++) {
      const difference = partner.signed();
      this.partner[i] = difference === 0 ? -1 : i + difference;
    }
    this.shares = this.countShares();
    this.flops = side.flops ? new Flops(side.flops, this) : null;
    this.timelines = side.timelines.map(timeline => new Timeline(timeline, this));
  }
  /* How many ranks compute parts of one microbatch in a stage together. */
  countShares() {
    const shares = new Uint16Array(this.stages.length * this.microbatches);
    for (let i = 0; i < this.count; i++)
      if (this.kind(i) === KIND.FWD && !(this.code[i] & CODE_NEXT)) shares[this.stage[i] * this.microbatches + this.microbatch[i]]++;
    return shares;
  }
  sharesOf(i) { return this.kind(i) <= KIND.RECOMPUTE ? this.shares[this.stage[i] * this.microbatches + this.microbatch[i]] : 1; }
  kind(i) { return this.code[i] & CODE_KIND; }
  kindName(i) { return this.page.kinds[this.code[i] & CODE_KIND]; }
  isCompute(i) {
    const kind = this.code[i] & CODE_KIND;
    return kind <= KIND.RECOMPUTE || kind === KIND.OPTIM;
  }
  rankOf(i) {
    let low = 0, high = this.ranks - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begin[middle + 1] <= i) low = middle + 1; else high = middle;
    }
    return low;
  }
  stageName(stage) {
    if (stage < 0) return "";
    const { region, slab } = this.stages[stage];
    return this.regions[region].name + (this.regions[region].replicated ? "" : "." + slab);
  }
  /* The ends of messages that a compute instruction waits for and causes, on its own rank. */
  messagesOf(i) {
    const rank = this.rankOf(i), kind = this.kind(i), incoming = [], outgoing = [];
    if (kind > KIND.BWD_W) return this.partner[i] < 0 ? { incoming, outgoing } : this.ownMessage(i);
    const gradient = kind === KIND.FWD ? 0 : CODE_GRADIENT;
    for (let at = this.begin[rank]; at < this.begin[rank + 1]; at++) {
      const code = this.code[at], other = code & CODE_KIND;
      if (other < KIND.SEND || other > KIND.WAIT || this.partner[at] < 0) continue;
      if (this.microbatch[at] !== this.microbatch[i] || this.stage[at] !== this.stage[i]) continue;
      if ((code & CODE_GRADIENT) !== gradient) continue;
      if (other === KIND.SEND) outgoing.push(at);
      if (other === KIND.WAIT && code & CODE_RECV) incoming.push(at);
    }
    return { incoming, outgoing };
  }
  ownMessage(i) {
    const sends = this.kind(i) === KIND.SEND || (this.kind(i) === KIND.WAIT && !(this.code[i] & CODE_RECV));
    return sends ? { incoming: [], outgoing: [i] } : { incoming: [i], outgoing: [] };
  }
}

let KIND = {};

/* Floating-point operations: exact sums by stage and module, and nearly what each instruction has. */
class Flops {
  constructor(data, program) {
    Object.assign(this, { program, peak: data.peak, unit: data.unit,
      pieces: data.pieces.map(([stage, module, forward, input, weight]) => ({ stage, module, forward, input, weight })) });
    const cells = program.stages.length * program.microbatches;
    for (const part of ["forward", "input", "weight"]) {
      const reader = new ColumnReader(data[part]), values = this[part] = new Uint32Array(cells);
      for (let i = 0; i < cells; i++) values[i] = reader.unsigned();
    }
    this.total = this.sum(() => true).total;
  }
  /* Of the pieces that fit. */
  sum(fits) {
    const sum = { forward: 0, input: 0, weight: 0, total: 0 };
    for (const piece of this.pieces)
      if (fits(piece)) for (const part of ["forward", "input", "weight"]) { sum[part] += piece[part]; sum.total += piece[part]; }
    return sum;
  }
  of(i) {
    const { program } = this, kind = program.kind(i), cell = program.stage[i] * program.microbatches + program.microbatch[i];
    if (kind > KIND.RECOMPUTE) return 0;
    const unit = this.unit / Math.max(1, program.shares[cell]);
    if (kind === KIND.FWD || kind === KIND.RECOMPUTE) return this.forward[cell] * unit;
    return ((kind === KIND.BWD_W ? 0 : this.input[cell]) + (kind === KIND.BWD_X ? 0 : this.weight[cell])) * unit;
  }
}

class Timeline {
  constructor(data, program) {
    Object.assign(this, { program, title: data.title, makespan: data.makespan, idleShare: data.idle_share,
      bubbleWhole: data.bubble_whole, bubbleStage: data.bubble_stage, peakFeatures: data.peak_features,
      idleByCause: data.idle_by_cause, busy: data.busy, ticks: data.ticks });
    this.tick = data.makespan / data.ticks;
    this.start = new Uint32Array(program.count);
    this.finish = new Uint32Array(program.count);
    const gap = new ColumnReader(data.gap), duration = new ColumnReader(data.duration);
    for (let rank = 0; rank < program.ranks; rank++) {
      let time = 0;
      for (let i = program.begin[rank]; i < program.begin[rank + 1]; i++) {
        time += gap.signed();
        this.start[i] = time;
        time += duration.unsigned();
        this.finish[i] = time;
      }
    }
    this.cause = columnBytes(data.cause);
    this.critical = Int32Array.from(readDifferencesToEnd(data.critical));
    this.onCritical = new Uint8Array(program.count);
    for (const i of this.critical) this.onCritical[i] = 1;
    this.inks = this.makeInks();
    if (data.memory) this.memory = this.readMemory(data.memory);
  }
  /* An ink an instruction: twice its number in the page's list, plus one for odd microbatches of compute. */
  makeInks() {
    const { program } = this, { ink } = program.page, inks = new Uint8Array(program.count);
    const ofKind = { [KIND.FWD]: 0, [KIND.BWD]: 1, [KIND.BWD_X]: 2, [KIND.BWD_W]: 3, [KIND.RECOMPUTE]: 4 };
    const setOfStage = program.stages.map(stage => program.regions[stage.region].set * ink.kinds);
    for (let i = 0; i < program.count; i++) {
      const kind = program.code[i] & CODE_KIND;
      if (kind <= KIND.RECOMPUTE)
        inks[i] = 2 * (setOfStage[program.stage[i]] + ofKind[kind]) + (program.microbatch[i] & 1);
      else if (kind === KIND.OPTIM) inks[i] = 2 * ink.optimizer;
      else inks[i] = 2 * (ink.idle + Math.min(this.cause[i], ink.unknown - ink.idle));
    }
    return inks;
  }
  readMemory(memory) {
    const begin = readDifferences(memory.begin, new Int32Array(this.program.ranks + 1));
    const count = begin[this.program.ranks];
    return { activation: memory.activation, begin, time: readDifferences(memory.time, new Float64Array(count)),
      bytes: readDifferences(memory.bytes, new Float64Array(count)) };
  }
  seconds(i) { return (this.finish[i] - this.start[i]) * this.tick; }
  startSeconds(i) { return this.start[i] * this.tick; }
  finishSeconds(i) { return this.finish[i] * this.tick; }
  /* The first instruction of a rank that ends after `time` (in ticks); the end of its list where none does. */
  firstEndingAfter(rank, time) {
    let low = this.program.begin[rank], high = this.program.begin[rank + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.finish[middle] <= time) low = middle + 1; else high = middle;
    }
    return low;
  }
  /* What the rank does at a time, or -1: an instruction that takes time there. */
  at(rank, time) {
    const i = this.firstEndingAfter(rank, time);
    return i < this.program.begin[rank + 1] && this.start[i] <= time ? i : -1;
  }
}

async function readPage() {
  const page = JSON.parse(document.getElementById("data").textContent);
  if (page.format !== "motet-report-2") throw new Error("the data have another format: " + page.format);
  await inflateColumns();
  page.kinds.forEach((name, kind) => { KIND[name] = kind; });
  page.programs = page.sides.filter(side => side.timelines).map(side => new Program(side, page)); // a run may have no timeline yet
  return page;
}
