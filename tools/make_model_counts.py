#!/usr/bin/env python3
"""Parameter counts of the published configs, counted by others: transformers and diffusers build each model on torch's
meta device (no memory, no weights) and their parameters are added up. Writes tests/data/models/counts.json, and
random.json with small random configs of every family with their counts and, where the library runs so small a model,
the operations of a forward as torch counts them.

    python tools/make_model_counts.py          needs torch, transformers, diffusers

Open-Sora-Plan has no class in either library: its counts add up the shapes that its published code states.
"""
import json
import pathlib
import random

import torch
import diffusers
import transformers
from torch.utils.flop_counter import FlopCounterMode

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/models"


def size(module):
    return sum(p.numel() for p in (module.parameters() if module is not None else []))


def auto(config):
    """The config as transformers understands it."""
    return transformers.AutoConfig.for_model(config["model_type"], **{k: v for k, v in config.items() if k not in (
        "model_type", "quantization_config", "auto_map", "architectures", "transformers_version", "torch_dtype")})


def build(cls, config):
    with torch.device("meta"):
        model = cls(config)
    model.tie_weights()
    return model


def text(config):
    return {"llm": size(build(transformers.AutoModelForCausalLM.from_config, auto(config)))}


def qwen(cls, config):
    model = build(cls, auto(config))
    visual = model.model.visual
    merger = size(visual.merger) + size(getattr(visual, "deepstack_merger_list", None))
    whole = size(visual)
    return {"vision": whole - merger, "projector": merger, "llm": size(model) - whole}


def idefics(config):
    model = build(transformers.Idefics3ForConditionalGeneration, auto(config))
    vision, connector = size(model.model.vision_model), size(model.model.connector)
    return {"vision": vision, "projector": connector, "llm": size(model) - vision - connector}


def decoder_of(config, tied):
    """InternVL's decoders: InternLM2 has the shapes of Llama without biases."""
    config = dict(config)
    if config["model_type"] == "internlm2":
        config["model_type"] = "llama"
        config["attention_bias"] = config["mlp_bias"] = config.pop("bias")
    config["tie_word_embeddings"] = tied
    return text(config)["llm"]


def internvl(config):
    """The original form has no class in transformers: its tower and projector are built in the -hf form."""
    v, t = config["vision_config"], config["llm_config"]
    vision = transformers.InternVLVisionConfig(
        hidden_size=v["hidden_size"], num_hidden_layers=v["num_hidden_layers"],
        num_attention_heads=v["num_attention_heads"], attention_bias=v["qkv_bias"],
        use_qk_norm=v["qk_normalization"], intermediate_size=v["intermediate_size"], norm_type=v["norm_type"],
        image_size=[v["image_size"]] * 2, patch_size=[v["patch_size"]] * 2, num_channels=v.get("num_channels", 3),
        use_mask_token=False, use_absolute_position_embeddings=True, use_mean_pooling=True)
    small = transformers.LlamaConfig(hidden_size=t["hidden_size"], intermediate_size=1, num_hidden_layers=1,
                                     num_attention_heads=1, vocab_size=10)
    whole = transformers.InternVLConfig(vision_config=vision, text_config=small,
                                        downsample_ratio=config["downsample_ratio"])
    model = build(transformers.InternVLForConditionalGeneration, whole)
    tied = config.get("tie_word_embeddings", t.get("tie_word_embeddings", False))
    return {"vision": size(model.model.vision_tower), "projector": size(model.model.multi_modal_projector),
            "llm": decoder_of(t, tied)}


def llava(config):
    """The original form names its tower: CLIP ViT-L/14 at 336 pixels, sizes as in openai/clip-vit-large-patch14-336."""
    vision = transformers.CLIPVisionConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
                                           num_attention_heads=16, image_size=336, patch_size=14)
    keep = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "vocab_size", "tie_word_embeddings")
    language = transformers.LlamaConfig(**{k: config[k] for k in keep})
    model = build(transformers.LlavaForConditionalGeneration, transformers.LlavaConfig(
        vision_config=vision, text_config=language, tie_word_embeddings=False))
    return {"vision": size(model.model.vision_tower), "projector": size(model.model.multi_modal_projector),
            "llm": size(model.model.language_model) + size(model.lm_head)}


