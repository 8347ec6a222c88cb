#!/usr/bin/env python3
"""Golden values for the InternVL layers, computed by PyTorch and transformers (both from PyPI).

  make_internvl_fixtures.py                     writes tests/data/internvl/<case>/
  make_internvl_fixtures.py --bfloat16          writes tests/data/internvl/<case>/bfloat16.safetensors from the above
  make_internvl_fixtures.py --check DIR [--batch FILE]
                                                loads the checkpoint in DIR and compares the loss of a batch

A case is a tiny random model: config.json, model.safetensors, and expected.safetensors with a packed batch
(input_ids, segment_begin, labels, feature_rows, pixels), what leaves the vision tower, the projector and the last
decoder block, the logits, the loss, and every gradient under "gradient." and the weight's name. The framework runs
every sequence of the packed row alone; losses are summed and divided by the number of targets of the whole row.
Sums are in float64, stored as float32. A case named *_chat holds the same model in the original publication's form.

The case internlm2 has the decoder of InternVL 2, which no published library holds: it is written here from its definition
(InternLM2 technical report, arXiv 2403.17297, section 2.2: q, k and v of a group side by side in wqkv; SwiGLU as
w2(silu(w1 x) * w3 x); RMSNorm in front; rotary positions in halves, whose base grows beyond the trained length).

bfloat16.safetensors says how far transformers is off when weights and activations are bfloat16: loss, and for every
entry of expected.safetensors the distance over its norm.

A batch for --check has the same entries (input_ids to loss); FILE is DIR/expected.safetensors if not given.
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import InternVLConfig, InternVLForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "internvl"
IGNORED = -100

VISION = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20, image_size=[16, 16],
              patch_size=[4, 4], attention_bias=True, use_qk_norm=False, norm_type="layer_norm", layer_norm_eps=1e-6)
TEXT = dict(model_type="qwen2", hidden_size=36, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            intermediate_size=40, vocab_size=53, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=64,
            tie_word_embeddings=False)

# Name: changes to vision and text, tie, vision_feature_layer, tiles of every sequence, their text lengths.
CASES = {
    "grouped": dict(tiles=[2, 0, 1], lengths=[13, 9, 66]),
    "tied": dict(vision=dict(attention_bias=False, use_qk_norm=True, norm_type="rms_norm", num_attention_heads=4),
                 text=dict(num_key_value_heads=1, num_attention_heads=3, tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=1e6),
                           max_position_embeddings=32),
                 tied=True, tiles=[1, 1], lengths=[9, 60]),
    "text": dict(text=dict(num_key_value_heads=6), tiles=[0, 0], lengths=[5, 11]),
    "early": dict(vision=dict(num_hidden_layers=3), select=-2, tiles=[1], lengths=[7]),
    "qwen3": dict(text=dict(model_type="qwen3", head_dim=10, hidden_size=30, num_attention_heads=6), tiles=[1, 0], lengths=[9, 21]),
}


def make_config(case):
    vision, text = dict(VISION, **case.get("vision", {})), dict(TEXT, **case.get("text", {}))
    if "rope_parameters" in text:
        text.pop("rope_theta")
    grid = vision["image_size"][0] // vision["patch_size"][0] // 2
    return InternVLConfig(vision_config=vision, text_config=text, image_token_id=text["vocab_size"] - 1,
                          image_seq_length=grid * grid, downsample_ratio=0.5,
                          vision_feature_layer=case.get("select", -1),
                          tie_word_embeddings=case.get("tied", False))


def make_model(config, generator):
    model = InternVLForConditionalGeneration(config)
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            norm = "norm" in name and name.endswith("weight")
            weight.copy_(1 + 0.2 * noise if norm else 0.5 + 0.2 * noise if "lambda" in name else
                         0.3 * noise if weight.dim() == 1 else noise / weight[0].numel() ** 0.5)
    return model.double().eval()


def make_batch(config, case, generator):
    """The packed row: some text, the image tokens in one run, the rest of the text."""
    image, ids, begins, labels, rows = config.image_token_id, [], [0], [], []
    for tiles, length in zip(case["tiles"], case["lengths"]):
        words = torch.randint(0, image, (length,), generator=generator).tolist()
        features = tiles * config.image_seq_length
        sequence = words[:3] + [image] * features + words[3:]
        rows += [len(ids) + 3 + f for f in range(features)]
        targets = [IGNORED if t == image or position < 2 else t for position, t in enumerate(sequence)]
        labels += targets[1:] + [IGNORED]  # labels[t] is what t predicts
        ids += sequence
        begins.append(len(ids))
    size = config.vision_config.image_size[0]
    pixels = torch.randn((sum(case["tiles"]), 3, size, size), generator=generator)
    integers = {"input_ids": ids, "segment_begin": begins, "labels": labels, "feature_rows": rows}
    return {**{name: torch.tensor(value, dtype=torch.int32) for name, value in integers.items()}, "pixels": pixels}


def run(model, batch):
    """Forward of every sequence by itself; returns the loss and the concatenated tensors to compare."""
    begins, labels = batch["segment_begin"].tolist(), batch["labels"].long()
    targets = int((labels != IGNORED).sum())
    image, per_tile = model.config.image_token_id, model.config.image_seq_length
    found = {"tower": [], "features": [], "hidden": [], "logits": []}
    last = model.model.language_model.layers[-1]
    last.register_forward_hook(lambda _m, _i, out: found["hidden"].append(out.detach()[0]))
    select = model.config.vision_feature_layer
    kept = model.model.vision_tower.encoder.layer[select]
    kept.register_forward_hook(lambda _m, _i, out: found["tower"].append(out.detach().flatten(0, 1)))
    model.model.multi_modal_projector.register_forward_hook(
        lambda _m, _i, out: found["features"].append(out.detach().flatten(0, 1)))
    loss, tile = 0.0, 0
    for begin, end in zip(begins, begins[1:]):
        ids = batch["input_ids"][begin:end].long()
        tiles = int((ids == image).sum()) // per_tile
        pixels = batch["pixels"][tile:tile + tiles].to(model.dtype) if tiles else None
        tile += tiles
        logits = model(input_ids=ids[None], pixel_values=pixels).logits[0]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        found["logits"].append(logits.detach())
        sums = torch.nn.functional.cross_entropy(logits, labels[begin:end], ignore_index=IGNORED, reduction="sum")
        loss = loss + sums / targets
    return loss, {name: torch.cat(parts) for name, parts in found.items() if parts}


def internlm2_weights(text, generator):
    """Random weights in the published names and shapes."""
    hidden, heads, groups, up = (text[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"))
    width, prefix = hidden // heads, "language_model.model."
    shapes = {prefix + "tok_embeddings.weight": (text["vocab_size"], hidden), prefix + "norm.weight": (hidden,),
              "language_model.output.weight": (text["vocab_size"], hidden)}
    for layer in range(text["num_hidden_layers"]):
        own = f"{prefix}layers.{layer}."
        shapes.update({own + "attention_norm.weight": (hidden,), own + "attention.wqkv.weight": ((heads + 2 * groups) * width, hidden),
                       own + "attention.wo.weight": (hidden, hidden), own + "ffn_norm.weight": (hidden,),
                       own + "feed_forward.w1.weight": (up, hidden), own + "feed_forward.w3.weight": (up, hidden),
                       own + "feed_forward.w2.weight": (hidden, up)})
    noise = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: 1 + 0.2 * n if n.dim() == 1 else n / n.shape[1] ** 0.5 for name, n in noise.items()}


def internlm2(text, weights, x):
    """Hidden states and logits of one sequence of embeddings x (tokens, hidden)."""
    heads, groups, prefix = text["num_attention_heads"], text["num_key_value_heads"], "language_model.model."
    tokens, width = x.shape[0], x.shape[1] // heads

    def norm(x, name):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + text["rms_norm_eps"]) * weights[name]

    base, trained, scaling = text["rope_theta"], text["max_position_embeddings"], text["rope_scaling"]
    if tokens > trained:
        base *= (scaling["factor"] * tokens / trained - (scaling["factor"] - 1)) ** (width / (width - 2))
    angles = torch.outer(torch.arange(tokens).double(), base ** (-torch.arange(0, width, 2).double() / width))
    angles = torch.cat([angles, angles], -1)[:, None]

    def rotate(x):
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    for layer in range(text["num_hidden_layers"]):
        own = f"{prefix}layers.{layer}."
        qkv = norm(x, own + "attention_norm.weight") @ weights[own + "attention.wqkv.weight"].T
        qkv = qkv.reshape(tokens, groups, heads // groups + 2, width)
        q = rotate(qkv[:, :, :-2].reshape(tokens, heads, width))
        k, v = rotate(qkv[:, :, -2]), qkv[:, :, -1]
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / width ** 0.5
        scores = scores.masked_fill(torch.ones(tokens, tokens, dtype=torch.bool).triu(1), float("-inf"))
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(tokens, heads * width)
        x = x + attended @ weights[own + "attention.wo.weight"].T
        inner = norm(x, own + "ffn_norm.weight")
        gate, up = (inner @ weights[own + f"feed_forward.{w}.weight"].T for w in ("w1", "w3"))
        x = x + (torch.nn.functional.silu(gate) * up) @ weights[own + "feed_forward.w2.weight"].T
    return x, norm(x, prefix + "norm.weight") @ weights["language_model.output.weight"].T


def make_internlm2(seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    case = dict(tiles=[1, 0, 2], lengths=[9, 60, 5])
    config = make_config(case)
    model = make_model(config, generator)
    batch = make_batch(config, case, generator)
    text = dict(model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=False, hidden_act="silu", hidden_size=36,
                num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, intermediate_size=40, vocab_size=53,
                rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=32, rope_scaling=dict(type="dynamic", factor=2.0),
                tie_word_embeddings=False)
    weights = {name: weight.double().requires_grad_() for name, weight in internlm2_weights(text, generator).items()}
    found = {"tower": [], "hidden": [], "logits": []}
    model.model.vision_tower.encoder.layer[-1].register_forward_hook(
        lambda _m, _i, out: found["tower"].append(out.detach().flatten(0, 1)))
    features = model.model.get_image_features(batch["pixels"].double()).pooler_output.flatten(0, 1)
    found["features"] = [features.detach()]
    rows = batch["feature_rows"].long()
    embedded = weights["language_model.model.tok_embeddings.weight"][batch["input_ids"].long()]
    embedded = embedded.index_copy(0, rows, features)
    labels, loss = batch["labels"].long(), 0.0
    begins = batch["segment_begin"].tolist()
    for begin, end in zip(begins, begins[1:]):
        hidden, logits = internlm2(text, weights, embedded[begin:end])
        found["hidden"].append(hidden.detach())
        found["logits"].append(logits.detach())
        loss = loss + torch.nn.functional.cross_entropy(logits, labels[begin:end], ignore_index=IGNORED, reduction="sum")
    loss = loss / int((labels != IGNORED).sum())
    loss.backward()
    image = {file_name(n): p for n, p in model.named_parameters() if not file_name(n).startswith("language_model.")}
    tensors = {**chat_tensors({n: p.detach().float() for n, p in image.items()}),
               **{n: w.detach().float().contiguous() for n, w in weights.items()}}
    gradients = {**chat_tensors({n: p.grad.float() for n, p in image.items()}),
                 **{n: w.grad.float().contiguous() for n, w in weights.items()}}
    expected = {n: torch.cat(t).float().contiguous() for n, t in found.items()}
    expected["loss"] = loss.detach().float().reshape(1)
    chat = {**chat_config(config), "llm_config": text, "template": "internlm2-chat"}
    write(ROOT / "internlm2", json.dumps(chat, indent=2) + "\n", tensors, batch,
          {**expected, **{"gradient." + n: g for n, g in gradients.items()}})


def file_name(name):
    """Names in published files lack the outer `model.`, and the language model has one inside."""
    name = name.removeprefix("model.")
    if name.startswith("language_model."):
        return "language_model.model." + name.removeprefix("language_model.")
    return "language_model." + name if name.startswith("lm_head") else name


CHAT_NAMES = [("vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"),
              ("vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"),
              ("vision_tower.embeddings.patch_embeddings.projection.", "vision_model.embeddings.patch_embedding."),
              ("vision_tower.encoder.layer.", "vision_model.encoder.layers."), ("layernorm_before.", "norm1."),
              ("layernorm_after.", "norm2."), ("lambda_1", "ls1"), ("lambda_2", "ls2"),
              ("attention.projection_layer.", "attn.proj."), ("attention.", "attn."),
              ("multi_modal_projector.layer_norm.", "mlp1.0."), ("multi_modal_projector.linear_1.", "mlp1.1."),
              ("multi_modal_projector.linear_2.", "mlp1.3.")]


def chat_tensors(tensors):
    """From the -hf form's names to the original's, where q, k and v are one matrix."""
    result = {}
    for name, tensor in tensors.items():
        if not name.startswith("language_model."):
            for old, new in CHAT_NAMES:
                name = name.replace(old, new)
        if ".k_proj." in name and "vision_model" in name or ".v_proj." in name and "vision_model" in name:
            continue
        if ".q_proj." in name and "vision_model" in name:
            source = name.replace("vision_model.encoder.layers.", "vision_tower.encoder.layer.")
            source = source.replace("attn.", "attention.")
            tensor = torch.cat([tensors[source.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")])
            name = name.replace("q_proj", "qkv")
        result[name] = tensor.contiguous()
    return result


def hf_tensors(tensors):
    """The way back."""
    result = {}
    for name, tensor in tensors.items():
        if not name.startswith("language_model."):
            for old, new in CHAT_NAMES:
                name = name.replace("." + new if new == "attn." else new, "." + old if new == "attn." else old)
        if ".qkv." in name:
            for part, rows in zip(("q_proj", "k_proj", "v_proj"), tensor.chunk(3)):
                result[name.replace("qkv", part)] = rows.contiguous()
        else:
            result[name] = tensor
    return result


def chat_config(config):
    vision, text = config.vision_config, config.text_config
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "norm_type",
            "layer_norm_eps", "num_channels", "hidden_act")
    text_keys = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                 "intermediate_size", "vocab_size", "rms_norm_eps", "max_position_embeddings", "hidden_act")
    return {"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "ps_version": "v2",
            "downsample_ratio": config.downsample_ratio, "select_layer": config.vision_feature_layer,
            "force_image_size": vision.image_size[0], "dynamic_image_size": True, "use_thumbnail": True,
            "min_dynamic_patch": 1, "max_dynamic_patch": 12,
            "vision_config": {"model_type": "intern_vit_6b", "image_size": vision.image_size[0],
                              "patch_size": vision.patch_size[0], "qkv_bias": vision.attention_bias,
                              "qk_normalization": vision.use_qk_norm, **{key: getattr(vision, key) for key in keys}},
            "llm_config": {"architectures": ["Qwen2ForCausalLM"], "rope_theta": text.rope_parameters["rope_theta"],
                           "tie_word_embeddings": config.tie_word_embeddings,
                           **{key: getattr(text, key) for key in text_keys}}}


def chat_to_hf_config(chat):
    vision, text = dict(chat["vision_config"]), dict(chat["llm_config"])
    vision["model_type"] = "internvl_vision"
    vision["attention_bias"], vision["use_qk_norm"] = vision.pop("qkv_bias"), vision.pop("qk_normalization")
    text.pop("architectures", None)
    return InternVLConfig(vision_config=vision, text_config=text, downsample_ratio=chat["downsample_ratio"],
                          vision_feature_layer=chat["select_layer"],
                          tie_word_embeddings=text.get("tie_word_embeddings", False))


def write(directory, config_text, weights, batch, expected):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(config_text)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    save_file({**batch, **expected}, directory / "expected.safetensors")
    size = sum(path.stat().st_size for path in directory.iterdir())
    print(f"{directory.name}: {size} bytes, loss {expected['loss'].item():.6f}")


def make(name, case, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = make_config(case)
    model = make_model(config, generator)
    batch = make_batch(config, case, generator)
    loss, found = run(model, batch)
    loss.backward()
    parameters = {file_name(n): p for n, p in model.named_parameters()}
    # Blocks behind the selected one take no part: their weights are in the file, without a gradient.
    weights = {n: p.detach().float().contiguous() for n, p in parameters.items()}
    gradients = {n: p.grad.float().contiguous() for n, p in parameters.items() if p.grad is not None}
    expected = {n: t.float().contiguous() for n, t in found.items()}
    expected["loss"] = loss.detach().float().reshape(1)
    with_gradients = {**expected, **{"gradient." + n: g for n, g in gradients.items()}}
    write(ROOT / name, json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n", weights, batch, with_gradients)
    if name == "grouped":
        with_gradients = {**expected, **{"gradient." + n: g for n, g in chat_tensors(gradients).items()}}
        write(ROOT / (name + "_chat"), json.dumps(chat_config(config), indent=2) + "\n", chat_tensors(weights), batch,
              with_gradients)


def make_bfloat16(directory):
    model = InternVLForConditionalGeneration.from_pretrained(directory, dtype=torch.bfloat16, attn_implementation="eager")
    expected = load_file(directory / "expected.safetensors")
    loss, found = run(model.eval(), expected)
    loss.backward()
    found = {n: t for n, t in found.items() if n in expected}
    found.update({"gradient." + file_name(n): p.grad for n, p in model.named_parameters() if p.grad is not None})

    def distance(name):
        off = (found[name].double() - expected[name].double()).norm() / expected[name].double().norm().clamp(min=1e-3)
        return off.float().reshape(1)

    save_file({"loss": loss.detach().float().reshape(1), **{n: distance(n) for n in sorted(found)}},
              directory / "bfloat16.safetensors")
    print(f"{directory.name}: loss {loss.item():.6f}, worst distance {max(distance(n).item() for n in found):.4f}")


def check(directory, batch_file):
    text = json.loads((directory / "config.json").read_text())
    if text["model_type"] == "internvl_chat":
        model = InternVLForConditionalGeneration(chat_to_hf_config(text))
        tensors = {}
        for path in sorted(directory.glob("model*.safetensors")):
            tensors.update(load_file(path))
        ours = {file_name(n): p for n, p in model.named_parameters()}
        theirs = hf_tensors(tensors)
        missing, surplus = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
        if missing or surplus:
            sys.exit(f"names differ: missing {missing}, not known {surplus}")
        with torch.no_grad():
            for name, weight in ours.items():
                weight.copy_(theirs[name])
    else:
        model, report = InternVLForConditionalGeneration.from_pretrained(directory, output_loading_info=True)
        if report["missing_keys"] or report["unexpected_keys"]:
            sys.exit(f"names differ: {report}")
    batch = load_file(batch_file)
    image = set(batch["input_ids"][batch["feature_rows"].long()].tolist()) if len(batch["feature_rows"]) else set()
    if image:
        model.config.image_token_id = image.pop()
        model.config.image_seq_length = len(batch["feature_rows"]) // len(batch["pixels"])
    loss, _ = run(model.double().eval(), batch)
    ours, theirs = float(batch["loss"].double().reshape(-1)[0]), float(loss)
    print(f"loss {ours:.8f}, transformers {theirs:.8f}")
    if not abs(ours - theirs) <= 1e-4 * abs(theirs):
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--batch", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--bfloat16", action="store_true")
    arguments = parser.parse_args()
    if arguments.bfloat16:
        for name in ("grouped", "tied", "text"):
            make_bfloat16(ROOT / name)
        return
    if arguments.check:
        check(arguments.check, arguments.batch or arguments.check / "expected.safetensors")
        return
    for seed, (name, case) in enumerate(CASES.items()):
        make(name, case, seed)
    make_internlm2(4)


if __name__ == "__main__":
    main()
