#!/bin/sh
# What goes wrong ends all ranks within seconds, with one message that says what and where.
set -eu
. "$(dirname "$0")/lib.sh"

refuse() { # exit code, pattern, then key=value words
  code=$1 pattern=$2
  shift 2
  expect "$code" train train/job.yaml output_dir="$work/run" "$@"
  [ "$(grep -c '^motet: ' "$out.err")" -eq 1 ] || fail "$*: not one message: $(cat "$out.err")"
  grep -q "$pattern" "$out.err" || fail "$*: the message does not say '$pattern': $(cat "$out.err")"
}

refuse 2 'train.steps' train.stepz=1
refuse 2 'cannot' output_dir=/dev/null/nowhere
refuse 2 'nowhere.jsonl' data.train=nowhere.jsonl
refuse 1 'neighbours' schedule='<vision: transpose, projector: transpose(window=2), llm: 1f1b>'
refuse 2 'vision, projector, llm' trainable='[visoin]'

# Ranks that were started with other jobs, as by a copy that is out of date on one host.
case $(ldd "$MOTET") in *libmpich*) run=mpiexec.mpich ;; *) run='mpirun.openmpi --oversubscribe' ;; esac
code=0
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 $run -n 1 "$MOTET" train train/job.yaml output_dir="$work/run" : \
  -n 1 "$MOTET" train train/job.yaml output_dir="$work/run" train.steps=7 >"$out" 2>&1 || code=$?
[ "$code" -ne 0 ] && grep -q 'another job than other ranks' "$out" || fail "other jobs on other ranks: $code, $(cat "$out")"

# Weights: a missing file, a missing tensor, a file cut short, another shape.
expect 0 train train/job.yaml output_dir="$work/made" train.steps=1
model=$work/made/checkpoints/step-1
from() { refuse "$1" "$2" config= init=pretrained data.tokenizer=../../examples/demo/tokenizer.json model="$3" train.resume=never; }
mkdir "$work/empty"
cp "$model/config.json" "$work/empty"
from 2 'safetensors' "$work/empty"
cp -r "$model" "$work/cut"
truncate -s -1 "$work/cut/model-00002-of-00002.safetensors"
from 2 'model-00002-of-00002.safetensors' "$work/cut"
cp -r "$model" "$work/other"
sed 's/"num_hidden_layers": 4/"num_hidden_layers": 5/' "$model/config.json" >"$work/other/config.json"
from 2 'layers.4' "$work/other"
sed 's/"intermediate_size": 64/"intermediate_size": 96/' "$model/config.json" >"$work/other/config.json"
from 2 '96' "$work/other"

# A run cannot be continued on other data.
refuse 2 'train.seed' output_dir="$work/made" train.steps=2 train.seed=4

# No room for the checkpoint: the last good one stays, the message names rank and file.
expect 0 train train/job.yaml output_dir="$work/full" parallel.pipeline=1 train.steps=1
( ulimit -f 100; expect 3 train train/job.yaml output_dir="$work/full" parallel.pipeline=1 train.steps=2
  grep -q 'rank 0: saving of the checkpoint after step 2' "$out.err" || fail "full disk: $(cat "$out.err")"
  grep -q 'model.safetensors' "$out.err" || fail "full disk, without the file: $(cat "$out.err")" )
[ "$(ls "$work/full/checkpoints")" = step-1 ] || fail "full disk: $(ls "$work/full/checkpoints")"
expect 0 train train/job.yaml output_dir="$work/full" parallel.pipeline=1 train.steps=2
grep -q 'resuming from .*step-1' "$out" || fail "full disk: the last good checkpoint is gone"

wait_for_steps() { # until the run has done two
  for tenth in $(seq 100); do
    [ -s "$work/run/metrics.jsonl" ] && [ "$(wc -l <"$work/run/metrics.jsonl")" -ge 2 ] && return
    sleep 0.1
  done
  fail "no step within ten seconds: $(cat "$out.err")"
}
start() {
  rm -rf "$work/run"
  "$MOTET" train train/job.yaml output_dir="$work/run" train.steps=1000000 >"$out" 2>"$out.err" &
  process=$!
  wait_for_steps
}
finish() {
  code=0
  wait "$process" || code=$?
}

# Ctrl-C finishes the step, saves and ends with 130.
start
kill -INT "$process"
finish
[ "$code" -eq 130 ] || fail "interrupted: exit code $code: $(cat "$out.err")"
ls "$work/run/checkpoints" | grep -q step- || fail "interrupted without a checkpoint"

# A profile has nothing to save and ends at once.
for ranks in 1 2; do
  "$MOTET" profile train/job.yaml parallel.pipeline="$ranks" -o "$work/never.json" >"$out" 2>"$out.err" &
  process=$!
  sleep 0.3
  kill -TERM "$process" 2>/dev/null || true
  begin=$(date +%s)
  finish
  [ $(($(date +%s) - begin)) -le 5 ] || fail "a profile of $ranks ranks does not end"
done

# A killed rank.
start
ranks=$(pgrep -f "output_dir=$work/run " | while read -r candidate; do
  tr '\0' '\n' <"/proc/$candidate/environ" 2>/dev/null | grep -q -E '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=1$' && echo "$candidate"
done || true)
[ -n "$ranks" ] || fail "rank 1 was not found"
begin=$(date +%s)
kill -9 $(echo "$ranks" | head -n 1)
finish
[ "$code" -eq 3 ] || fail "killed: exit code $code: $(cat "$out.err")"
[ $(($(date +%s) - begin)) -le 5 ] || fail "killed: it took more than five seconds"
grep -q 'rank 1' "$out.err" && grep -q 'step' "$out.err" || fail "killed: $(cat "$out.err")"
grep -q '"message": .*rank 1 was' "$work/run/failure.json" || fail "killed: the run does not keep how it failed"
