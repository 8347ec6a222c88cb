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
answer() { # words, exit code, text
  code=0
  # shellcheck disable=SC2086
  "$MOTET" plan "$out.yaml" --json $1 >"$out" 2>&1 || code=$?
  [ "$code" -eq "$2" ] || fail "$1: exit code $code"
  grep -q "$3" "$out" || fail "$1: $(cat "$out")"
}
answer cluster.memory=4GB 1 '"rule": "memory"'
answer cluster=tpu 2 'presets are'
answer parallel.tenser=4 2 'parallel.tensor'
answer parallel.pipeline=0 2 '"key": "parallel.pipeline"'
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
