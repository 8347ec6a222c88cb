#!/bin/sh
# Exit codes, refusals and errors of the planning commands, in JSON and in words.
set -eu
. "$(dirname "$0")/lib.sh"
plan() { wanted=$1 schedule=$2 unit=$3; shift 3; expect "$wanted" plan --schedule "$schedule" --ranks 4 --microbatches 16 --unit "$unit" "$@"; }
says() { grep -q -- "$1" "$out" "$out.err" || fail "expected '$1' in: $(cat "$out" "$out.err")"; }

expect 2 && says 'usage: motet'
expect 2 nonsense && says "no command 'nonsense'"
expect 2 nonsense --json && [ "$(field error <"$out" | cut -c1-30)" = "there is no command 'nonsense'" ] || fail "no document: $(cat "$out")"
expect 0 help && says verify
expect 0 help plan && says -- '--encode'
expect 0 plan --help && says -- '--encode'
expect 2 help nonsense
expect 0 --version && says '^motet [0-9]'
expect 2 plan && says -- '--schedule'
expect 2 plan --ranks x && says "'x' is not a whole number"
expect 2 plan --ranks && says 'needs a value'
expect 2 plan --nonsense 1 && says 'unknown option --nonsense'
expect 2 verify && says 'one FILE'
expect 2 verify /nonexistent && says '/nonexistent'

# --json holds for what is wrong before it; numbers may have exponents; times stay finite.
expect 2 plan --ranks x --json
[ "$(field error <"$out" | cut -c1-7)" = --ranks ] || fail "error: $(cat "$out")"
expect 2 plan --nonsense --json && [ "$(field error <"$out")" = 'unknown option --nonsense' ] || fail "error: $(cat "$out")"
plan 0 '<llm: 1f1b>' 'llm: f=1, b=2' --alpha 1e-3 --beta 1e6 --bytes 1000000 --json
makespan=$(field makespan <"$out")
plan 0 '<llm: 1f1b>' 'llm: f=1, b=2' --alpha 1e-3 --beta 1e6 --bytes 1e6 --json
near "$(field makespan <"$out")" "$makespan" || fail '--bytes 1e6 is not 1000000'
plan 2 '<llm: 1f1b>' 'llm: f=1, b=2' --bytes 1.5 && says 'whole number'
plan 2 '<llm: 1f1b>' 'llm: f=1e308, b=1e308' --json && says 'more than a number holds'

# Stages of 5 and 7 of 12 layers: 5/6 and 7/6 of the even share's time, 4 microbatches of 1 + 2.
expect 0 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 4 --split 5,7 --json
python3 -c 'import json, sys; b = [r["busy"] for r in json.load(open(sys.argv[1]))["ranks"]]; assert abs(b[0] - 10) + abs(b[1] - 14) < 1e-9, b' "$out" || fail 'a split of 12 layers'
expect 0 plan --schedule '<vision+llm: 1f1b>' --unit 'vision: f=1, b=2; llm: f=1, b=2' --ranks 2 --microbatches 4 --split 8,4 --json
python3 -c 'import json, sys; b = [r["busy"] for r in json.load(open(sys.argv[1]))["ranks"]]; assert abs(b[0] - 32) + abs(b[1] - 16) < 1e-9, b' "$out" || fail 'a split of two modules of 6 layers'
expect 1 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 4 --split 5,6,7 && says '2 stages'

# Words name a file once.
expect 2 verify /nonexistent
[ "$(grep -o /nonexistent "$out.err" | wc -l)" -eq 1 ] || fail "the file is named twice: $(cat "$out.err")"

# Refused: 1, with the rule; a broken text: 2, with the column.
plan 1 '<vision: transpose(order=ahead), llm: 1f1b>' 'vision: f=1, b=2; llm: f=1, b=2' --json
[ "$(field accepted <"$out")" = false ] || fail "accepted: $(cat "$out")"
[ "$(field rule <"$out")" = ahead ] || fail "rule: $(cat "$out")"
plan 1 '<vision: gpipe, llm: 1f1b>' 'vision: f=1; llm: f=1, b=2' && says mixed
plan 2 '<vision: transpose, llm: 1f1b' 'vision: f=1; llm: f=1, b=2' --json
[ "$(field error <"$out" | cut -c1-8)" = schedule ] || fail "error: $(cat "$out")"
plan 2 '<vision: transpose, llm: 1f1b>' 'vision: f=1; llm: g=1' && says 'column 19'
plan 2 '<vision: transpose, llm: 1f1b>' 'vision: f=1; llm: f=1' --trainable llm && says 'no backward time'
plan 2 '<vision: transpose, llm: 1f1b>' 'vision: f=1; llm: f=1' --trainable audio && says audio
plan 2 '<llm: 1f1b>' 'llm: f=1, b=2' --encode 1,2 && says 'transpose or inline'
plan 1 '<vision: transpose, llm: 1f1b>' 'vision: f=1; llm: f=1, b=2' --bytes 100 --memory-cap 50 --json
[ "$(field rule <"$out")" = memory ] || fail "rule: $(cat "$out")"
plan 3 '<llm: 1f1b>' 'llm: f=1, b=2' -o /nonexistent/plan.json && says /nonexistent/plan.json
expect 2 plan --schedule '<llm: 1f1b>' --unit 'f=1, b=2' --ranks 1000 --microbatches 1000000 && says 'microbatch-stages'
# Few microbatches on very many ranks take time by their events, not by ranks squared (minutes then).
many() { # schedule, makespan: once through all ranks and back, then the second microbatch
  timeout 30 "$MOTET" plan --schedule "<llm: $1>" --unit 'llm: f=1, b=2' --ranks 60000 --microbatches 2 --json >"$out" || fail "$1 on 60000 ranks"
  near "$(field makespan <"$out")" "$2" || fail "$1 on 60000 ranks: $(field makespan <"$out")"
}
many 1f1b 180003
many zb1p 120003

