#!/bin/sh
# motet plan JOB --search: its answer, its files, and its exit codes.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/../.."
job=$out.yaml
cat >"$job" <<'JOB'
model: tests/data/models/InternVL2-2B
trainable: [projector, llm]
cluster: {preset: a100-40gb, devices: 8}
workload: {tokens: 2304, images: 2x448x448}
train: {global_batch: 16}
search: {tensor: [1, 2], context: [1], pipeline: [1, 2], microbatch: [1]}
JOB

motet plan "$job" --search --json -o "$out.json" >"$out" 2>/dev/null || fail "the search fails"
python3 - "$out" <<'CHECK' || fail "the document"
import json, sys
d = json.load(open(sys.argv[1]))
s = d["search"]
assert d["accepted"] is True and d["verified"] is True
assert abs(d["step_seconds"] - d["makespan"]) < 1e-12
assert s["end"] == "complete" and s["bound"] <= d["step_seconds"] * (1 + 1e-12)
assert s["plan"]["data"] * s["plan"]["tensor"] * s["plan"]["pipeline"] <= 8
assert all(0 < cell["peak_bytes"] <= 40e9 for cell in d["memory"])
assert all(cell["at"].split(" of ")[0] in ("FWD", "BWD", "OPTIM", "BWD_INPUT", "BWD_WEIGHT") for cell in d["memory"])
assert s["runner_up"]["step_seconds"] >= d["step_seconds"] - 1e-12
CHECK
motet plan "$job" --search --summary >"$out.text" 2>/dev/null || fail "the search fails as text"
awk '/^step / { d = $2 * $4 - 16; exit !(d < 0.05 && d > -0.05 && $5 ~ /^samples/) }' "$out.text" || fail "samples a second: $(cat "$out.text")"
motet verify "$out.json" >/dev/null || fail "the program that -o wrote is not accepted"

# Part of a node is that part, not the whole: 12 devices are not 16.
motet plan "$job" --search --json cluster.devices=12 train.global_batch=48 >"$out" 2>/dev/null || fail "no search on 12 devices"
python3 - "$out" <<'CHECK' || fail "more devices than there are"
import json, sys
plan = json.load(open(sys.argv[1]))["search"]["plan"]
assert 1 < plan["data"] * plan["tensor"] * plan["ulysses"] * plan["ring"] * plan["pipeline"] <= 12, plan
CHECK

# Nor does a job's own list of degrees cut heads in two.
code=0
motet plan "$job" --search --json 'search.tensor=[64]' cluster.devices=64 train.global_batch=64 >"$out" 2>/dev/null || code=$?
[ "$code" = 1 ] && grep -q 'no candidate is legal' "$out" || fail "64 devices share 16 heads: $code, $(cat "$out")"

# However early a search ends, some candidates were judged: it has a plan, or says what ended it.
motet plan "$job" --search --json --time-limit 0.0001 >"$out" 2>/dev/null || fail "no plan in no time: $(cat "$out")"
python3 - "$out" <<'CHECK' || fail "a search without time"
import json, sys
found = json.load(open(sys.argv[1]))
assert found["accepted"] and found["search"]["end"] == "time limit" and found["search"]["bound"] <= found["step_seconds"]
CHECK
code=0
motet plan "$job" --search --json --time-limit 0.0001 memory=3GB >"$out" 2>/dev/null || code=$?
[ "$code" = 0 ] || { [ "$code" = 1 ] && grep -q 'ended (time limit) before a plan that fits' "$out"; } ||
  fail "what fits is not looked at: $code, $(cat "$out")"

# What --job writes is planned to the same makespan and memory, with alike and with unlike samples; what is kept, dropped
# and divided comes along.
replan() {
  motet plan "$job" --search --json --job "$out.found.yaml" "$@" >"$out" 2>/dev/null || fail "no search with $*"
  motet plan "$out.found.yaml" --json >"$out.again" || fail "the job of $* is refused: $(cat "$out.again")"
  python3 - "$out" "$out.again" <<'CHECK' || fail "the job of $* is another plan"
import json, sys
found, again = (json.load(open(name)) for name in sys.argv[1:])
assert found["schedule"] == again["schedule"]
assert all(found["search"]["plan"][degree] == again["cluster"][degree] for degree in ("tensor", "ulysses", "ring", "data"))
assert found["makespan"] == again["makespan"], (found["makespan"], again["makespan"])
assert [c["peak_bytes"] for c in found["memory"]] == [c["peak_bytes"] for c in again["memory"]]
CHECK
}
replan 'search.pipeline=[2]'
replan memory=9GB 'search.zero=[1]' 'search.pipeline=[2]' 'search.encoder_batch=[1]'
grep -q recompute_layers "$out.found.yaml" || fail "nothing is dropped in 9 GB: $(cat "$out.found.yaml")"
for placement in chain transpose dedicate; do
  replan "search.placement=[$placement]" 'search.pipeline=[2]'
