#!/bin/sh
# Faults of single ranks while 2 to 4 of them train: stopped, killed, no room for a file, no memory, a loss that is no
# number. All end within five seconds, with one message that names the rank and where it was; what was saved loads.
set -eu
. "$(dirname "$0")/lib.sh"

start() { # ranks, then key=value words; returns after three steps, and so behind the first two's checkpoint
  ranks=$1
  shift
  rm -rf "$work/run"
  "$MOTET" train train/job.yaml output_dir="$work/run" parallel.pipeline="$ranks" train.steps=1000000 "$@" >"$out" 2>"$out.err" &
  process=$!
  reach_steps 3
}
goes_on() { # ranks: the last good checkpoint loads
  last=$(ls "$work/run/checkpoints" | sed -n 's/^step-//p' | sort -n | tail -n 1)
  expect 0 train train/job.yaml output_dir="$work/run" parallel.pipeline="$1" train.steps=$((last + 1))
  grep -q "resuming from .*step-$last\$" "$out" || fail "$1 ranks do not go on from step $last: $(cat "$out")"
}
place='(was at instruction [0-9]+ of step [0-9]+ \([A-Z_]+( of [a-z+]+, microbatch [0-9]+)?\)|was between steps|was saving)'

# A rank that is stopped cannot say so: the starter ends it.
for ranks in 2 4; do
  start "$ranks" train.save_every=2
  begin=$(date +%s)
  kill -STOP "$(rank_process $((ranks - 1)))"
  ends 3 "rank was stopped \(SIGSTOP\).*: rank $((ranks - 1)) $place"
done
goes_on 4

# A whole job that someone halts for a while is none of that.
start 2
for rank in 0 1; do kill -STOP "$(rank_process $rank)"; done
sleep 3
for rank in 0 1; do kill -CONT "$(rank_process $rank)"; done
begin=$(date +%s)
kill -INT "$process"
ends 130 'stopped after step'

# Killed, the one that would report.
start 3 train.save_every=2
begin=$(date +%s)
kill -KILL "$(rank_process 0)"
ends 3 "rank was killed.*: rank 0 $place"
goes_on 3

# The launcher is killed, which the ranks do not survive.
start 3 train.save_every=2
begin=$(date +%s)
kill -KILL "$(pgrep -P "$process")"
ends 3 "the ranks' launcher was ended by signal 9 \(Killed\), and the job with it"
goes_on 3

# One rank of several has no room for its part: the others' checkpoint is not kept.
start 4 train.save_every=1
sleep 0.5
prlimit --pid "$(rank_process 1)" --fsize=8192
begin=$(date +%s)
ends 3 'rank 1: saving of the checkpoint after step [0-9]+: .*(model|optimizer)-00002-of-00004.safetensors.*File too large'
goes_on 4

# A newer checkpoint with a shard cut short is passed over.
damaged=$work/run/checkpoints/step-$((last + 1))
truncate -s -1 "$damaged/model-00002-of-00004.safetensors"
expect 0 train train/job.yaml output_dir="$work/run" parallel.pipeline=3 train.steps=$((last + 2))
grep -q "step-$((last + 1)) is passed over: .*model-00002-of-00004.safetensors" "$out" || fail "a damaged shard is not found: $(cat "$out")"
grep -q "resuming from .*step-$last\$" "$out" || fail "not from the last good checkpoint: $(cat "$out")"

refuse() { # exit code, pattern, then key=value words
  begin=$(date +%s)
  rm -rf "$work/run"
  code=$1 pattern=$2
  shift 2
  "$MOTET" train train/job.yaml output_dir="$work/run" "$@" >"$out" 2>"$out.err" &
  process=$!
  ends "$code" "$pattern"
}
# Gradients that are no numbers: who sees them first says so.
refuse 3 'rank [0-9]+: instruction [0-9]+: step [0-9]+, OPTIM: the gradients are not finite' parallel.pipeline=3 \
  train.learning_rate=1000 train.clip_norm=0 train.steps=1000
# A directory in which nothing can be made, whoever asks.
refuse 2 '/sys/motet: the directory cannot be made' parallel.pipeline=3 output_dir=/sys/motet
# Weights of more memory than a rank may have.
case $SANITIZE in *address*) exit 0 ;; esac # which takes terabytes of addresses
sed 's/"vocab_size": [0-9]*/"vocab_size": 60000000/' train/config.json >"$work/large.json"
ulimit -v 6000000
refuse 3 'rank [0-9]+: no memory for weights \([0-9]+ bytes\)' parallel.pipeline=4 config="$work/large.json"