def mt5(config):
    model = build(transformers.MT5ForConditionalGeneration, auto(config))
    # Recent transformers tie the head whatever the config says; the published weights have one of its own.
    head = 0 if config.get("tie_word_embeddings", True) else config["vocab_size"] * config["d_model"]
    return {"encoder": size(model.encoder), "decoder": size(model) - size(model.encoder) + head}


def dit(cls, config):
    config = {k: v for k, v in config.items() if not k.startswith("_")}
    with torch.device("meta"):
        return {"dit": size(cls(**config))}


def wan(config):
    return dit(diffusers.WanTransformer3DModel, dict(
        num_attention_heads=config["num_heads"], attention_head_dim=config["dim"] // config["num_heads"],
        in_channels=config["in_dim"], out_channels=config["out_dim"], text_dim=config.get("text_dim", 4096),
        freq_dim=config["freq_dim"], ffn_dim=config["ffn_dim"], num_layers=config["num_layers"]))


def linear(a, b, bias=True):
    return a * b + (b if bias else 0)


def conv(a, b, k):
    return a * b * k + b


def residual(a, b, k):
    return 2 * a + conv(a, b, k) + 2 * b + conv(b, b, k) + (conv(a, b, 1) if a != b else 0)


def open_sora(config):
    p, ae = config["predictor"], config["ae"]
    d = p["num_heads"] * p["head_dim"]
    patch = p["patch_size_thw"][1] * p["patch_size_thw"][2]
    attention = 4 * linear(d, d)
    block = 2 * attention + linear(d, 4 * d) + linear(4 * d, d) + 6 * d
    ends = (linear(p["caption_channels"], d) + linear(d, d) + linear(patch * p["in_channels"], d) + linear(256, d) +
            linear(d, d) + linear(d, 6 * d) + 2 * d + linear(d, p["patch_size_thw"][0] * patch * p["out_channels"]))
    c, e, f, z = (ae["base_channels"], ae["encoder_energy_flow_hidden_size"], ae["decoder_energy_flow_hidden_size"],
                  ae["latent_dim"])
    mid = 2 * 4 * c + 4 * conv(4 * c, 4 * c, 1)
    encoder = (conv(24, c, 9) + 2 * residual(c, c, 9) + conv(c, c, 9) + conv(c + e, 2 * c, 9) +
               2 * residual(2 * c, 2 * c, 27) + conv(2 * c, 2 * c, 27) + conv(12, e, 9) + conv(24, e, 9) +
               residual(2 * c + e, 4 * c, 27) + mid + residual(4 * c, 4 * c, 27) + 2 * 4 * c + conv(4 * c, 2 * z, 27))
    decoder = (conv(z, 4 * c, 27) + residual(4 * c, 4 * c, 27) + mid + residual(4 * c, 4 * c + f, 27) +
               2 * residual(4 * c, 4 * c, 27) + conv(4 * c, 4 * c, 27) + residual(4 * c, 4 * c + f, 27) +
               residual(4 * c, 2 * c, 27) + residual(2 * c, 2 * c, 27) + conv(2 * c, 2 * c, 9) +
               residual(2 * c, 2 * c, 27) + residual(2 * c, c, 27) + residual(c, c, 27) +
               2 * ae["connect_res_layer_num"] * residual(f, f, 27) + conv(f, 12, 9) + conv(f, 24, 9) + 2 * c +
               conv(c, 24, 9))
    t5 = json.loads((DATA / "mT5-xxl/config.json").read_text())
    return {"text_encoder": mt5(t5)["encoder"], "vae": encoder + decoder, "dit": p["num_layers"] * block + ends}


