#!/bin/sh
# motet train: the same losses under every width and schedule, checkpoints that any of them continues, bit for bit on
# the same plan, and what a run leaves behind.
set -eu
. "$(dirname "$0")/lib.sh"

run() { name=$1; shift; expect 0 train train/job.yaml output_dir="$work/$name" "$@"; }

# Over a run each picture is decoded once, by whichever rank.
decoded() { column "$1" decoded_tiles | awk '{ sum += $1 } END { print sum }'; }

# One rank is the reference; losses agree to five digits.
run alone parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>' train.tensorboard=true
[ "$(cat "$work/alone/tensorboard"/events.out.tfevents.* | grep -a -o gradient_norm | wc -l)" -eq 6 ] || fail "TensorBoard's events"
[ "$(wc -l <"$work/alone/metrics.jsonl")" -eq 6 ] || fail "six steps, six lines"
for variant in "2 1 4 <vision+projector: transpose, llm: 1f1b>" "2 1 4 <vision+projector: transpose(order=prefix), llm: gpipe>" \
  "1 2 2 <vision+projector: transpose, llm: 1f1b>" "2 2 2 <vision+projector: inline, llm: 1f1b(virtual=2)>"; do
  set -- $variant
  pipeline=$1 data=$2 microbatches=$3
  shift 3
  run wide parallel.pipeline="$pipeline" parallel.data="$data" train.microbatches="$microbatches" schedule="$*" train.resume=never
  [ "$(column alone loss)" = "$(column wide loss)" ] || fail "P=$pipeline D=$data $*: other losses: $(column wide loss)"
  [ "$(decoded alone)" = "$(decoded wide)" ] || fail "P=$pipeline D=$data $*: $(decoded wide) tiles decoded, alone $(decoded alone)"
done
[ "$(decoded alone)" -gt 48 ] || fail "48 samples of $(decoded alone) tiles"
column alone input_stall_seconds | awk '$1 < 0 { exit 1 }' || fail "input stalls"
for key in step loss learning_rate gradient_norm tokens step_seconds mfu idle_share input_stall_seconds decode_seconds memory_bytes digest; do
  [ "$(grep -c "\"$key\": " "$work/alone/metrics.jsonl")" -eq 6 ] || fail "metrics.jsonl lacks $key"
done
column alone loss | awk 'NR == 1 { first = $1 } END { exit !($1 < first - 0.5) }' || fail "the loss does not fall"

# For scripts: one document on standard output, the words beside it; errors stand before the job's echo.
run told train.steps=1 --json
python3 - "$out" "$work/told" <<'CHECK' || fail "the document: $(cat "$out")"
import json, sys
d = json.load(open(sys.argv[1]))
last = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl")][-1]
assert d["run"] == sys.argv[2] and d["finished"] and d["planned_steps"] == 1 and d["failure"] is None
assert d["last_step"] == last
CHECK
expect 2 train train/job.yaml output_dir="$work/none" data.train=nowhere --json
[ "$(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["file"], d["key"])' "$out")" = "nowhere data.train" ] || fail "no document: $(cat "$out")"
! grep -q max_tokens "$out.err" || fail "the job is told before the error in it: $(cat "$out.err")"
expect 3 profile train/job.yaml output_dir="$work/none" parallel.pipeline=1 -o "$work/none/such/profile.json" --json
grep -q '"error"' "$out" || fail "no JSON error: $(cat "$out")"

# Videos beside pictures: a tile a frame, and the same losses on two ranks, where the owners decode them.
for n in 1 2 3 4; do
  echo '{"messages": [{"role": "user", "content": "<video> or <image>?"}, {"role": "assistant", "content": "Both."}], "videos": ["../../video/waves.mp4"], "images": ["rgb.png"]}'
  echo '{"messages": [{"role": "user", "content": "And this?"}, {"role": "assistant", "content": "A wave."}], "video": "../../video/moving.gif"}'
done >"$work/videos.jsonl"
videos="data.train=$work/videos.jsonl data.eval= train.steps=2 train.global_batch=4 data.video_frames=3"
run films $videos parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>'
run films2 $videos
[ "$(column films loss)" = "$(column films2 loss)" ] || fail "films on two ranks: $(column films2 loss)"
[ "$(decoded films)" = "$(decoded films2)" ] || fail "films: $(decoded films2) tiles decoded, alone $(decoded films)"
run short data.max_tokens=45 data.eval= train.steps=1
grep -q 'data.train: 8 of 40 samples are longer than data.max_tokens 45' "$out" || fail "nothing about long samples"

