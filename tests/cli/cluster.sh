#!/bin/sh
# motet plan and simulate on a job with a cluster: the document of the command contract, and what wrong jobs are told.
set -eu
. "$(dirname "$0")/lib.sh"
cat >"$out.yaml" <<JOB
model: $TEST_DATA/models/InternVL2-8B
cluster: h100
trainable: [projector, llm]
parallel: {tensor: 4, pipeline: 4, data: 2, zero: 1}
workload: {tokens: 4096, images: 7x448x448}
train: {microbatches: 16}
JOB
"$MOTET" plan "$out.yaml" --json >"$out"
"$MOTET" simulate "$out.yaml" --json >"$out.again"
cmp -s "$out" "$out.again" || fail 'simulate answers otherwise than plan'
"$MOTET" plan "$out.yaml" --json parallel.data=4 >"$out.wide"
python3 - "$out" "$out.wide" <<'PY' || fail 'document'
import json, sys
plan, wide = (json.load(open(path)) for path in sys.argv[1:])
assert plan["accepted"] and plan["verified"] and plan["step_seconds"] == plan["makespan"] > 0
assert [row["rank"] for row in plan["memory"]] == [0, 1, 2, 3]
assert all(1e9 < row["peak_bytes"] < 80e9 and row["at"] for row in plan["memory"])
assert plan["cluster"]["devices"] == 32 and plan["cluster"]["tensor"] == 4
# Twice the replicas divide the same states further; the replica's work stays.
assert wide["memory"][0]["peak_bytes"] < plan["memory"][0]["peak_bytes"]
assert abs(wide["step_seconds"] / plan["step_seconds"] - 1) < 0.05
PY
"$MOTET" model "$TEST_DATA/models/InternVL2-8B" --tokens 4096 --images 7x448x448 --trainable projector,llm --json >"$out.model"
cat >"$out.llama.yaml" <<JOB
model: $TEST_DATA/models/Llama-3.1-8B
cluster: h100
parallel: {tensor: 2, pipeline: 2, data: 3}
workload: {tokens: 8192}
train: {microbatches: 8}
JOB
"$MOTET" plan "$out.llama.yaml" --json >"$out.llama"
python3 - "$out" "$out.model" "$out.llama" <<'PY' || fail 'operations'
import json, sys
plan, model, llama = (json.load(open(path)) for path in sys.argv[1:])
near = lambda a, b: abs(a - b) <= 1e-9 * b
for planned, module in zip(plan["flops"]["modules"], model["modules"]):
    assert planned["name"] == module["name"] and near(planned["forward"], 16 * module["forward_flops"]), (planned, module)
    assert near(planned["weight_gradient"], 16 * module["weight_gradient_flops"]), (planned, module)
# Three times the forward's, which is two operations a parameter and token, and 4 h for a pair of tokens that the causal
# mask keeps (PaLM, arXiv 2204.02311, appendix B, with a mask). The first layer's gradient goes nowhere.
tokens, parameters, embedding, layers, hidden = 8192, 8030261248, 128256 * 4096, 32, 4096
forward = 2 * (parameters - embedding) * tokens + layers * 4 * hidden * tokens * (tokens + 1) / 2
assert abs(llama["flops"]["total"] / (8 * 3 * forward) - 1) < 0.005, llama["flops"]
assert near(llama["flops"]["mfu"], llama["flops"]["total"] / (4 * 989.4e12 * llama["makespan"])), llama["flops"]
assert near(llama["cluster"]["tokens_per_second"], 3 * 8 * 8192 / llama["makespan"]), llama["cluster"]
PY
"$MOTET" plan "$out.llama.yaml" devices=16 --summary >"$out"
grep -q '^cluster     12 x .*; 4 of the job.s 16 devices have no part$' "$out" || fail "devices without a part: $(cat "$out")"
grep -q '^throughput  [0-9.]* tokens/s, [0-9.]* a device; a microbatch has 8192 tokens$' "$out" || fail "throughput: $(cat "$out")"
grep -q 'MFU [0-9.]*%, of what 2 ranks at 1.979 PFLOP/s' "$out" || fail "utilization: $(cat "$out")"
# What rounding leaves of an idle cause is no line.
"$MOTET" plan "$out.llama.yaml" --summary "model=$TEST_DATA/models/Qwen2.5-VL-72B-Instruct" 'trainable=[projector, llm]' \
  parallel.tensor=8 parallel.pipeline=8 workload.images=4x896x896 train.microbatches=32 >"$out"
if grep -E '[0-9]e-1[0-9] ' "$out"; then fail 'an idle cause of nothing'; fi
"$MOTET" plan "$out.yaml" --report "$out.html" --summary >"$out"
grep -q '; a microbatch has 4096 tokens, 1792 of them picture features$' "$out" || fail "the workload: $(cat "$out")"
grep -q '"cluster","32 x H100' "$out.html" || fail 'the page does not say which cluster'
answer() { # words, exit code, text
  code=0
  # shellcheck disable=SC2086
  "$MOTET" plan "$out.yaml" --json $1 >"$out" 2>&1 || code=$?
  [ "$code" -eq "$2" ] || fail "$1: exit code $code"
  grep -q "$3" "$out" || fail "$1: $(cat "$out")"
}
answer cluster.memory=4GB 1 '"rule": "memory"'
answer cluster.memory=4GB 1 'bytes ([0-9.]* GB) at .* more than the cap of 4000000000 (4 GB)'
answer cluster=tpu 2 'presets are'
answer parallel.tenser=4 2 'parallel.tensor'
answer parallel.pipeline=0 2 '"key": "parallel.pipeline"'
# Of 16 heads in the tower and 32 in the decoder none is cut in two, nor shared by more ranks than there are heads.
answer parallel.tensor=3 2 '"key": "parallel.tensor"'
answer parallel.tensor=3 2 'tensor 3 x ulysses 1 devices cannot share the 32 heads of llm evenly; accepted: a divisor of 32'
answer 'parallel.tensor=16 parallel.ulysses=4' 2 'tensor 16 x ulysses 4 devices cannot share the 32 heads of llm'
answer parallel.tensor=32 2 'the 16 heads of vision'
answer parallel.tensor=32 2 '"key": "parallel.encoder_tensor"'
answer 'parallel.tensor=32 parallel.encoder_tensor=16' 0 '"accepted": true'
# null gives up what the file says, here a number, a list and a text.
"$MOTET" plan "$out.yaml" --json train.microbatches=null trainable=null parallel.zero=~ workload.images=null >"$out"
sed -e '/^train:/d' -e '/^trainable:/d' -e 's/, zero: 1//' -e 's/, images: 7x448x448//' "$out.yaml" >"$out.bare.yaml"
"$MOTET" plan "$out.bare.yaml" --json >"$out.again"
cmp -s "$out" "$out.again" || fail 'null is not the same as a key left out'
sed -e 's/^train:.*/train: {microbatches: null}/' -e 's/^trainable:.*/trainable: ~/' -e 's/, zero: 1/, zero: null/' \
  -e 's/, images: 7x448x448/, images: null/' "$out.yaml" >"$out.null.yaml"
[ "$(grep -c 'null\|~' "$out.null.yaml")" -eq 4 ] || fail "the file is another one: $(cat "$out.null.yaml")"
"$MOTET" plan "$out.null.yaml" --json >"$out.again"
cmp -s "$out" "$out.again" || fail 'null in the file is not the same as a key left out'
