#!/usr/bin/env python3
"""Writes tests/data/dataset/: conversations over the pictures of tests/data/image/, and the tokens and labels that
HuggingFace's tokenizers and the published training procedure of InternVL 2.5 (template internvl2_5) give them; and for
InternVL 2 (templates Hermes-2, and internlm2-chat with a tokenizer of InternLM2's form) what its procedure gives, which
encodes a conversation in one piece and finds the answers by the lengths of what stands between.

Run behind make_tokenizer_fixtures.py and make_image_fixtures.py. The model: tiles of 14 x 14 pixels, 4 tokens each, 1 to
6 tiles and a thumbnail; several pictures of a conversation share the tiles out.
"""
import json
import pathlib

from PIL import Image
from tokenizers import Tokenizer
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

root = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
target = root / "dataset"
target.mkdir(parents=True, exist_ok=True)
tokenizer = Tokenizer.from_file(str(root / "tokenizer" / "qwen2.json"))
TILE, TOKENS, LOW, HIGH = 14, 4, 1, 6

MESSAGES = [
    {"messages": [{"role": "user", "content": "<image>Describe the picture."}, {"role": "assistant", "content": "A red ellipse."}],
     "images": ["rgb.png"]},
    {"messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "What is it?\n<image>"},
                  {"role": "assistant", "content": "An ellipse."}, {"role": "user", "content": "And the color?"},
                  {"role": "assistant", "content": "Red."}], "images": ["halved.jpg"]},
    {"messages": [{"role": "user", "content": "No picture, only text: 2 + 2?"}, {"role": "assistant", "content": "4"}]},
    {"messages": [{"role": "user", "content": "<image> and <image>\nCompare."}, {"role": "assistant", "content": "两个 ellipses, e\u0301t\u00e9."}],
     "images": ["odd.jpg", {"path": "rgba.png"}]},
    {"messages": [{"role": "user", "content": "<image>\nname"}, {"role": "assistant", "content": "\n\n  indented\nlines\n"}],
     "images": ["lossy.webp"]},
    {"messages": [{"role": "user", "content": "Say <|im_end|>."}, {"role": "assistant", "content": "<image> stays a word here"}],
     "images": []},
]
SHAREGPT = [
    {"conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "An ellipse."}], "image": "grey.png"},
    {"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "<image><image><image>"}, {"from": "gpt", "value": "Three."}],
     "image": ["rgb.png", "wide.jpg", "still.gif"]},
]
ROLE = {"user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant", "system": "system"}


def ids_of(text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def tiles_of(name, pictures):
    width, height = Image.open(root / "image" / "pictures" / name).size
    columns, rows = get_optimal_tiled_canvas((height, width), (TILE, TILE), LOW, max(1, HIGH // pictures))
    return columns * rows + (1 if columns * rows > 1 else 0)


def process(sample, default_system):
    turns = [(ROLE[t.get("role", t.get("from"))], t.get("content", t.get("value"))) for t in sample.get("messages", sample.get("conversations"))]
    images = sample.get("images", sample.get("image", []))
    images = [images] if isinstance(images, str) else images
    tiles = [tiles_of(i["path"] if isinstance(i, dict) else i, len(images)) for i in images]
    if turns[0][0] != "system" and default_system is not None:
        turns.insert(0, ("system", default_system))
    left = list(tiles)
    ids, labels = [], []
    opening = len(ids_of("<|im_start|>assistant\n"))
    for role, text in turns:
        while role == "user" and "<image>" in text and left:
            text = text.replace("<image>", "<img>" + "<IMG_CONTEXT>" * (TOKENS * left.pop(0)) + "</img>", 1)
        part = ids_of(f"<|im_start|>{role}\n{text}<|im_end|>\n")
        learnt = [-100] * len(part)
        if role == "assistant":
            learnt = part[:]
            learnt[:opening] = [-100] * opening
            learnt[-1] = -100
        ids += part
        labels += learnt
    return {"ids": ids, "labels": labels[1:] + [-100], "tiles": tiles}


def process_internvl2(sample, tokenizer, first):
    """ids and labels of a conversation without a newline behind <|im_end|>."""
    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    images = sample.get("images", [])
    tiles = [tiles_of(i["path"] if isinstance(i, dict) else i, len(images)) for i in images]
    left, text = list(tiles), ""
    for turn in sample["messages"]:
        words = turn["content"]
        while turn["role"] == "user" and "<image>" in words and left:
            words = words.replace("<image>", "<img>" + "<IMG_CONTEXT>" * (TOKENS * left.pop(0)) + "</img>", 1)
        text += f"<|im_start|>{turn['role']}\n{words}<|im_end|>"
    ids, labels = encode(first + text), [-100] * len(encode(first))
    question, answer = "<|im_start|>user\n", "<|im_start|>assistant\n"
    parts = text.split(answer)
    labels += [-100] * len(encode(parts[0] + answer))
    for part in parts[1:-1]:
        said, asked = part.split(question)
        labels += encode(answer + said)[len(encode(answer)):] + [-100] * len(encode(question + asked + answer))
    labels += encode(answer + parts[-1])[len(encode(answer)):]
    assert len(ids) == len(labels) and all(label in (-100, i) for label, i in zip(labels, ids))
    return {"ids": ids, "labels": labels[1:] + [-100], "tiles": tiles}


internlm2 = Tokenizer.from_file(str(root / "tokenizer" / "internlm2.json"))
for name, own, first in [("hermes2", tokenizer, ""), ("internlm2", internlm2, "<s>")]:
    rows = ",\n".join(json.dumps(process_internvl2(s, own, first), separators=(",", ":")) for s in MESSAGES)
    (target / f"{name}_expected.json").write_text("[\n" + rows + "\n]\n")

for name, samples, system in [("messages", MESSAGES, None), ("sharegpt", SHAREGPT, "You are Motet.")]:
    (target / f"{name}.jsonl").write_text("".join(json.dumps(s, ensure_ascii=False) + "\n" for s in samples), encoding="utf-8")
    rows = ",\n".join(json.dumps(process(s, system), separators=(",", ":")) for s in samples)
    (target / f"{name}_expected.json").write_text("[\n" + rows + "\n]\n")
