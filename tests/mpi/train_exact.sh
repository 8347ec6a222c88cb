#!/bin/sh
# deterministic: exact: the same losses and weights, bit for bit, after 20 steps under any schedule, pipeline and data
# width, also when a run is continued under another; and by default the same bits on the same plan.
set -eu
. "$(dirname "$0")/lib.sh"

run() {
  name=$1
  shift
  expect 0 train train/job.yaml output_dir="$work/$name" train.steps=20 train.microbatches=6 train.search_seconds=0.001 \
    train.timeline_every=0 "$@"
}
exact() { run "$@" deterministic=exact; }
digests() { sed -n 's/.*"loss": \([^,]*\),.*"weights_digest": "\([0-9a-f]*\)".*/\1 \2/p' "$work/$1/metrics.jsonl"; }
same() { [ "$(digests "$1")" = "$(digests "$2")" ] || fail "$3: $(digests "$2" | tail -1), not $(digests "$1" | tail -1)"; }

exact alone parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>'
[ "$(digests alone | wc -l)" -eq 20 ] || fail "twenty steps, twenty digests"
[ "$(digests alone | sort -u | wc -l)" -eq 20 ] || fail "every step changes the weights"
grep -q "weights $(digests alone | tail -1 | cut -d' ' -f2)" "$out" || fail "the step's line shows the digest"
for variant in "2 1 6 <vision+projector: transpose, llm: 1f1b>" "2 2 3 <vision+projector: transpose(order=prefix), llm: gpipe>" \
  "1 3 2 <vision+projector: inline, llm: 1f1b>" "3 1 6 <vision+projector: dedicate(ranks=1), llm: 1f1b>" "3 1 6 <vision+projector: inline, llm: 1f1b(virtual=2)>"; do
  set -- $variant
  pipeline=$1 data=$2 microbatches=$3
  shift 3
  exact wide parallel.pipeline="$pipeline" parallel.data="$data" train.microbatches="$microbatches" schedule="$*" train.resume=never
  same alone wide "P=$pipeline D=$data $*"
done

# Continued twice, each time under another width and schedule.
exact moved train.steps=7
exact moved train.steps=13 parallel.pipeline=1 parallel.data=2 train.microbatches=3 schedule='<vision+projector: inline, llm: 1f1b>'
grep -q 'resuming from .*step-7' "$out" || fail "it did not resume"
# Both replicas wrote about half of that checkpoint, optimizer state too.
for family in model optimizer; do
  sizes=$(cd "$work/moved/checkpoints/step-13" && wc -c $family-0000?-of-00002.safetensors | awk '$2 != "total" { print $1 }' | sort -n | tr '\n' ' ')
  echo "$sizes" | awk 'NF != 2 || $1 < 0.7 * $2 { exit 1 }' || fail "$family is not shared out: $sizes"
done
exact moved parallel.pipeline=3
same alone moved "resumed twice under other plans"
code=0
motet train train/job.yaml output_dir="$work/moved" train.steps=21 train.microbatches=4 deterministic=exact >"$out" 2>&1 || code=$?
[ "$code" -ne 0 ] && grep -q 'train.microbatches times parallel.data' "$out" || fail "other microbatches were not refused: $(cat "$out")"
# Nor is another model on the same weights: these shapes are alike.
sed 's/"rope_theta": 10000.0/"rope_theta": 5000.0/' train/config.json >"$work/config.json"
expect 2 train train/job.yaml output_dir="$work/moved" train.steps=21 train.microbatches=6 deterministic=exact config="$work/config.json"
grep -q 'another decoder.rope_theta' "$out.err" || fail "another config was not refused: $(cat "$out.err")"

# Sums as they come: the same plan repeats its bits; another one is equal to rounding alone.
run one train.steps=5
run again train.steps=5
same one again "the same plan"
run other train.steps=5 parallel.pipeline=1
[ "$(digests one | tail -1)" != "$(digests other | tail -1)" ] || fail "this test cannot tell exact sums from others"
