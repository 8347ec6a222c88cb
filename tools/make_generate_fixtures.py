#!/usr/bin/env python3
"""Greedy generation by transformers (from PyPI). Run behind make_internvl_fixtures.py and make_image_fixtures.py.

tests/data/internvl/<case>/generated.safetensors: for models that are there, a prompt (input_ids, feature_rows, pixels) and
the tokens that `generate` gives behind it.

tests/data/generate/: a model directory (tiny, random; weights in bfloat16; its tokenizer is that of examples/demo), and
expected.json: its answers about the pictures of tests/data/image, prompts and text included. Pixels come from Pillow, the
tiles from transformers' choice of grids.

Every step's best logit leads by a margin that rounding in float32 does not reach: asserted.
"""
import json
import pathlib

import numpy
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import InternVLConfig, InternVLForConditionalGeneration
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

import make_internvl_fixtures as models

TOOLS = pathlib.Path(__file__).resolve().parent
DATA = TOOLS.parent / "tests" / "data"
MARGIN = 1e-3
QUESTION = "Please describe the image shortly."


def generate(model, ids, pixels, count, stops):
    """New tokens, without the stop; whether it stopped."""
    model.generation_config.eos_token_id = stops or None
    model.generation_config.pad_token_id = 0
    out = model.generate(input_ids=torch.tensor([ids]), attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
                         pixel_values=pixels, do_sample=False, max_new_tokens=count, return_dict_in_generate=True,
                         output_logits=True)
    for logits in out.logits:
        best = logits[0].double().topk(2).values
        assert best[0] - best[1] > MARGIN, "two tokens are nearly as likely: take another seed"
    new = out.sequences[0, len(ids):].tolist()
    ended = bool(new) and new[-1] in stops
    return new[:-1] if ended else new, ended


def from_case(name, length, count):
    directory = DATA / "internvl" / name
    model, report = InternVLForConditionalGeneration.from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    config, generator = model.config, torch.Generator().manual_seed(11)
    words = torch.randint(0, config.image_token_id, (length,), generator=generator).tolist()
    ids = words[:3] + [config.image_token_id] * config.image_seq_length + words[3:]
    size = config.vision_config.image_size[0]
    pixels = torch.randn((1, 3, size, size), generator=generator)
    new, _ = generate(model.double().eval(), ids, pixels.double(), count, [])
    integers = {"input_ids": ids, "feature_rows": list(range(3, 3 + config.image_seq_length)), "generated": new}
    save_file({**{key: torch.tensor(value, dtype=torch.int32) for key, value in integers.items()}, "pixels": pixels},
              directory / "generated.safetensors")
    print(f"{name}: {len(ids)} tokens, then {new}")


def read_tiles(path, side, most):
    picture = Image.open(path).convert("RGBA")
    white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    picture = Image.alpha_composite(white, picture).convert("RGB")
    columns, rows = get_optimal_tiled_canvas((picture.height, picture.width), (side, side), 1, most)
    whole = picture.resize((columns * side, rows * side), Image.Resampling.BICUBIC)
    tiles = [whole.crop((c * side, r * side, (c + 1) * side, (r + 1) * side)) for r in range(rows) for c in range(columns)]
    if len(tiles) > 1:
        tiles.append(picture.resize((side, side), Image.Resampling.BICUBIC))
    mean, deviation = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])
    values = [(numpy.asarray(tile).astype(numpy.float64) / 255 - mean) / deviation for tile in tiles]
    return torch.tensor(numpy.stack(values).transpose(0, 3, 1, 2))


def whole_model(seed):
    directory = DATA / "generate"
    tokenizer = Tokenizer.from_file(str(TOOLS.parent / "examples" / "demo" / "tokenizer.json"))
    image, stop = tokenizer.token_to_id("<IMG_CONTEXT>"), tokenizer.token_to_id("<|im_end|>")
    vision = dict(models.VISION, image_size=[28, 28], patch_size=[7, 7])
    text = dict(models.TEXT, hidden_size=16, num_attention_heads=4, vocab_size=tokenizer.get_vocab_size() + 3,
                max_position_embeddings=256, tie_word_embeddings=False)
    config = InternVLConfig(vision_config=vision, text_config=text, image_token_id=image, image_seq_length=4,
                            downsample_ratio=0.5, tie_word_embeddings=False)
    model = models.make_model(config, torch.Generator().manual_seed(seed))
    weights = {}
    with torch.no_grad():
        model.model.language_model.embed_tokens.weight *= 0.25  # the blocks, not the last word, decide
        model.lm_head.weight[stop] *= 1.5  # an answer should end now and then
        model.lm_head.weight[tokenizer.get_vocab_size():] *= 0  # rows beyond the tokenizer's words
        model.lm_head.weight[image] *= 0
        for name, weight in model.named_parameters():
            weight.copy_(weight.bfloat16())
            weights[models.file_name(name)] = weight.detach().bfloat16().contiguous()
    directory.mkdir(exist_ok=True)
    text_config = config.to_dict()
    (directory / "config.json").write_text(json.dumps(text_config, indent=2, sort_keys=True) + "\n")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    answers = []
    for pictures in (["rgb.png"], ["wide.jpg"], ["still.gif"], ["rgba.png"], ["rgb.png", "wide.jpg"]):
        tiles = [read_tiles(DATA / "image" / "pictures" / name, 28, 12 // len(pictures)) for name in pictures]
        marks = "".join("<img>" + "<IMG_CONTEXT>" * 4 * len(t) + "</img>\n" for t in tiles)
        prompt = "<|im_start|>user\n" + marks + QUESTION + "<|im_end|>\n<|im_start|>assistant\n"
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        new, ended = generate(model, ids, torch.cat(tiles), 16, [stop])
        answers.append({"images": pictures, "prompt_tokens": len(ids), "tokens": new, "ended": ended,
                        "text": tokenizer.decode(new, skip_special_tokens=True)})
        print(pictures, len(ids), new, ended)
    assert any(a["ended"] for a in answers) and not all(a["ended"] for a in answers), "take another seed"
    (directory / "expected.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    from_case("grouped", 9, 24)
    from_case("tied", 20, 24)
    whole_model(2)