done
for placement in transpose dedicate; do
  replan "search.placement=[$placement]" 'search.pipeline=[2]' 'search.encoder_batch=[3]'
  grep -q 'batch=3' "$out.found.yaml" || fail "the encoders' batch is not kept: $(cat "$out.found.yaml")"
done
sed 's/tokens: 2304, /distribution: wikipedia, seed: 3, /' "$job" >"$job.varied" && mv "$job" "$job.alike" && cp "$job.varied" "$job"
replan 'search.pipeline=[2]' 'search.trunk=[1f1b]'
replan 'search.pipeline=[2]' 'search.placement=[transpose]' 'search.encoder_batch=[2]'
replan 'search.trunk=[zbv]' 'search.pipeline=[2]' 'search.tensor=[2]' 'search.placement=[transpose]'
replan 'cluster.devices=32' 'train.global_batch=32' 'search.zero=[3]' 'search.shard_devices=[8]' 'search.pipeline=[1]'
grep -q 'shard_group' "$out.found.yaml" || fail "no shard group: $(cat "$out.found.yaml")"
mv "$job.alike" "$job"
rm -f "$job.varied" "$out.found.yaml" "$out.found.yaml.jsonl" "$out.again"
code=0
motet plan "$job" --job "$out.found.yaml" 2>"$out" >/dev/null || code=$?
[ "$code" = 2 ] && grep -q -- '--job is for --search' "$out" || fail "--job without --search: $code, $(cat "$out")"

code=0
motet plan "$job" --search --json memory=1GB >"$out" 2>/dev/null || code=$?
[ "$code" = 1 ] || fail "nothing fits, and the exit code is $code"
grep -q '"accepted": false' "$out" || fail "no refusal: $(cat "$out")"
grep -q 'nothing fits' "$out" || fail "no reason: $(cat "$out")"
needed=$(sed -n 's/.*accepted: memory of \([0-9.]*\) GB.*/\1/p' "$out")
motet plan "$job" --search --summary "memory=${needed}GB" >/dev/null 2>&1 || fail "what would fit, $needed GB, does not"

code=0
motet plan "$job" --search --json 'search.tensor=[3]' >"$out" 2>/dev/null || code=$?
[ "$code" = 1 ] && [ "$(field rule <"$out")" = degrees ] || fail "three ranks of eight: $code, $(cat "$out")"

code=0
motet plan "$job" --search --json 'search.placement=[nowhere]' >"$out" 2>/dev/null || code=$?
[ "$code" = 2 ] && [ "$(field file <"$out")" = 'command line' ] || fail "a word's error is in the file: $code, $(cat "$out")"

code=0
motet plan "$job" --search --json nothing=1 >"$out" 2>/dev/null || code=$?
[ "$code" = 2 ] && [ "$(field file <"$out")" = 'command line' ] && ! grep -q '"line"' "$out" ||
  fail "a word has a line of a file: $code, $(cat "$out")"

code=0
motet plan "$job" --search cluster.devices=none 2>"$out" >/dev/null || code=$?
[ "$code" = 2 ] || fail "a bad value exits with $code"
grep -q 'cluster.devices' "$out" || fail "the key is not named: $(cat "$out")"
code=0
motet plan --search 2>/dev/null >/dev/null || code=$?
[ "$code" = 2 ] || fail "a search without a job exits with $code"

# Ctrl-C: the best so far, exit code 130.
code=0
cat >"$job" <<'JOB'
model: tests/data/models/Qwen2-VL-72B-Instruct
cluster: h100
devices: 512
workload: {distribution: wikipedia, images: 2x896x896}
train: {global_batch: 512}
JOB
"$MOTET" plan "$job" --search --summary >"$out" 2>"$out.err" &
search=$!
for _ in $(seq 1 300); do
  grep -qs 'best' "$out.err" && break
  sleep 0.1
done
kill -INT "$search"
wait "$search" || code=$?
[ "$code" = 130 ] || fail "an interrupted search exits with $code: $(tail -n 2 "$out.err")"
grep -q 'interrupted' "$out" || fail "an interrupted search prints no plan"