# The document's parts agree with one another.
plan 0 '<vision: transpose(window=3), llm: 1f1b>' 'vision: f=1, b=2; llm: f=1, b=2' --encode 1,0,2 --alpha 0.25 --json
python3 - "$out" <<'CHECK' || fail "the document's parts disagree"
import json, sys
d = json.load(open(sys.argv[1]))
idle = sum(r["idle"] for r in d["ranks"])
assert abs(sum(d["idle_by_cause"].values()) - idle) < 1e-9 * idle
assert set(d["idle_by_cause"]) == {"warm_up", "cool_down", "stage_imbalance", "microbatch_variance", "communication",
                                   "data_parallel_wait", "input_stall"}
for r in d["ranks"]:
    assert abs(r["busy"] + r["idle"] - d["makespan"]) < 1e-9 * d["makespan"]
assert abs(d["idle_share"] - idle / (4 * d["makespan"])) < 1e-12
# 16 microbatches, a third of them (5) without data: 11 encodes, times 1 and 2 six and five times, plus the body.
assert abs(sum(r["busy"] for r in d["ranks"]) - (16 * 4 * 3 + 3 * (6 * 1 + 5 * 2))) < 1e-9
assert d["peak_features"] <= 3 and d["bound"] <= d["makespan"] and d["verified"] and d["accepted"]
CHECK

# A program written, read, verified and simulated says the same; a damaged one is refused with its place.
plan 0 '<vision: transpose, llm: 1f1b>' 'vision: f=1; llm: f=1, b=2' -o "$out.plan" --json
cp "$out" "$out.answer"
expect 0 simulate "$out.plan" --json && cmp -s "$out" "$out.answer" || fail "the plan's file answers otherwise than the plan"
makespan=$(field makespan <"$out") digest=$(field digest <"$out")
expect 0 verify "$out.plan" --json
[ "$(field digest <"$out")" = "$digest" ] || fail 'the digest changed on the way through the file'
expect 0 simulate "$out.plan" --unit 'vision: f=1; llm: f=1, b=2' --json
near "$(field makespan <"$out")" "$makespan" || fail 'the makespan changed on the way through the file'
expect 2 simulate "$out.plan" --unit 'llm: f=1, b=2' && says vision
LC_ALL=C expect 0 show "$out.plan" --width 60 && says 'rank 0' && [ ! -s "$out.err" ] || fail "a note: $(cat "$out.err")"
expect 0 show "$out.plan" --json
python3 - "$out" "$out.answer" <<'CHECK' || fail 'show answers otherwise than plan'
import json, sys
shown, planned = (json.load(open(path)) for path in sys.argv[1:])
assert shown.pop("step") is None and shown == planned
CHECK
expect 2 simulate "$out.plan" --alpha 1 && says 'go with --unit'
sed '/^"times": {/,/^"buffers"/{/^"buffers"/!d;}' "$out.plan" >"$out.untimed"
expect 2 simulate "$out.untimed" && says 'has no times'
LC_ALL=C expect 0 show "$out.untimed" --width 60 && says 'rank 0'
grep -q 'no times of its own' "$out.err" || fail 'whose times are drawn is not said'
expect 0 show "$out.plan" --unit 'f=1, b=2' --json && [ ! -s "$out.err" ] || fail "a note: $(cat "$out.err")"
LC_ALL=C expect 0 show "$out.plan" --width 60
[ "$(awk '{ if (length($0) > most) most = length($0) } END { print most }' "$out")" -le 60 ] || fail 'wider than asked'
head -c 300 "$out.plan" >"$out.cut"
expect 2 verify "$out.cut" --json
[ "$(field file <"$out")" = "$out.cut" ] || fail "file: $(cat "$out")"
