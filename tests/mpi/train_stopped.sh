#!/bin/sh
# Ranks that were started by an MPI launcher of their own and hang in a way that nobody can see from outside: one that is
# stopped is named by the next, rank 0 too, within five seconds. A halted job is none of that, nor is a rank to wait for.
set -eu
. "$(dirname "$0")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launcher="mpirun.openmpi -q --bind-to none --oversubscribe"
if ldd "$MOTET" | grep -q mpich; then launcher=mpiexec.mpich; fi

start() { # ranks, then key=value words; returns after three steps
  ranks=$1
  shift
  rm -rf "$work/run"
  $launcher -n "$ranks" "$MOTET" train train/job.yaml output_dir="$work/run" parallel.pipeline="$ranks" train.steps=1000000 \
    "$@" >"$out" 2>"$out.err" &
  process=$!
  reach_steps 3
}

for rank in 1 0; do
  # Rank 0 after the time that holds without the key.
  if [ $rank -eq 0 ]; then seconds=3; start 3 train.save_every=2; else seconds=1; start 3 train.save_every=2 train.heartbeat_seconds=1; fi
  begin=$(date +%s)
  kill -STOP "$(rank_process $rank)"
  ends "not 0" "rank $rank: nothing has been heard of it for $seconds seconds .*: rank $rank (was at instruction|was between|was saving)"
  grep -q "\"rank\": $rank" "$work/run/failure.json" || fail "failure.json: $(cat "$work/run/failure.json")"
done
last=$(ls "$work/run/checkpoints" | sed -n 's/^step-//p' | sort -n | tail -n 1)
expect 0 train train/job.yaml output_dir="$work/run" parallel.pipeline=1 train.steps=$((last + 1))
grep -q "resuming from .*step-$last\$" "$out" || fail "it does not go on from step $last: $(cat "$out")"

# All ranks halted, and one rank where that is allowed, for longer than what else counts as a failure: the job goes on.
for all in yes no; do
  if [ $all = yes ]; then start 2 train.heartbeat_seconds=1; else start 2 train.heartbeat_seconds=0; fi
  halted="$(rank_process 1)"
  [ $all = no ] || halted="$halted $(rank_process 0)"
  kill -STOP $halted
  sleep 1.8
  kill -CONT $halted
  reach_steps $(($(wc -l <"$work/run/metrics.jsonl") + 10))
  kill -TERM "$(rank_process 0)" # finishes the step and saves
  code=0
  wait "$process" || code=$?
  grep -q 'stopped after step' "$out.err" || fail "halted, all: $all; exit code $code: $(cat "$out.err")"
done