def count(config):
    kind = config.get("_class_name") or config.get("model_type") or config["predictor"]["model_id"]
    readers = {
        "DiTTransformer2DModel": lambda c: dit(diffusers.DiTTransformer2DModel, c),
        "CogVideoXTransformer3DModel": lambda c: dit(diffusers.CogVideoXTransformer3DModel, c),
        "WanTransformer3DModel": lambda c: dit(diffusers.WanTransformer3DModel, c),
        "WanModel": wan, "videoditsparse": open_sora, "internvl_chat": internvl, "llava": llava, "mt5": mt5,
        "idefics3": idefics,
        "qwen2_vl": lambda c: qwen(transformers.Qwen2VLForConditionalGeneration, c),
        "qwen2_5_vl": lambda c: qwen(transformers.Qwen2_5_VLForConditionalGeneration, c),
        "qwen3_vl": lambda c: qwen(transformers.Qwen3VLForConditionalGeneration, c),
        "qwen3_vl_moe": lambda c: qwen(transformers.Qwen3VLMoeForConditionalGeneration, c),
    }
    return readers.get(kind, text)(config)


def operations(config):
    """Operations of a small model's forward, counted by torch while it runs, and the data that it ran on: attention is
    counted in full, whatever the mask. None where no library runs the model so simply."""
    kind = config.get("_class_name") or config["model_type"]
    plain = {k: v for k, v in config.items() if not k.startswith("_")}
    one = torch.zeros(1, dtype=torch.long)
    if kind == "DiTTransformer2DModel":
        side = config["sample_size"]
        model = diffusers.DiTTransformer2DModel(**plain)
        inputs = dict(hidden_states=torch.zeros(1, config["in_channels"], side, side), timestep=one, class_labels=one)
        data = {"picture": [1, 8 * side, 8 * side]}
    elif kind == "CogVideoXTransformer3DModel":
        model = diffusers.CogVideoXTransformer3DModel(**{**plain, "use_rotary_positional_embeddings": False,
                                                         "sample_frames": 9, "sample_height": 4, "sample_width": 6})
        inputs = dict(hidden_states=torch.zeros(1, 3, config["in_channels"], 4, 6), timestep=one,
                      encoder_hidden_states=torch.zeros(1, 226, config["text_embed_dim"]))
        data = {"picture": [9, 32, 48]}
    elif kind in ("llama", "qwen2", "qwen3", "qwen3_moe", "gpt2", "deepseek_v2", "deepseek_v3"):
        tokens = 4 if kind == "gpt2" else 24
        model = transformers.AutoModelForCausalLM.from_config(auto(config), attn_implementation="eager")
        model.set_experts_implementation("eager") if hasattr(model, "set_experts_implementation") else None
        inputs, data = dict(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=False), {"tokens": tokens}
    else:
        return None
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            model.eval()(**inputs)
    return {**data, "forward_flops": counter.get_total_flops()}


def heads(rng):
    kv = rng.choice([1, 2, 3, 4])
    return kv * rng.choice([1, 2, 3]), kv


def random_text(rng, kind):
    q, kv = heads(rng)
    width = 2 * rng.randint(2, 20)
    config = {"model_type": kind, "num_hidden_layers": rng.randint(1, 5), "num_attention_heads": q,
              "num_key_value_heads": kv, "hidden_size": q * width, "intermediate_size": rng.randint(3, 90),
              "vocab_size": rng.randint(10, 500), "tie_word_embeddings": rng.random() < 0.5}
    if kind in ("llama", "qwen3", "qwen3_moe"):
        config["head_dim"] = 2 * rng.randint(2, 20)
        config["attention_bias"] = rng.random() < 0.3
    if kind == "llama":
        config["mlp_bias"] = rng.random() < 0.3
    if kind == "qwen3_moe":
        config.update(num_experts=rng.randint(2, 9), moe_intermediate_size=rng.randint(3, 40),
                      decoder_sparse_step=rng.randint(1, 3),
                      mlp_only_layers=[0] if rng.random() < 0.5 else [])
        config["num_experts_per_tok"] = rng.randint(1, config["num_experts"])
    return config


