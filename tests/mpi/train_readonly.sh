#!/bin/sh
# Directories of a run that let nobody write any more while two ranks train, as after an error of a disk: all end within
# five seconds with one message that names rank and file, and the last good checkpoint loads. Root may write wherever
# permissions say otherwise: a mount of the ranks' own, laid over the directory, is read-only for root too.
set -eu
. "$(dirname "$0")/lib.sh"
unshare -m --propagation private true 2>/dev/null || { echo "skipped: this machine lets nobody make mounts of their own"; exit 77; }

start() { # key=value words; returns after three steps
  rm -rf "$work/run"
  unshare -m --propagation private "$MOTET" train train/job.yaml output_dir="$work/run" train.steps=1000000 "$@" >"$out" 2>"$out.err" &
  process=$!
  reach_steps 3
}
spoil() { # directory; once no rank writes there
  nsenter -t "$process" -m sh -c 'mount --bind "$1" "$1" && for n in $(seq 200); do mount -o remount,bind,ro "$1" 2>&1 && exit; done; exit 1' - "$1" >"$out.mount" ||
    fail "no mount: $(tail -n 1 "$out.mount")"
}

# Everything, with what would tell of the failure; and the place of checkpoints alone.
for directory in run run/checkpoints; do
  start train.save_every=2 train.timeline_every=0
  begin=$(date +%s)
  spoil "$work/$directory"
  ends 3 "rank [01]: saving of the checkpoint after step [0-9]+: .*Read-only file system"
  grep -q "$work/run/checkpoints" "$out.err" || fail "no file is named: $(cat "$out.err")"
done
grep -q 'Read-only file system' "$work/run/failure.json" || fail "the run does not keep how it failed"
last=$(ls "$work/run/checkpoints" | sed -n 's/^step-//p' | sort -n | tail -n 1)
expect 0 train train/job.yaml output_dir="$work/run" parallel.pipeline=1 train.steps=$((last + 1))
grep -q "resuming from .*step-$last\$" "$out" && ! grep -q 'passed over' "$out" || fail "not from step $last: $(cat "$out")"

# What is measured: timelines, and the metrics' own file, which is open and may not grow. It is the first of a step's files
# to be written, and after ten steps behind the limit; the launcher, which writes the ranks' output, has none.
start train.timeline_every=1
begin=$(date +%s)
spoil "$work/run/timeline"
ends 3 'rank 0: .*/timeline/step-[0-9]+\..*Read-only file system'
start train.timeline_every=0
reach_steps 10
begin=$(date +%s)
prlimit --pid "$(rank_process 0)" --fsize=4096
ends 3 'metrics.jsonl.*rank 0: .*File too large|rank 0: .*metrics.jsonl.*File too large'
