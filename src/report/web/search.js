/* Searching: words that all have to fit. "llm.3 bwd mb 5", "rank 2", "idle stage imbalance", "stage 4", "critical". */

function parseQuery(program, text) {
  const words = text.toLowerCase().replace(/[,;]/g, " ").split(/\s+/).filter(word => word !== "");
  const tests = [];
  const kinds = program.page.kinds.map(name => name.toLowerCase());
  for (let k = 0; k < words.length; k++) {
    const word = words[k], joined = word.match(/^(stage|rank|mb|microbatch|m|#)[:=]?(\d+)$/), next = words[k + 1];
    const field = joined ? joined[1] : /^(stage|rank|mb|microbatch|m|#)[:=]?$/.test(word) && /^\d+$/.test(next || "") ? word.replace(/[:=]$/, "") : null;
    if (field) {
      const number = Number(joined ? joined[2] : words[++k]);
      if (field === "stage") tests.push(i => program.stage[i] === number);
      else if (field === "rank") tests.push((i, rank) => rank === number);
      else tests.push(i => program.microbatch[i] === number);
    } else if (word === "idle") {
      tests.push((i, rank, timeline) => !program.isCompute(i) && timeline.finish[i] > timeline.start[i]);
    } else if (word === "critical") {
      tests.push((i, rank, timeline) => timeline.onCritical[i] === 1);
    } else {
      tests.push(wordTest(program, kinds, word));
    }
  }
  return tests;
}

/* A kind, a cause, or a part of a stage's name. */
function wordTest(program, kinds, word) {
  const kindTests = { forward: ["fwd"], backward: ["bwd", "bwd_x", "bwd_w"], bwd: ["bwd", "bwd_x", "bwd_w"] };
  const wanted = kindTests[word] || (kinds.includes(word) ? [word] : null);
  if (wanted) {
    const set = new Set(wanted.map(name => kinds.indexOf(name)));
    return i => set.has(program.kind(i));
  }
  const causes = new Set(causeNames.flatMap((name, cause) => name.split(/[ -]/).concat(name).includes(word) ? [cause] : []));
  const stages = new Set(program.stages.flatMap((stage, s) => {
    const name = program.stageName(s).toLowerCase(), whole = /\.\d+$/.test(word);
    return (whole ? name === word : name.includes(word)) ? [s] : [];
  }));
  return (i, rank, timeline) => (program.stage[i] >= 0 && stages.has(program.stage[i])) ||
    (causes.size > 0 && !program.isCompute(i) && timeline.finish[i] > timeline.start[i] && causes.has(timeline.cause[i]));
}

class Search {
  constructor(view, output) {
    this.view = view;
    this.output = output;
    this.query = "";
    this.hits = null; // of the active panel, in order of time
  }
  run(text) {
    this.query = text.trim();
    this.view.searchNumber++;
    for (const panel of this.view.panels) panel.rows.setMatches(this.query === "" ? null : this.matchesOf(panel));
    for (const panel of this.view.panels) panel.painted = null;
    this.hits = this.query === "" ? null : this.hitsOf(this.view.active);
    this.output.textContent = this.hits ? (this.hits.length === 0 ? "no match" : this.hits.length + (this.hits.length === 1 ? " match" : " matches")) : "";
    this.view.refresh();
  }
  matchesOf({ program, timeline }) {
    const matches = new Uint8Array(program.count), tests = parseQuery(program, this.query);
    for (let rank = 0; rank < program.ranks; rank++)
      for (let i = program.begin[rank]; i < program.begin[rank + 1]; i++)
        matches[i] = tests.every(test => test(i, rank, timeline)) ? 1 : 0;
    return matches;
  }
  hitsOf(panel) {
    const hits = [], { matches } = panel.rows, { start, finish } = panel.timeline;
    for (let i = 0; i < matches.length; i++) if (matches[i] && finish[i] > start[i]) hits.push(i);
    return Int32Array.from(hits.sort((a, b) => start[a] - start[b] || a - b));
  }
  /* The match behind (1) or before (-1) the chosen instruction, round the ends. */
  step(by) {
    if (!this.hits || this.hits.length === 0) return;
    const { view, hits } = this, panel = view.active, at = view.selected ? hits.indexOf(view.selected.i) : -1;
    const next = at < 0 ? (by > 0 ? 0 : hits.length - 1) : (at + by + hits.length) % hits.length;
    view.go(panel, hits[next]);
    this.output.textContent = "match " + (next + 1) + " of " + hits.length;
  }
}
