#!/bin/sh
# motet generate: the answers that transformers gives with the same weights, and what wrong input is told.
set -eu
. "$(dirname "$0")/lib.sh"
"$MOTET" help generate >/dev/null 2>&1 || exit 0 # built without the runtime
cd "$TEST_DATA"
tokenizer=../../examples/demo/tokenizer.json
work=$(dirname "$out")
generate() { wanted=$1; shift; expect "$wanted" generate "$@" --threads 1; }
refused() { # CODE PATTERN WORDS: exit code and message
  code=$1 pattern=$2
  shift 2
  generate "$code" "$@"
  grep -q "$pattern" "$out.err" || fail "motet generate $*: $(cat "$out.err")"
}

# tests/data/generate/expected.json: tools/make_generate_fixtures.py.
cat >"$work/compare.py" <<'PY'
import json, os, sys
wanted = [a for a in json.load(open("generate/expected.json")) if (len(a["images"]) > 1) == (sys.argv[2] == "together")]
found = json.load(open(sys.argv[1]))["answers"]
assert len(found) == len(wanted) > 0, found
for one, other in zip(found, wanted):
    assert [os.path.basename(path) for path in one.pop("images")] == other.pop("images")
    assert one == other, (one, other)
PY
set -- generate --tokenizer $tokenizer --max-tokens 16
pictures=image/pictures
generate 0 "$@" --image $pictures/rgb.png --image $pictures/wide.jpg --image $pictures/still.gif --image=$pictures/rgba.png --json
python3 "$work/compare.py" "$out" alone || fail "one answer a picture"
generate 0 "$@" --image $pictures/rgb.png --image $pictures/wide.jpg --together --json
python3 "$work/compare.py" "$out" together || fail "one answer about two pictures"
# Said at their place, the pictures make the same prompt as in front.
generate 0 "$@" --image $pictures/rgb.png --image $pictures/wide.jpg --together --prompt '<image>
<image>
Please describe the image shortly.' --json
python3 "$work/compare.py" "$out" together || fail "pictures at their places"
generate 0 "$@" --image $pictures/wide.jpg
grep -q "^$pictures/wide.jpg$" "$out" || fail "the picture's name: $(cat "$out")"
# A video is eight pictures of one tile, with their numbers.
generate 0 "$@" --video video/waves.mp4 --video video/moving.gif --json
[ "$(grep -c '"text"' "$out")" -eq 2 ] || fail "two videos, two answers: $(cat "$out")"
generate 0 "$@" --video video/waves.mp4 --video-frames 3 --image $pictures/wide.jpg --together
refused 2 'has no video stream' "$@" --video video/sound.mp4
refused 2 'no MP4' "$@" --video $pictures/rgb.png
generate 0 "$@" --prompt 'Who are you?' --system 'A painter.'

# Lines of a data file, with their own answers.
generate 0 "$@" --data train/train.jsonl --images-root $pictures --count 2 --json
[ "$(grep -c '"wanted": "' "$out")" -eq 2 ] || fail "two lines: $(cat "$out")"
grep -q '"wanted": "It ellipse green on the."' "$out" || fail "the first line's own answer: $(cat "$out")"

# What does not fit is refused, with its place.
refused 2 'nowhere.png: No such file' "$@" --image nowhere.png
head -c 300 $pictures/rgb.png >"$work/cut.png"
refused 2 'cut.png is damaged or truncated' "$@" --image "$work/cut.png"
refused 2 'train.jsonl is no PNG' "$@" --image train/train.jsonl
refused 2 'tokenizer.json: No such file' generate --image $pictures/rgb.png
refused 2 'neither a config.json nor a whole checkpoint' dataset --image $pictures/rgb.png
refused 2 'there is no nowhere' nowhere --image $pictures/rgb.png
refused 2 "the prompt: 2 <image> in the user's turns, but 1 in" "$@" --image $pictures/rgb.png --prompt '<image><image>'
refused 2 'needs an --image or --video FILE' "$@"
refused 2 'exclude each other' "$@" --image $pictures/rgb.png --data train/train.jsonl
refused 2 'count is for --data' "$@" --image $pictures/rgb.png --count 2
refused 2 'images-root is for --data' "$@" --prompt x --images-root .
refused 2 'video-frames is for --video or --data' "$@" --image $pictures/rgb.png --video-frames 2
refused 2 'together is for --image and --video' "$@" --prompt x --together
refused 2 'bring their own questions' "$@" --data train/train.jsonl --prompt x
refused 2 "max-tokens: '0' is not a whole number from 1 to" generate --image $pictures/rgb.png --max-tokens 0
mkdir "$work/model"
cp generate/config.json "$work/model"
cp $tokenizer "$work/model"
refused 2 'model.safetensors' "$work/model" --image $pictures/rgb.png
head -c 5000 generate/model.safetensors >"$work/model/model.safetensors"
refused 2 'model.safetensors' "$work/model" --image $pictures/rgb.png
cp tokenizer/qwen2.json "$work/model/tokenizer.json"
cp generate/model.safetensors "$work/model"
refused 2 'is token 659 of the tokenizer, but token 1999 of the model' "$work/model" --image $pictures/rgb.png