# Stopped after three steps and continued: the same bits as in one go.
run whole train.steps=6 train.save_every=3
run parts train.steps=3
run parts train.steps=6
grep -q 'resuming from .*step-3' "$out" || fail "it did not resume"
for file in "$work"/whole/checkpoints/step-6/*.safetensors; do
  cmp "$file" "$work/parts/checkpoints/step-6/$(basename "$file")" || fail "resuming changed $(basename "$file")"
done
[ "$(column parts step | tr '\n' ' ')" = "1 2 3 4 5 6 " ] || fail "metrics of a resumed run: $(column parts step)"

# In bfloat16: losses within a hundredth of float32's, and the float32 weights go on bit for bit, with other threads too.
run half train.dtype=bfloat16 train.threads=2 train.steps=4 train.save_every=2
run halves train.dtype=bfloat16 train.steps=2
run halves train.dtype=bfloat16 train.steps=4
for file in "$work"/half/checkpoints/step-4/*.safetensors; do
  cmp "$file" "$work/halves/checkpoints/step-4/$(basename "$file")" || fail "resuming in bfloat16 changed $(basename "$file")"
done
{ column whole loss | head -n 4; column half loss; } |
  awk 'NR < 5 { exact[NR] = $1 } NR > 4 { off = $1 / exact[NR - 4] - 1; if (off > 0.01 || off < -0.01 || (NR == 8 && off == 0)) exit 1 }' ||
  fail "losses in bfloat16: $(column half loss)"

# Another width and schedule go on from there, with the same losses.
run whole train.steps=8
cp -r "$work/parts" "$work/narrow"
run narrow train.steps=8 parallel.pipeline=1 schedule='<vision+projector: inline, llm: 1f1b>'
[ "$(column whole loss)" = "$(column narrow loss)" ] || fail "another width goes on differently: $(column narrow loss)"

# A checkpoint is a model: training starts from it, and only the newest two are kept.
run kept train.save_every=1
[ "$(ls "$work/kept/checkpoints" | tr '\n' ' ')" = "step-5 step-6 " ] || fail "kept: $(ls "$work/kept/checkpoints")"
run fine config= init=pretrained data.tokenizer= model="$work/kept/checkpoints/step-6" train.steps=1

# A damaged newest checkpoint is passed over.
truncate -s -1 "$work"/kept/checkpoints/step-6/model-00001-of-00002.safetensors
run kept train.steps=7
grep -q 'resuming from .*step-5' "$out" || fail "the damaged checkpoint was not passed over"

# Evaluation, profile, comparison.
run evaluated train.eval_every=3 train.eval_batches=2
[ "$(wc -l <"$work/evaluated/evaluation.jsonl")" -eq 2 ] || fail "two evaluations, two lines"
expect 0 profile train/job.yaml -o "$work/profile.json"
run profiled profile="$work/profile.json" train.steps=10
expect 0 compare "$work/profiled" --json
[ "$(field steps <"$out")" -eq 7 ] || fail "ten steps less three to warm up"
[ -s "$work/profiled/timeline/step-10.trace.json" ] || fail "no timeline"

# A profile scaled by the run: forward as a whole is measured over simulated dearer, kind by kind and pass by pass.
mv "$out" "$work/comparison.json"
expect 0 profile --calibrate "$work/profiled" -o "$work/calibrated.json"
python3 - "$work" <<'END' || fail "the profile is not scaled by what the run measured"
import json, sys
def read(name): return json.load(open(sys.argv[1] + "/" + name))
classes = {item["kind"]: item for item in read("comparison.json")["classes"]}
before, after = read("profile.json")["kinds"], read("calibrated.json")["kinds"]
for kind, passes in before.items():
    for name, terms in passes.items():
        of = classes["FWD" if name == "forward" else "BWD"]
        for term, seconds in terms.items():
            wanted = seconds * of["measured"] / of["simulated"]
            assert abs(after[kind][name][term] - wanted) <= 1e-6 * wanted, (kind, name, term)
END
expect 2 profile --calibrate "$work/alone" -o "$work/none.json"
expect 2 profile train/job.yaml --calibrate "$work/profiled"