def random_gpt2(rng, kind):
    h = rng.randint(1, 6)
    return {"model_type": kind, "n_layer": rng.randint(1, 5), "n_head": h, "n_embd": h * rng.randint(2, 20),
            "n_inner": rng.choice([None, 33]), "n_positions": rng.randint(4, 60), "vocab_size": rng.randint(10, 500),
            "tie_word_embeddings": rng.random() < 0.5}


def random_deepseek(rng, kind):
    h = rng.randint(1, 6)
    config = {"model_type": kind, "num_hidden_layers": rng.randint(1, 5), "num_attention_heads": h,
              "num_key_value_heads": h, "hidden_size": h * rng.randint(3, 20), "intermediate_size": rng.randint(3, 90),
              "vocab_size": rng.randint(10, 500), "kv_lora_rank": 2 * rng.randint(1, 15),
              "q_lora_rank": rng.choice([None, 7, 12]) if kind == "deepseek_v2" else rng.randint(2, 20),
              "qk_nope_head_dim": 2 * rng.randint(1, 10), "qk_rope_head_dim": 2 * rng.randint(1, 9),
              "v_head_dim": rng.randint(2, 20), "n_routed_experts": 8, "num_experts_per_tok": rng.randint(1, 4),
              "n_group": 1, "topk_group": 1, "moe_intermediate_size": rng.randint(3, 40),
              "n_shared_experts": rng.randint(1, 3), "first_k_dense_replace": rng.randint(0, 3),
              "tie_word_embeddings": False}
    return config


def random_qwen_vl(rng, kind):
    decoder = random_text(rng, {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
                                "qwen3_vl_moe": "qwen3_moe"}[kind])
    tied = decoder.pop("tie_word_embeddings")
    del decoder["model_type"]
    h, merge = rng.randint(1, 4), rng.randint(1, 3)
    wide = h * 2 * rng.randint(2, 10)
    vision = {"depth": rng.randint(1, 5), "num_heads": h, "patch_size": rng.randint(2, 16),
              "spatial_merge_size": merge, "temporal_patch_size": rng.randint(1, 3)}
    if kind == "qwen2_vl":
        vision.update(embed_dim=wide, hidden_size=decoder["hidden_size"], mlp_ratio=rng.randint(1, 5))
    else:
        vision.update(hidden_size=wide, intermediate_size=rng.randint(3, 90), out_hidden_size=decoder["hidden_size"])
    if kind == "qwen2_5_vl":
        vision.update(window_size=vision["patch_size"] * merge * rng.randint(1, 5), fullatt_block_indexes=[0])
    if kind.startswith("qwen3"):
        vision.update(num_position_embeddings=rng.randint(2, 9) ** 2,
                      deepstack_visual_indexes=sorted(rng.sample(range(vision["depth"]), rng.randint(0, 1) or 1)))
        return {"model_type": kind, "text_config": decoder, "vision_config": vision, "tie_word_embeddings": tied}
    return {"model_type": kind, **decoder, "vision_config": vision, "tie_word_embeddings": tied}


def random_internvl(rng, kind):
    decoder = random_text(rng, rng.choice(["llama", "qwen2", "internlm2"]))
    if decoder["model_type"] == "internlm2":
        decoder["bias"] = rng.random() < 0.3
    h, patch, grid = rng.randint(1, 4), rng.randint(2, 9), 2 * rng.randint(1, 4)
    vision = {"hidden_size": h * 2 * rng.randint(2, 10), "num_hidden_layers": rng.randint(1, 5),
              "num_attention_heads": h, "intermediate_size": rng.randint(3, 90), "image_size": patch * grid,
              "patch_size": patch, "qkv_bias": rng.random() < 0.5, "qk_normalization": rng.random() < 0.5,
              "norm_type": rng.choice(["rms_norm", "layer_norm"])}
    return {"model_type": kind, "llm_config": decoder, "vision_config": vision, "downsample_ratio": 0.5,
            "dynamic_image_size": True}


