#!/bin/sh
# Memory that is refused to one rank of two, in the middle of a run: all end within five seconds, with one message that says
# which rank, what for and how much, and in a step the instruction, region and microbatch; what was saved before loads.
set -eu
. "$(dirname "$0")/lib.sh"
case $SANITIZE in *address*) echo "skipped: the address sanitizer has an allocator of its own"; exit 77 ;; esac
"$CC" -O1 -shared -fPIC -o "$work/no_memory.so" "$(dirname "$0")/no_memory.c"

train() { # key=value words
  expect "$code" train train/job.yaml output_dir="$work/run" train.save_every=1 train.search_seconds=0 train.timeline_every=0 "$@"
}
refused() { # pattern of the message, then key=value words
  pattern=$1 code=3
  shift
  train "$@"
  [ $(($(date +%s) - $(stat -c %Y "$work/run/metrics.jsonl"))) -le 5 ] || fail "$pattern: more than five seconds behind the last step"
  one_message "$pattern"
}

# How often rank 1 asks in one step, with all before and behind it; then one time after the other is refused in what follows.
code=0
export NO_MEMORY_RANK=1
LD_PRELOAD=$work/no_memory.so NO_MEMORY_REPORT=$work/asked train train.steps=1
first=$(cat "$work/asked")
[ "$first" -gt 100 ] || fail "$first allocations in a run: they are not counted"
for more in 25 110 190; do
  export LD_PRELOAD="$work/no_memory.so" NO_MEMORY_AT=$((first + more))
  refused '^motet: ([^ ]*[^:]: |[^ ]*, line [0-9]+: )?rank 1: .*no memory for [a-z]' train.steps=4 train.resume=never
  unset LD_PRELOAD
done
[ "$(ls "$work/run/checkpoints" | grep -c '^step-[0-9]*$')" -ge 1 ] || fail "no checkpoint is left"
last=$(ls "$work/run/checkpoints" | sed -n 's/^step-//p' | sort -n | tail -n 1)
code=0
train parallel.pipeline=1 train.steps=$((last + 1))
grep -q "resuming from .*step-$last\$" "$out" && ! grep -q 'passed over' "$out" || fail "not from step $last: $(cat "$out")"

# A limit of the system, which a step with one very long sample goes beyond: the others need 200 MB less.
sed -e 's/"max_position_embeddings": 1024/"max_position_embeddings": 16384/' -e '/llm_config/,/vision_config/s/"hidden_size": 32/"hidden_size": 256/' \
  -e '/llm_config/,/vision_config/s/"intermediate_size": 64/"intermediate_size": 1024/' train/config.json >"$work/config.json"
awk 'NR == 4 { words = ""; for (i = 0; i < 3000; i++) words = words " the blue"; sub(/Of a blue/, "Of" words) } { print }' train/train.jsonl >"$work/long.jsonl"
rm -rf "$work/run"
"$MOTET" train train/job.yaml output_dir="$work/run" config="$work/config.json" train.steps=100000 train.learning_rate=1e-4 >"$out" 2>"$out.err" &
process=$!
for tenth in $(seq 100); do [ -s "$work/run/metrics.jsonl" ] && break; sleep 0.1; done
most=0
for rank in $(pgrep -f "output_dir=$work/run "); do
  size=$(awk '/^VmPeak/ { print $2 }' "/proc/$rank/status" 2>/dev/null || echo 0)
  [ "${size:-0}" -le "$most" ] || most=$size
done
kill -TERM "$process"
wait "$process" || true
rm -rf "$work/run"
( ulimit -v $((most + 100000))
  refused '^motet: rank [01]: instruction [0-9]+: microbatch [0-9]+: step [1-5], [A-Z_]+ of llm \(stage [0-9]+\): no memory for [a-z ]+ \([0-9]{8,} bytes\)' \
    config="$work/config.json" data.train="$work/long.jsonl" train.steps=5 train.learning_rate=1e-4 )
