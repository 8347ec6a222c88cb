/* Numbers and sentences. */

function timeUnit(largest) {
  if (largest >= 0.99995 || !(largest > 0)) return { name: "s", perSecond: 1 };
  return largest >= 0.99995e-3 ? { name: "ms", perSecond: 1e3 } : { name: "µs", perSecond: 1e6 };
}

function numberWords(value, digits = 4) {
  if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : "–";
  const size = Math.floor(Math.log10(Math.abs(value))) + 1;
  return size > digits ? Math.round(value).toString() : String(Number(value.toPrecision(digits)));
}

function timeWords(seconds, largest = Math.abs(seconds), digits = 4) {
  const unit = timeUnit(largest);
  return numberWords(seconds * unit.perSecond, digits) + " " + unit.name;
}

function rankWords(count) { return count + (count === 1 ? " rank" : " ranks"); }
function percentWords(share) { return Number.isFinite(share) ? (100 * share).toFixed(1) + "%" : "–"; }

function signedPercent(share) {
  if (!Number.isFinite(share)) return "–";
  const text = (100 * Math.abs(share)).toFixed(1);
  return (text === "0.0" ? "" : share > 0 ? "+" : "−") + text + "%";
}

function bytesWords(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  for (; Math.abs(bytes) >= 1024 && unit + 1 < units.length; unit++) bytes /= 1024;
  return numberWords(bytes) + " " + units[unit];
}

function flopsWords(flops) {
  const units = ["", "k", "M", "G", "T", "P", "E", "Z"];
  let unit = 0;
  for (; Math.abs(flops) >= 1000 && unit + 1 < units.length; unit++) flops /= 1000;
  return numberWords(flops) + " " + units[unit] + "FLOP";
}

function memoryWords(memory, amount) {
  if (!memory.activation) return bytesWords(amount);
  const held = amount / memory.activation;
  return numberWords(held) + (held === 1 ? " microbatch" : " microbatches");
}

const causeSentences = [
  "warm-up: before this rank's first backward the pipeline is still filling",
  "cool-down: behind this rank's last forward the pipeline drains",
  "stage imbalance: what this rank waits for comes from work that lies unevenly over the ranks",
  "microbatch variance: what this rank waits for was held up by a microbatch that costs more than others of its stage",
  "communication: the data were ready and on their way",
  "data-parallel wait: a collective waits for other replicas, or takes its own time",
  "input stall: inputs were being read",
  "idle: nothing says why",
];

const causeNames = ["warm-up", "cool-down", "stage imbalance", "microbatch variance", "communication", "data-parallel wait",
  "input stall", "between instructions"];

const kindWords = { FWD: "forward", BWD: "backward", BWD_X: "input gradients", BWD_W: "weight gradients",
  RECOMPUTE: "recompute", SEND: "posts a send", RECV: "posts a receive", REDUCE: "reduce", REDUCE_SCATTER: "reduce-scatter",
  ALL_GATHER: "all-gather", ALL_REDUCE: "all-reduce", OFFLOAD: "offload to the host", FETCH: "fetch from the host",
  LOAD: "reads inputs", OPTIM: "optimizer", STEP_END: "end of the step" };

/* "forward of llm.3, microbatch 5" */
function instructionWords(program, i) {
  const name = program.kindName(i), microbatch = program.microbatch[i], stage = program.stage[i];
  const of = (stage >= 0 ? " of " + program.stageName(stage) : "") + (microbatch >= 0 ? ", microbatch " + microbatch : "") +
    (program.code[i] & CODE_NEXT ? " of the next step" : "");
  const kind = program.kind(i), joined = kind <= KIND.RECOMPUTE && program.code[i] & CODE_JOINED;
  if (kind < KIND.SEND || kind > KIND.WAIT) return kindWords[name] + of + (joined ? ", joined with the next" : "");
  const what = program.code[i] & CODE_GRADIENT ? "a gradient" : "an activation";
  const peer = program.partner[i] >= 0 ? program.rankOf(program.partner[i]) : -1;
  if (kind === KIND.WAIT) {
    const receives = program.code[i] & CODE_RECV;
    return (receives ? "waits for " + what + " for " : "waits until rank " + peer + " has taken " + what + " of ") +
      program.stageName(stage) + ", microbatch " + microbatch + (receives && peer >= 0 ? ", from rank " + peer : "");
  }
  return (kind === KIND.SEND ? "posts " + what + of + (peer >= 0 ? ", to rank " + peer : "")
    : "posts the receive of " + what + " for" + of.slice(3) + (peer >= 0 ? ", from rank " + peer : ""));
}

/* Why a rank stands still in instruction i: what it waits for, what its partner did meanwhile, the cause. */
function idleWords(timeline, i) {
  const { program } = timeline, words = [], partner = program.partner[i];
  if (program.kind(i) === KIND.WAIT && partner >= 0) {
    const rank = program.rankOf(partner);
    const post = timeline.finish[partner];
    if (program.code[i] & CODE_RECV && post > timeline.start[i]) {
      const maker = lastComputeBefore(timeline, rank, partner);
      words.push("rank " + rank + " sends it " + timeWords((post - timeline.start[i]) * timeline.tick) + " into this wait" +
        (maker >= 0 ? ", after its " + instructionWords(program, maker) : ""));
    } else if (program.code[i] & CODE_RECV) {
      words.push("rank " + rank + " had sent it before");
    }
  }
  words.push(causeSentences[Math.min(timeline.cause[i], 7)]);
  return words.join("; ");
}

function lastComputeBefore(timeline, rank, place) {
  for (let i = place - 1; i >= timeline.program.begin[rank]; i--)
    if (timeline.program.isCompute(i)) return i;
  return -1;
}

function describe(timeline, i) {
  const { program } = timeline;
  const lines = ["rank " + program.rankOf(i) + ": " + instructionWords(program, i),
    timeWords(timeline.seconds(i)) + ", from " + timeWords(timeline.startSeconds(i), timeline.makespan, 6) + " to " +
      timeWords(timeline.finishSeconds(i), timeline.makespan, 6)];
  if (!program.isCompute(i) && timeline.finish[i] > timeline.start[i]) lines.push("idle, " + idleWords(timeline, i));
  if (program.sharesOf(i) > 1) lines.push("one of " + program.sharesOf(i) + " ranks that share this microbatch");
  const flops = program.flops && program.isCompute(i) ? program.flops.of(i) : 0, seconds = timeline.seconds(i);
  if (flops > 0) lines.push(flopsWords(flops) + (seconds > 0 ? ", " + flopsWords(flops / seconds) + "/s" +
    (program.flops.peak > 0 ? ": " + percentWords(flops / seconds / program.flops.peak) + " of the rank's peak" : "") : ""));
  if (timeline.onCritical[i]) lines.push("on the critical path");
  return lines;
}
