#!/bin/sh
# Megatron-LM layouts through the command: even ones against 1F1B's formula and the published interleaved order, an
# uneven one by its ranks' loads.
set -eu
. "$(dirname "$0")/lib.sh"
plan() { expect 0 plan --layout "$1" --ranks "$2" --microbatches "$3" --unit "$4" --json; }

# (M + P - 1) (f + b) with layers alike and nothing at the ends.
plan 'Et|t|t|tL' 4 8 't: f=1, b=2'
near "$(field makespan <"$out")" 33 || fail "1F1B takes $(field makespan <"$out"), not 33"
[ "$(field schedule <"$out")" = '<E+t+L: 1f1b>' ] || fail "schedule: $(field schedule <"$out")"
expect 0 plan --layout 'E(t|)*7tL' --ranks 4 --microbatches 8 --unit 't: f=0.5, b=1' --summary --csv "$out.csv"
sed 's/,,*/,/g; s/^,//; s/,*\r*$//' "$TEST_DATA/schedules/vpp2_p4_m8.csv" >"$out.published"
tr -d '\r' <"$out.csv" | cmp -s - "$out.published" || fail "the interleaved order is not the published one"
plan 'E(t|)*7tL' 4 8 't: f=0.5, b=1'
near "$(field makespan <"$out")" 28.5 || fail "the interleaved order takes $(field makespan <"$out"), not 28.5"

# DeepSeek-V3's example: ranks 0 to 15 hold E ttt + tt, tt + tt, ..., tt + m, tt + L.
expect 0 plan --layout 'Et*3|(tt|)*29,m|L' --ranks 16 --microbatches 32 \
  --unit 'E: f=0.25, b=0.5; t: f=1, b=2; m: f=1.5, b=3; L: f=2, b=4' --json -o "$out.plan"
python3 - "$out" "$out.plan" <<'CHECK' || fail 'loads or layers are not those of the layout'
import json, sys
answer, program = (json.load(open(path)) for path in sys.argv[1:])
per_layer = {"E": 0.75, "t": 3, "m": 4.5, "L": 6}
held = [dict(E=1, t=5)] + [dict(t=4)] * 13 + [dict(t=2, m=1), dict(t=2, L=1)]
for rank, row in enumerate(answer["ranks"]):
    load = 32 * sum(per_layer[kind] * count for kind, count in held[rank].items())
    assert abs(row["busy"] - load) < 1e-9, (rank, row["busy"], load)
layers = [stage["layers"][1] - stage["layers"][0] for stage in program["stages"]]
assert layers == [4] + [2] * 29 + [1, 1], layers
assert answer["verified"] and answer["bound"] <= answer["makespan"]
CHECK

# A layer that trains alone needs no backward in front of it.
plan 'Et|tL' 2 1 't: f=1, b=2; L: f=1, b=2'
near "$(field makespan <"$out")" 9 || fail "all trained: $(field makespan <"$out")"
expect 0 plan --layout 'Et|tL' --ranks 2 --microbatches 1 --unit 't: f=1, b=2; L: f=1, b=2' --trainable L --json
near "$(field makespan <"$out")" 5 || fail "L alone trained: $(field makespan <"$out")"

# Refusals.
expect 2 plan --layout 'Et|xL' --ranks 2 --microbatches 1 --unit 't: f=1' --json
field error <"$out" | grep -q 'column 4' || fail "no column: $(cat "$out")"
expect 1 plan --layout 'Et|t|L' --ranks 2 --microbatches 1 --unit 't: f=1' --json
[ "$(field rule <"$out")" = layout ] || fail "rule: $(cat "$out")"
expect 2 plan --layout 'Et|L' --schedule '<a: 1f1b>' --ranks 2 --microbatches 1 --unit 't: f=1'
expect 2 plan --layout 'Et|L' --ranks 2 --microbatches 1 --unit 'm: f=1'
expect 2 plan --layout 'Et|L' --ranks 2 --microbatches 1 --unit 't: f=1' --trainable llm
