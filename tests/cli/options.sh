#!/bin/sh
# Every numeric option refuses what no number of its kind is, by name; options of one manner of planning have no place in
# another.
set -eu
. "$(dirname "$0")/lib.sh"
says() { grep -q -- "$1" "$out" "$out.err" || fail "expected '$1' in: $(cat "$out" "$out.err")"; }
folder=$(dirname "$out")
expect 0 plan --schedule '<llm: 1f1b>' --unit 'llm: f=1, b=2' --ranks 2 --microbatches 2 --summary -o "$folder/plan.json"
echo '{"attn_s_per_area": 1e-12, "linear_s_per_token": 1e-9, "fixed_s": 0, "ring_bytes_per_token": 1, "bandwidth_bytes_per_s": {"2": 1e9}, "latency_s_per_hop": 0, "overlap": true}' >"$folder/cost.json"
model=$TEST_DATA/models/Qwen3-VL-30B-A3B-Instruct
# refuse VALUES COMMAND WORD... -- OPTION...: each option with each value
refuse() {
  values=$1
  shift
  words=
  while [ "$1" != -- ]; do
    words="$words $1"
    shift
  done
  shift
  for option in "$@"; do
    for value in $values x; do
      # shellcheck disable=SC2086
      expect 2 $words "--$option=$value" --json && says "--$option: '$value' is not"
    done
  done
}
whole='0 1e300'
refuse "$whole" plan -- ranks microbatches replicas memory-cap
refuse '-1 1.5 9223372036854775807' plan -- bytes
refuse '-1 1e400' plan -- alpha
refuse '0 inf' plan -- beta time-limit
refuse "0 1001" show "$folder/plan.json" -- width
refuse "$whole" show "$folder/plan.json" -- step
refuse 0 simulate "$folder/plan.json" --unit f=1,b=2 -- beta
refuse "$whole" report "$folder/plan.json" -o "$folder/page.html" -- step
refuse 0 report "$folder/plan.json" -o "$folder/page.html" -- interval beta
refuse -1 verify "$folder/plan.json" -- capacity
refuse -1 model "$model" -- tokens
refuse "$whole" model "$model" -- expert-parallel
refuse "$whole" pack distribution:msrvtt --cost "$folder/cost.json" --memory-tokens 8192 -- ranks ranks-per-node group-budget count
refuse "$whole" pack distribution:msrvtt --cost "$folder/cost.json" --ranks 8 -- memory-tokens
refuse -1 pack distribution:msrvtt --cost "$folder/cost.json" --ranks 8 -- seed
refuse 0 pack distribution:msrvtt --cost "$folder/cost.json" --ranks 8 -- deadline-ms

# 128 experts; and a model without any.
expect 2 model "$model" --expert-parallel 7 --json && says 'divisor of 128'
expect 0 model "$model" --expert-parallel 8
expect 2 model "$TEST_DATA/models/InternVL2-8B" --expert-parallel 2 && says 'has none'
printf 'model: %s\ncluster: h100\nparallel: {expert: 7, data: 7}\n' "$model" >"$folder/job.yaml"
expect 2 plan "$folder/job.yaml" --json && says '"key": "parallel.expert"'

# An option that is none: the one that begins like it, or the key that a job's word would give.
expect 2 verify "$folder/plan.json" --form program && says 'unknown option --form; did you mean --format?'
expect 2 plan "$folder/job.yaml" --train.steps 20 && says '--train.steps; a key of the job goes without dashes: train.steps=VALUE'
expect 2 verify "$folder/plan.json" --x.y && ! grep -q 'key of the job' "$out.err" || fail 'verify has no keys'

# What has no place is said, not passed over.
for option in --schedule=x --layout=x --unit=x --ranks=2 --microbatches=2 --replicas=2 --trainable=x --encode=1 --split=1 --alpha=1 --beta=1 --bytes=1 --memory-cap=1 --csv=x; do
  expect 2 plan "$folder/job.yaml" "$option" && says "${option%%=*} is for plans on unit costs"
done
expect 2 plan "$folder/job.yaml" --time-limit 1 && says 'is for --search'
expect 2 plan --search && says 'takes a job file'

# nothing WORD... -- OPTION...: each option is refused by name with these words.
nothing() {
  words=
  while [ "$1" != -- ]; do
    words="$words $1"
    shift
  done
  shift
  for option in "$@"; do
    # shellcheck disable=SC2086
    expect 2 $words "$option" --json && says "--$(expr "$option" : '--\([a-z-]*\)') \(is for\|has no place\)"
  done
}
run=$folder/run
mkdir -p "$run/timeline"
echo '{"id": "a", "tokens": 100}' >"$folder/trace"
pack="--cost $folder/cost.json --ranks 8 --memory-tokens 8192"
# shellcheck disable=SC2086
{
  expect 0 pack "$folder/trace" $pack
  expect 0 pack distribution:msrvtt $pack --count 8 --seed 2
  nothing pack "$folder/trace" $pack -- --count=8 --seed=1
  nothing pack "$folder/trace" $pack --compare -- --planner=best --scope=global
}
nothing plan "$folder/job.yaml" -- --alpha=0 --bytes=0 --job=x
nothing simulate "$folder/job.yaml" -- --unit=f=1 --format=auto --placement=v --alpha=0 --beta=1
nothing show "$folder/plan.json" -- --step=1
nothing show "$folder/plan.json" --json -- --width=60
nothing show "$run" -- --unit=f=1 --format=auto
nothing watch "$folder/plan.json" --json -- --width=60 --interval=2
nothing watch "$folder/plan.json" --once -- --interval=2
page="-o $folder/page.html"
# shellcheck disable=SC2086
{
  nothing report "$folder/plan.json" $page -- --step=1 --interval=2
  nothing report "$run" $page -- --unit=f=1 --format=auto --placement=v --alpha=0 --beta=1
  nothing report "$run" $page --against "$run" -- --unit=f=1
  nothing report "$run" $page --follow -- --unit=f=1
}
nothing verify "$folder/plan.json" -- --posted
