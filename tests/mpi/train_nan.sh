#!/bin/sh
# A loss that is no number: one sample has a token whose embedding is none. Whoever sees it first names rank, instruction,
# step, microbatch and the sample's line, also where no gradient would show it; what was saved before loads. An evaluation
# without a number is said, and the run goes on.
set -eu
. "$(dirname "$0")/lib.sh"

# Line 4 of the data, which has no picture, has a sign that no other line has; it stands before the other lines of the
# evaluation too.
sed '4s/Say number/Say § number/' train/train.jsonl >"$work/data.jsonl"
grep -c '§' "$work/data.jsonl" | grep -q '^1$' || fail "one line was to be spoilt"
{ cat train/eval.jsonl | head -n 1; sed -n 4p "$work/data.jsonl"; cat train/eval.jsonl; } >"$work/eval.jsonl"
expect 0 train train/job.yaml output_dir="$work/made" train.steps=1 parallel.pipeline=1
spoil() { # tensor, value, directory
  mkdir "$work/$3"
  python3 - "$work/made/checkpoints/step-1" "$work/$3" ../../examples/demo/tokenizer.json "$1" "$2" <<'END'
import json, struct, sys
source, to, tokenizer, tensor, value = sys.argv[1:6]
token = json.load(open(tokenizer))["model"]["vocab"]["§"] # the sign's last byte, in the bytes' alphabet
data = bytearray(open(source + "/model.safetensors", "rb").read())
size = int.from_bytes(data[:8], "little")
entry = json.loads(data[8:8 + size])[tensor]
columns = entry["shape"][1]
place = 8 + size + entry["data_offsets"][0] + 4 * columns * token
data[place:place + 4 * columns] = struct.pack("<f", float(value)) * columns
open(to + "/model.safetensors", "wb").write(data)
open(to + "/config.json", "w").write(open(source + "/config.json").read())
END
}
spoil language_model.model.embed_tokens.weight nan spoilt
spoil language_model.lm_head.weight 3e38 huge

train() { # exit code, then key=value words
  code=$1
  shift
  expect "$code" train train/job.yaml output_dir="$work/run" config= init=pretrained model="$work/spoilt" \
    data.train="$work/data.jsonl" train.steps=6 train.save_every=1 train.learning_rate=1e-3 train.search_seconds=0 train.timeline_every=0 "$@"
}
refused() { # rank, lines, then key=value words
  rank=$1 lines=$2
  shift 2
  rm -rf "$work/run"
  train 3 "$@"
  [ "$(grep -c '^motet: ' "$out.err")" -eq 1 ] || fail "$*: not one message: $(cat "$out.err")"
  grep -q -E "^motet: rank $rank: instruction [0-9]+: microbatch [0-9]+: step [1-6], FWD of ([a-z]+\+)*llm(\.[0-9])? \(stage [0-9]+\): the loss is (nan|inf): .*\(lines $lines of $work/data.jsonl\)" "$out.err" ||
    fail "$*: $(cat "$out.err")"
}

with4='([0-9]+, )*4(, [0-9]+)*'
refused 1 "$with4"
step=$(sed 's/.*: step \([0-9]*\), .*/\1/' "$out.err")
[ "$step" -gt 1 ] || fail "the first step was to be good"
[ "$(wc -l <"$work/run/metrics.jsonl")" -eq $((step - 1)) ] || fail "$step is not the step behind $(cat "$work/run/metrics.jsonl")"
cp "$out.err" "$work/first"
train 3 parallel.pipeline=1
grep -q "resuming from .*step-$((step - 1))\$" "$out" || fail "the last good checkpoint: $(cat "$out")"
sed 's/.*the loss is//' "$out.err" >"$work/again"
sed 's/.*the loss is//' "$work/first" | cmp -s - "$work/again" || fail "another message: $(cat "$out.err")"

# A sample without pictures has no gradient for a projector that trains alone.
refused 1 "$with4" trainable='[projector]'
refused 1 "$with4" train.dtype=bfloat16
refused 0 "$with4" deterministic=exact parallel.pipeline=1 schedule='<vision+projector+llm: 1f1b>'
# A sum of products beyond what a float holds, in whatever sample comes first.
refused 0 '[0-9, ]+' model="$work/huge" trainable='[projector]' parallel.pipeline=1

# What is evaluated does not train.
rm -rf "$work/run"
train 0 data.train=train/train.jsonl data.eval="$work/eval.jsonl" train.steps=2 train.eval_every=1 train.eval_batches=1 parallel.pipeline=1
[ "$(grep -c -E "evaluation: the loss of microbatch 0 is nan \(lines 1, 2 of $work/eval.jsonl\)" "$out")" -eq 2 ] || fail "evaluation: $(cat "$out")"
[ "$(grep -c '"eval_loss": null' "$work/run/evaluation.jsonl")" -eq 2 ] || fail "evaluation.jsonl: $(cat "$work/run/evaluation.jsonl")"
[ "$(losses run | wc -w)" -eq 2 ] || fail "the run did not go on: $(cat "$out")"
expect 0 watch "$work/run" --once
