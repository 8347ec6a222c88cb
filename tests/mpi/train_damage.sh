#!/bin/sh
# Bytes of a checkpoint that have changed since it was written: the newest is passed over, one that is named is refused,
# each with the file and the tensor; what went on from the one before has the same bits as if nothing had happened.
set -eu
. "$(dirname "$0")/lib.sh"

train() { # exit code, ranks, then key=value words
  code=$1 ranks=$2
  shift 2
  expect "$code" train train/job.yaml output_dir="$work/run" train.search_seconds=0 train.timeline_every=0 train.save_every=1 \
    train.keep=3 parallel.pipeline="$ranks" "$@"
}
again() { rm -rf "$work/run"; cp -r "$work/whole" "$work/run"; }
# Flips one bit: `flip FILE TENSOR` in the middle of a tensor's bytes, `flip FILE - OFFSET` at a byte.
flip() {
  python3 - "$@" <<'END'
import json, sys
path, name = sys.argv[1:3]
data = bytearray(open(path, "rb").read())
if name == "-":
    place = int(sys.argv[3])
else:
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    place = 8 + size + (begin + end) // 2
data[place] ^= 1
open(path, "wb").write(data)
END
}
passed_over() { # pattern of the line, the step it goes on from
  [ "$(grep -c 'is passed over' "$out")" -eq 1 ] || fail "$1: not passed over in one line: $(cat "$out")"
  grep 'is passed over' "$out" | grep -q -E "step-3 is passed over: .*$1" || fail "not '$1': $(grep 'is passed over' "$out")"
  grep -q "resuming from .*step-$2\$" "$out" || fail "$1: it does not go on from step $2: $(cat "$out")"
}

train 0 2 train.steps=3
mv "$work/run" "$work/whole"
weights whole >"$work/bits"
newest=$work/run/checkpoints/step-3

# The sums are those of another program over the bytes that stand in the files.
python3 - "$work/whole/checkpoints/step-3" <<'END' || fail "checksums.json differs from xxhsum"
import glob, json, subprocess, sys
record = json.load(open(sys.argv[1] + "/checksums.json"))
def sum_of(data):
    run = subprocess.run(["xxhsum", "-H3"], input=data, stdout=subprocess.PIPE, check=True)
    return run.stdout.decode().split("=")[-1].split()[0].replace("XXH3_", "")
seen = 0
for path in glob.glob(sys.argv[1] + "/*.safetensors"):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            seen += 1
            assert record["tensors"][name] == sum_of(data[8 + size + begin:8 + size + end]), name
assert seen == len(record["tensors"]) > 100, seen
for name, digest in record["files"].items():
    assert digest == sum_of(open(sys.argv[1] + "/" + name, "rb").read()), name
END

# A weight, with as many ranks as wrote it: the step that is done again has the bits that it had.
again
flip "$newest/model-00002-of-00002.safetensors" language_model.model.layers.3.mlp.down_proj.weight
train 0 2 train.steps=3
passed_over 'tensor language_model.model.layers.3.mlp.down_proj.weight in .*model-00002-of-00002.safetensors is damaged' 2
weights run | cmp -s - "$work/bits" || fail "other bits behind a damaged checkpoint"
train 0 1 train.steps=4
grep -q 'resuming from .*step-3$' "$out" && ! grep -q 'passed over' "$out" || fail "the damaged checkpoint is not mended: $(cat "$out")"

# A moment, found by one of three ranks.
again
flip "$newest/optimizer-00001-of-00002.safetensors" second.vision_model.embeddings.class_embedding
train 0 3 train.steps=3
passed_over 'tensor second.vision_model.embeddings.class_embedding in .*optimizer-00001-of-00002.safetensors is damaged' 2

# The trainer's own state: a number that reads as another one. And the record itself, gone.
again
flip "$newest/trainer.json" - "$(grep -b -o '"seed": 3' "$newest/trainer.json" | cut -d: -f1 | awk '{ print $1 + 8 }')"
grep -q '"seed": 2' "$newest/trainer.json" || fail "this test flips another bit"
rm "$work/run/checkpoints/step-2/checksums.json"
train 0 1 train.steps=2
grep -q 'step-3 is passed over: .*trainer.json is damaged' "$out" || fail "a changed seed: $(cat "$out")"
grep -q 'step-2 is passed over: .*checksums.json' "$out" || fail "a record that is gone: $(cat "$out")"
grep -q 'resuming from .*step-1$' "$out" || fail "two damaged ones: $(cat "$out")"

# The model's config, gone.
again
rm "$newest/config.json"
train 0 1 train.steps=3
grep -q 'step-3 is passed over: .*config.json' "$out" || fail "a config that is gone: $(cat "$out")"

# Checkpoints that are damaged push no whole one out.
again
flip "$newest/model-00001-of-00002.safetensors" vision_model.embeddings.class_embedding
rm -r "$work/run/checkpoints/step-2"
train 0 1 train.steps=2 train.keep=1
[ "$(ls "$work/run/checkpoints" | tr '\n' ' ')" = "step-2 step-3 " ] || fail "kept: $(ls "$work/run/checkpoints")"

# One that is named must be whole.
again
flip "$newest/model-00001-of-00002.safetensors" vision_model.embeddings.class_embedding
train 2 2 train.steps=4 train.resume="$newest"
[ "$(grep -c '^motet: ' "$out.err")" -eq 1 ] || fail "not one message: $(cat "$out.err")"
grep -q 'tensor vision_model.embeddings.class_embedding in .*model-00001-of-00002.safetensors is damaged' "$out.err" ||
  fail "a named checkpoint: $(cat "$out.err")"

# Checkpoints from before there were checksums have none.
again
rm "$newest/checksums.json"
sed -i 's/motet-checkpoint-2/motet-checkpoint-1/' "$newest/trainer.json"
train 0 1 train.steps=4
grep -q 'resuming from .*step-3$' "$out" || fail "one without checksums: $(cat "$out")"

# Answers come from whole weights; the optimizer's bytes are none of their business.
again
answer() { # exit code, model
  expect "$1" generate "$2" --image image/pictures/rgb.png --prompt 'Describe it.' --max-tokens 1
}
flip "$newest/optimizer-00001-of-00002.safetensors" second.vision_model.embeddings.class_embedding
answer 0 "$newest"
flip "$newest/model-00001-of-00002.safetensors" vision_model.embeddings.class_embedding
answer 2 "$newest"
grep -q 'tensor vision_model.embeddings.class_embedding in .*model-00001-of-00002.safetensors is damaged' "$out.err" || fail "answers of a damaged model"

# What stands where a checkpoint belongs is named, and stays, also what a link leads to; the whole checkpoint lies beside.
mkdir "$work/kept"
echo theirs >"$work/kept/notes"
for kind in file link directory; do
  again
  rm -rf "$newest"
  case $kind in
  file) echo theirs >"$newest" ;;
  link) ln -s "$work/nowhere" "$newest" ;;
  directory) ln -s "$work/kept" "$newest" ;;
  esac
  train 3 2 train.steps=3
  grep -q 'step-3: .*whole beside it as .step-3.partial, cannot be renamed into place' "$out.err" || fail "$kind: $(cat "$out.err")"
  [ -s "$work/run/checkpoints/.step-3.partial/checksums.json" ] || fail "$kind: no checkpoint beside it"
  [ -e "$work/kept/notes" ] || fail "what a link leads to was removed"
done
