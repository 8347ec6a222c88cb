#!/bin/sh
# A run watched: before it starts, under way with a line half written, gone back, finished, failed; in a terminal too.
set -eu
. "$(dirname "$0")/lib.sh"
run=$(dirname "$out")/run
says() { grep -q -- "$1" "$out" || fail "no '$1' in: $(cat "$out")"; }
line() { printf '{"step": %d, "loss": %s, "learning_rate": 0.001, "gradient_norm": 0.5, "tokens": 1000, "step_seconds": 0.5, "makespan_seconds": 0.45, "simulated_seconds": 0.3, "mfu": null, "idle_share": 0.25, "memory_bytes": 1048576}\n' "$1" "$2"; }
export LC_ALL=C COLUMNS=80

expect 2 watch "$run" # nothing there, and nobody who waits
grep -q 'does not exist' "$out.err" || fail "a path that is not there is waited for: $(cat "$out.err")"
expect 2 watch "$run" --once
mkdir "$run"
expect 0 watch "$run" --once
says 'waiting'
: >"$out.file"
expect 2 watch "$out.file"
expect 2 watch "$run" "$run"
expect 2 watch "$run" "$run" --json
grep -q '"error"' "$out" || fail "no JSON error: $(cat "$out")"
expect 0 watch "$run" --json
python3 - "$out" <<'CHECK' || fail 'document of a run that has not started'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["last_step"] is d["failure"] is d["timeline_step"] is None and not d["finished"] and d["evaluations"] == []
CHECK

# A plan: as show draws it, and its document.
expect 0 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 1 --microbatches 1 --json -o "$out.plan"
cp "$out" "$out.answer"
expect 0 watch "$out.plan"
says 'rank 0'
! grep -q 'no times' "$out" || fail 'drawn with other times than its own'
expect 0 watch "$out.plan" --json
python3 - "$out" "$out.answer" <<'CHECK' || fail 'watch answers otherwise than plan'
import json, sys
watched, planned = (json.load(open(path)) for path in sys.argv[1:])
assert watched.pop("step") is None and watched == planned
CHECK
expect 2 watch

mkdir "$run/timeline"
printf 'model: x\ntrain:\n  steps: 10\n' >"$run/job.yaml"
for step in 1 2 3 4; do line "$step" "$((9 - step)).5"; done >"$run/metrics.jsonl"
printf '{"step": 5, "loss": 1' >>"$run/metrics.jsonl"
printf '{"step": 2, "eval_loss": 7.25}\n' >"$run/evaluation.jsonl"
expect 0 watch "$run"
says 'step 4 of 10 (40%)'
expect 0 watch "$run" --json
python3 - "$out" <<'CHECK' || fail "document of a run under way: $(cat "$out")"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["last_step"]["step"] == 4 and d["last_step"]["loss"] == 5.5 and d["planned_steps"] == 10 and not d["finished"]
assert d["evaluations"] == [{"step": 2, "loss": 7.25}]
CHECK
expect 0 watch "$run"
says '   3 s left' # six steps of half a second
says 'loss 5.5'
says 'tokens/s 2000'
says '+50.0%'
says 'idle 25%'
says '7.25 (step 2)'
says 'memory 1 MiB'
says '\*'
[ "$(wc -L <"$out")" -le 80 ] || fail 'a line is wider than the terminal'
LC_ALL=C.UTF-8 expect 0 watch "$run" --once --width 120
says '⠉\|⠒\|⣀\|⡀\|⢄'
[ "$(LC_ALL=C.UTF-8 wc -L <"$out")" -le 120 ] || fail 'a line is wider than asked for'

# The newest timeline.
expect 0 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 2 -o "$run/timeline/step-4.program.json" --summary
python3 - "$run/timeline/step-4" <<'TIMES'
import json, sys
program = json.load(open(sys.argv[1] + ".program.json"))
count = sum(len(rank) for rank in program["lists"])
json.dump({"start": [k for k in range(count)], "finish": [k + 0.5 for k in range(count)]}, open(sys.argv[1] + ".times.json", "w"))
TIMES
expect 0 watch "$run"
says 'step 4, measured'
says 'rank 1'
echo broken >"$run/timeline/step-4.times.json"
expect 0 watch "$run"
says 'loss 5.5'

# In a terminal: the other screen, left again on q and on Ctrl-C; what comes meanwhile is drawn.
python3 - "$MOTET" "$run" "$(line 5 4.125)" <<'TERMINAL' || fail 'in a terminal'
import os, pty, select, sys, time
motet, run, more = sys.argv[1:]
for key in (b"q", b"\x03"):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(motet, ["motet", "watch", run, "--interval", "0.1"])
    seen, sent, end = b"", False, time.time() + 20
    while time.time() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
        if not sent and b"loss 5.5" in seen and key == b"q":
            text = open(run + "/metrics.jsonl").read()
            open(run + "/metrics.jsonl", "w").write(text[: text.rindex("\n") + 1] + more + "\n")
        if not sent and b"loss 4.125" in seen:
            os.write(terminal, key)
            sent = True
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, (key, code)
    assert seen.index(b"\x1b[?1049h") < seen.index(b"loss") < seen.rindex(b"\x1b[?1049l"), key
    assert seen.endswith(b"\x1b[?25h\x1b[?1049l"), seen[-40:]
# A run to come is waited for where it can come; not where its directory's place is missing too.
for place, wanted in ((run + "-to-come/", 0), (run + "-to-come/deeper", 2)):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(motet, ["motet", "watch", place])
    seen = b""
    while b"waiting" not in seen and b"neither" not in seen:
        seen += os.read(terminal, 65536)
    os.write(terminal, b"q")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == wanted, (place, code, seen)
TERMINAL

line 10 1.5 >>"$run/metrics.jsonl"
expect 0 watch "$run"
says 'finished'
line 3 6.5 >"$run/metrics.jsonl" # resumed from step 2, the file written anew
printf '{"message": "out of pictures", "rank": 1, "microbatch": 3}\n' >"$run/failure.json"
expect 0 watch "$run"
says 'step 3 of 10'
says 'This run failed: rank 1: microbatch 3: out of pictures'
if grep -q 'left' "$out"; then fail 'a failed run has time left'; fi
echo '{' >"$run/failure.json"
expect 2 watch "$run"
