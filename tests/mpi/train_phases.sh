#!/bin/sh
# Phases of a run: the bits of separate runs that continue each other, moments that begin with their module, rates by
# module, and resuming in any phase.
set -eu
. "$(dirname "$0")/lib.sh"

run() {
  name=$1
  shift
  expect 0 train train/job.yaml output_dir="$work/$name" train.steps=6 train.search_seconds=0 train.timeline_every=0 \
    train.keep=9 "$@"
}
phases='[{until: 3, trainable: [projector], learning_rate: 5e-3}, {trainable: all, learning_rate: {vision: 0, default: 1e-2}}]'

run phases phases="$phases" train.save_every=1
grep -q 'phase 1 of 2, steps 1 to 3: projector under' "$out" || fail "phase 1 is not announced: $(cat "$out")"
grep -q 'phase 2 of 2, steps 4 to 6: vision, projector, llm under' "$out" || fail "phase 2 is not announced"
[ "$(sed -n 's/.*"learning_rate": \([0-9.e-]*\),.*/\1/p' "$work/phases/metrics.jsonl" | tr '\n' ' ')" = "0.005 0.005 0.005 0.01 0.01 0.01 " ] ||
  fail "learning rates: $(cat "$work/phases/metrics.jsonl")"
grep -q '"moments_from": {"projector": 0}' "$work/phases/checkpoints/step-3/trainer.json" || fail "moments of phase 1"
grep -q '"moments_from": {"vision": 3, "projector": 0, "llm": 3}' "$work/phases/checkpoints/step-6/trainer.json" || fail "moments of phase 2"

# What is frozen, or has a rate of 0, stays as it is; what trains moves.
python3 - "$work/phases/checkpoints" <<'END' || fail "the wrong modules moved"
import glob, json, sys
def tensors(step):
    found = {}
    for path in glob.glob(f"{sys.argv[1]}/step-{step}/model*.safetensors"):
        data = open(path, "rb").read()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = data[8 + size + begin:8 + size + end]
    return found
def moved(before, after):
    one, other = tensors(before), tensors(after)
    assert one.keys() == other.keys() and len(one) > 50
    return {name.split(".")[0] for name in one if one[name] != other[name]}
assert moved(1, 3) == {"mlp1"}, moved(1, 3)
assert moved(3, 6) == {"mlp1", "language_model"}, moved(3, 6)
END

# By hand: one run with the projector alone, continued with everything.
run hand train.steps=3 trainable='[projector]' train.learning_rate=5e-3
run hand train.learning_rate='{vision: 0, default: 1e-2}'
[ "$(weights hand)" = "$(weights phases)" ] || fail "phases differ from runs that continue each other"

# Resumed in the first phase, at its end and in the second, each time under another plan.
set -- 1 2 4
for stop in 2 3 5; do
  run parts phases="[{until: 3, trainable: [projector], learning_rate: 5e-3}, {until: 6, trainable: all, learning_rate: {vision: 0, default: 1e-2}}]" \
    train.steps=$stop deterministic=exact parallel.pipeline="$1" parallel.data=1
  shift
done
run parts phases="$phases" deterministic=exact
run exact phases="$phases" deterministic=exact parallel.pipeline=1
[ "$(weights parts)" = "$(weights exact)" ] || fail "resuming in phases: $(weights parts) is not $(weights exact)"

# What is wrong with a later phase shows at once.
expect 1 train train/job.yaml output_dir="$work/bad" phases='[{until: 3}, {schedule: "<llm: 1f1b>"}]'
grep -q 'phase 2' "$out.err" || fail "no word of phase 2: $(cat "$out.err")"
[ ! -e "$work/bad/metrics.jsonl" ] || fail "a run began whose second phase is wrong"
