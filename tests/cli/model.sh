#!/bin/sh
# motet model: the document of the command contract, the tree, and what wrong input is told.
set -eu
. "$(dirname "$0")/lib.sh"
models=$TEST_DATA/models
# The value at a path like modules.0.name.
at() { python3 -c 'import json,sys; v=json.load(sys.stdin)
for k in sys.argv[1].split("."): v=v[int(k)] if isinstance(v,list) else v[k]
print(v)' "$1"; }

# Counts of transformers and diffusers, through the command, for every published config.
python3 - "$MOTET" "$models" <<'PY' || fail "counts"
import json, pathlib, subprocess, sys
motet, models = sys.argv[1], pathlib.Path(sys.argv[2])
for name, counts in json.loads((models / "counts.json").read_text())["models"].items():
    run = subprocess.run([motet, "model", str(models / name), "--json"], capture_output=True, text=True)
    assert run.returncode == 0, (name, run.stdout, run.stderr)
    document = json.loads(run.stdout)
    assert document["parameters"] == sum(counts.values()), (name, document["parameters"], counts)
    assert set(document) == {"architecture", "parameters", "modules"}, name
    for module in document["modules"]:
        assert module["layers"] > 0 and module["forward_flops"] > 0, (name, module)
        if not module["auxiliary"]:
            assert module["parameters"] == counts[module["name"]], (name, module)
        trained = module["activation_bytes"] > 0 and module["weight_gradient_flops"] > 0
        assert trained == module["trainable"], (name, module)
PY

# A gradient goes only as far down as something trains; what passes is less than what trains.
config=$models/Qwen2-VL-2B-Instruct/config.json
expect 0 model "$config" --trainable projector --json
[ "$(at modules.0.activation_bytes <"$out")" = 0 ] || fail "a frozen tower keeps something"
[ "$(at modules.0.input_gradient_flops <"$out")" = 0 ] || fail "a frozen tower computes gradients"
[ "$(at modules.1.input_gradient_flops <"$out")" = 0 ] || fail "the first trained layer passes a gradient on"
[ "$(at modules.2.weight_gradient_flops <"$out")" = 0 ] || fail "the frozen decoder trains"
passed=$(at modules.2.activation_bytes <"$out")
expect 0 model "$config" --trainable all --json
[ "$passed" -gt 0 ] && [ "$passed" -lt "$(at modules.2.activation_bytes <"$out")" ] || fail "bytes of a gradient that passes"

# Twice the pictures cost the tower twice as much; the text row is given.
expect 0 model "$config" --tokens 3000 --images 2x448x448 --json
two=$(at modules.0.forward_flops <"$out") text=$(at modules.2.forward_flops <"$out")
expect 0 model "$config" --tokens 3000 --images 4x448x448 --json
[ "$(at modules.0.forward_flops <"$out")" -eq $((2 * two)) ] || fail "four pictures"
[ "$(at modules.2.forward_flops <"$out")" -eq "$text" ] || fail "the text row changed"
expect 0 model "$config" --images 0 --json
[ "$(at modules.0.forward_flops <"$out")" = 0 ] || fail "no pictures"
expect 0 model "$models/Wan2.1-T2V-1.3B" --video 81x480x832 --tokens 512 --json
same=$(cat "$out")
expect 0 model "$models/Wan2.1-T2V-1.3B" --json
[ "$same" = "$(cat "$out")" ] || fail "the usual clip is not the usual clip"

# The tree names every module and what is frozen; 80 columns and a note at most.
expect 0 model "$models/Open-Sora-Plan-v1.3"
for word in text_encoder vae dit 'sparse block' frozen 'never computed with' '8.57 G'; do
  grep -q "$word" "$out" || fail "the tree lacks $word: $(cat "$out")"
done
expect 0 model "$models/Qwen3-VL-30B-A3B-Instruct" --expert-parallel 8
grep -q 'worst routing over 8 devices' "$out" || fail "no worst routing"

refused() { # exit code, text, arguments
  code=$1 text=$2
  shift 2
  expect "$code" model "$@"
  grep -q -- "$text" "$out.err" || fail "motet model $*: '$text' is not in: $(cat "$out.err")"
}
broken=$(dirname "$out")/config.json
refused 2 'takes one directory' "$config" "$config"
refused 2 'No such file' "$models/nothing"
refused 2 '2x448x448' "$config" --images 2x448
refused 2 '81x480x832' "$models/Wan2.1-T2V-1.3B" --video 81x480xwide
refused 2 'exclude each other' "$config" --images 1x2x3 --video 1x2x3
refused 2 'the text row has 100' "$config" --tokens 100
refused 2 "no module 'visoin'" "$config" --trainable visoin
sed 's/"num_attention_heads": 12/"num_attention_heads": 13/' "$config" >"$broken"
expect 2 model "$broken" --json
[ "$(at key <"$out")" = num_attention_heads ] || fail "the key of a wrong number"
[ "$(at file <"$out")" = "$broken" ] || fail "the file of a wrong number"
[ "$(at line <"$out")" -gt 1 ] || fail "the line of a wrong number"
echo '{"model_type": "gpt9"}' >"$broken"
refused 2 '"gpt9" is not known; known are' "$broken"
echo '{"hidden_size": 1}' >"$broken"
refused 2 'told by model_type, _class_name or predictor.model_id' "$broken"
