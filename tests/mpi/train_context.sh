#!/bin/sh
# motet train with context parallelism: the same losses as alone whatever the plane, the groups, the pipeline and the
# replicas; the same bits run to run; evaluation, resuming, records; and what is refused, with its key.
set -eu
. "$(dirname "$0")/lib.sh"

run() { name=$1; shift; expect 0 train train/job.yaml output_dir="$work/$name" "$@"; }

run alone parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>' train.eval_every=3
for variant in "1 1 4 3 flexible 1 <vision+projector: transpose, llm: 1f1b>" "2 1 4 2 static 2 <vision+projector: transpose(order=prefix), llm: 1f1b>" \
  "1 2 2 2 flexible 2 <vision+projector: inline, llm: 1f1b>"; do
  set -- $variant
  pipeline=$1 data=$2 microbatches=$3 context=$4 degrees=$5 ulysses=$6
  shift 6
  run wide parallel.pipeline="$pipeline" parallel.data="$data" parallel.context="$context" train.microbatches="$microbatches" \
    context.degrees="$degrees" context.ulysses="$ulysses" schedule="$*" train.eval_every=3 train.resume=never
  for key in loss gradient_norm; do
    [ "$(column alone $key)" = "$(column wide $key)" ] || fail "P=$pipeline D=$data C=$context $degrees $*: other $key: $(column wide $key)"
  done
  for step in 1 2; do
    a=$(sed -n "${step}s/.*eval_loss\": \([0-9.]*\).*/\1/p" "$work/alone/evaluation.jsonl" | cut -c1-6)
    b=$(sed -n "${step}s/.*eval_loss\": \([0-9.]*\).*/\1/p" "$work/wide/evaluation.jsonl" | cut -c1-6)
    [ -n "$a" ] && [ "$a" = "$b" ] || fail "C=$context: evaluation loss $b instead of $a"
  done
done
for key in planning_seconds group_wait_seconds; do
  [ "$(grep -c "\"$key\": " "$work/wide/metrics.jsonl")" -eq 6 ] || fail "metrics.jsonl lacks $key"
done

# The same bits again; resumed with the same losses, and by one rank alone.
plane="parallel.pipeline=1 parallel.context=2"
run one $plane
grep -q 'planned in .* ms, waited' "$out" || fail "no planning time"
run two $plane
[ -n "$(weights one)" ] && [ "$(weights one)" = "$(weights two)" ] || fail "another run, other bits"
run parts $plane train.steps=3
run parts $plane train.steps=6
grep -q 'resuming from .*step-3' "$out" || fail "it did not resume"
[ "$(column parts loss)" = "$(column alone loss)" ] || fail "resumed: $(column parts loss)"
run one train.steps=8 $plane
run two train.steps=8 parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>'
[ "$(column one loss)" = "$(column two loss)" ] || fail "one rank goes on differently: $(column two loss)"

# The plan of a job: proven and simulated like every other.
expect 0 plan train/job.yaml parallel.context=2 -o "$work/plan.json"
expect 0 verify "$work/plan.json"
grep -q '4 ranks' "$out" || fail "a plan for four ranks: $(cat "$out")"
expect 0 compare "$work/wide"
expect 0 report "$work/wide" -o "$work/report.html"

# Refused, with the key and what would be right.
expect 1 train train/job.yaml output_dir="$work/no" $plane context.rank_tokens=20
grep -q 'context.rank_tokens: .*2 ranks that take 20 tokens each: more microbatches' "$out.err" || fail "$(cat "$out.err")"
expect 1 train train/job.yaml output_dir="$work/no" $plane schedule="<vision: 1f1b, projector: 1f1b, llm: 1f1b>"
expect 1 train train/job.yaml output_dir="$work/no" $plane context.ulysses=3
grep -q 'context.ulysses: .*1, 2, 4 can' "$out.err" || fail "$(cat "$out.err")"
expect 2 train train/job.yaml output_dir="$work/no" $plane deterministic=exact
grep -q 'deterministic: exact' "$out.err" || fail "$(cat "$out.err")"
