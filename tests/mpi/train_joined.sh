#!/bin/sh
# Regions that take several microbatches at a time: the losses of batch=1 to rounding, under `deterministic: exact` its
# bits; with frozen encoders and trained ones, a cache of features, and a run that is continued. What is planned is what
# runs, and what ran is reported.
set -eu
. "$(dirname "$0")/lib.sh"

joined='<vision+projector: transpose(batch=4), llm: 1f1b>'
both='<vision+projector: transpose(batch=2), llm: 1f1b(batch=3)>'
plain='<vision+projector: transpose, llm: 1f1b>'
run() {
  name=$1
  shift
  expect 0 train train/job.yaml output_dir="$work/$name" train.microbatches=6 train.global_batch=12 train.search_seconds=0 \
    train.learning_rate=1e-3 "$@"
}
# Features and losses differ by the rounding of products cut otherwise, gradients by the order of one sum: some 1e-7 a step.
near() {
  losses "$1" >"$work/one"
  [ "$(wc -l <"$work/one")" -eq 6 ] && losses "$2" | paste "$work/one" - | awk '!(($1 - $2) ^ 2 < 1e-10 * $1 ^ 2) { exit 1 }' ||
    fail "$2: $(losses "$2" | tr '\n' ' '), not $(losses "$1" | tr '\n' ' ')"
}
same() { [ "$(losses "$1") $(weights "$1")" = "$(losses "$2") $(weights "$2")" ] || fail "$2: not the bits of $1"; }
# "runs of several, instructions in them" of the last step's program.
joins() {
  python3 - "$work/$1/timeline/step-6.program.json" <<'END'
import json, sys
runs = members = 0
for rank in json.load(open(sys.argv[1]))["lists"]:
    before = False
    for text in rank:
        now = text.endswith("joined")
        runs, members, before = runs + (now and not before), members + (now or before), now
print(runs, members)
END
}

for trainable in all '[llm]'; do
  kind=$(echo "$trainable" | tr -d '[]')
  run "plain_$kind" trainable="$trainable" schedule="$plain" train.timeline_every=0
  run "joined_$kind" trainable="$trainable" schedule="$joined" train.timeline_every=6
  run "both_$kind" trainable="$trainable" schedule="$both" train.timeline_every=6 parallel.pipeline=3
  near "plain_$kind" "joined_$kind"
  near "plain_$kind" "both_$kind"
  [ "$(weights "plain_$kind")" != "$(weights "both_$kind")" ] || fail "$kind: nothing was computed at once"
  [ "$(joins "joined_$kind")" != "0 0" ] && [ "$(joins "both_$kind")" != "0 0" ] || fail "$kind: no run of several microbatches"
done
run frozen_ahead trainable='[llm]' schedule='<vision+projector: transpose(batch=4, order=ahead), llm: 1f1b>' train.timeline_every=0
near plain_llm frozen_ahead

exact() { run "$@" deterministic=exact train.timeline_every=0; }
exact exact_plain schedule="$plain"
exact exact_both schedule="$both" parallel.pipeline=3 memory.recompute=all
same exact_plain exact_both
exact exact_moved schedule="$joined" train.steps=3
exact exact_moved schedule="$plain"
grep -q 'resuming from .*step-3' "$out" || fail "it did not resume: $(cat "$out")"
same exact_plain exact_moved

# Some microbatches' features are cached, those of others computed picture by picture; the projector takes both at once.
for step in cold warm some; do
  [ "$step" != some ] || rm "$(find "$work/cache" -type f | sort | head -1)"
  run "cache_$step" trainable='[projector, llm]' schedule="$joined" data.feature_cache="$work/cache" train.timeline_every=0
done
run cache_none trainable='[projector, llm]' schedule="$plain" train.timeline_every=0
for step in cold warm some; do near cache_none "cache_$step"; done

# The plan says what runs; the report reads what ran.
expect 0 plan train/job.yaml schedule="$joined" train.microbatches=6 train.global_batch=12 -o "$work/plan.json"
expect 0 simulate "$work/plan.json"
expect 0 verify "$work/joined_all/timeline/step-6.program.json"
expect 0 report "$work/joined_all" -o "$work/report.html"
expect 2 train train/job.yaml output_dir="$work/context" parallel.context=2 parallel.pipeline=1 schedule='<vision+projector: transpose, llm: 1f1b(batch=2)>'
grep -q 'accepted: batch=1' "$out.err" || fail "shares of several microbatches: $(cat "$out.err")"