def random_idefics(rng, kind):
    decoder = random_text(rng, "llama")
    tied = decoder.pop("tie_word_embeddings")
    h, patch, scale = rng.randint(1, 4), rng.randint(2, 9), rng.randint(1, 3)
    vision = {"hidden_size": h * 2 * rng.randint(2, 10), "num_hidden_layers": rng.randint(1, 5),
              "num_attention_heads": h, "intermediate_size": rng.randint(3, 90),
              "image_size": patch * scale * rng.randint(1, 4), "patch_size": patch}
    return {"model_type": kind, "text_config": decoder, "vision_config": vision, "scale_factor": scale,
            "tie_word_embeddings": tied, "pad_token_id": 0}


def random_mt5(rng, kind):
    return {"model_type": kind, "num_layers": rng.randint(1, 4), "num_decoder_layers": rng.randint(1, 4),
            "d_model": rng.randint(4, 60), "num_heads": rng.randint(1, 5), "d_kv": rng.randint(2, 20),
            "d_ff": rng.randint(3, 90), "vocab_size": rng.randint(10, 500), "feed_forward_proj": "gated-gelu",
            "relative_attention_num_buckets": 2 * rng.randint(4, 20), "tie_word_embeddings": False}


def random_generator(rng, kind):
    h, width = rng.randint(1, 4), 16 * rng.randint(1, 3)
    if kind == "WanModel":
        return {"_class_name": kind, "dim": h * 12 * rng.randint(1, 3), "num_heads": h, "ffn_dim": rng.randint(3, 90),
                "freq_dim": 2 * rng.randint(4, 40), "in_dim": rng.randint(1, 16), "out_dim": rng.randint(1, 16),
                "num_layers": rng.randint(1, 4), "text_dim": rng.randint(3, 60)}
    config = {"_class_name": kind, "num_attention_heads": h, "attention_head_dim": width,
              "num_layers": rng.randint(1, 4), "in_channels": rng.randint(1, 16), "out_channels": rng.randint(1, 16),
              "patch_size": 2, "attention_bias": rng.random() < 0.5}
    if kind == "DiTTransformer2DModel":
        config.update(sample_size=2 * rng.randint(1, 9), num_embeds_ada_norm=rng.randint(1, 50),
                      norm_elementwise_affine=False)
    else:
        config.update(text_embed_dim=rng.randint(3, 60), time_embed_dim=rng.randint(3, 60),
                      norm_elementwise_affine=rng.random() < 0.5, use_rotary_positional_embeddings=True)
    return config


def main():
    counts = {}
    for path in sorted(DATA.glob("*/config.json")):
        counts[path.parent.name] = count(json.loads(path.read_text()))
        print(path.parent.name, sum(counts[path.parent.name].values()), counts[path.parent.name])
    header = {"source": f"transformers {transformers.__version__}, diffusers {diffusers.__version__}, meta device"}
    (DATA / "counts.json").write_text(json.dumps({**header, "models": counts}, indent=1) + "\n")
    rng = random.Random(20250101)
    makers = [(random_text, k) for k in ("llama", "qwen2", "qwen3", "qwen3_moe")]
    makers += [(random_deepseek, k) for k in ("deepseek_v2", "deepseek_v3")]
    makers += [(random_qwen_vl, k) for k in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")]
    makers += [(random_internvl, "internvl_chat"), (random_idefics, "idefics3"), (random_mt5, "mt5")]
    makers += [(random_generator, k) for k in ("WanModel", "DiTTransformer2DModel", "CogVideoXTransformer3DModel")]
    makers += [(random_gpt2, "gpt2")]
    cases = []
    for maker, kind in makers:
        for _ in range(8):
            config = maker(rng, kind)
            case = {"config": config, "counts": count(json.loads(json.dumps(config)))}
            measured = operations(json.loads(json.dumps(config)))
            cases.append({**case, "operations": measured} if measured else case)
    (DATA / "random.json").write_text(json.dumps({**header, "cases": cases}) + "\n")
    print(len(cases), "random configs")


if __name__ == "__main__":
    main()
