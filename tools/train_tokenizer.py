#!/usr/bin/env python3
"""Trains the demo's tokenizer: byte-level BPE in Qwen2's form on the texts of JSON lines, with HuggingFace's
tokenizers (PyPI). The result is committed, so that the demo does not need this script:

    tools/make_demo_data.py /tmp/demo && tools/train_tokenizer.py /tmp/demo/train.jsonl examples/demo/tokenizer.json
"""
import json
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]
VOCABULARY = 2000

source, target = sys.argv[1], sys.argv[2]
with open(source, encoding="utf-8") as file:
    samples = [json.loads(line) for line in file]
texts = ["system\nuser\nassistant\n"] * 100
texts += [turn["content"].replace("<image>", "") for sample in samples for turn in sample["messages"]]

tokenizer = Tokenizer(models.BPE())
tokenizer.normalizer = normalizers.NFC()
tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.decoder = decoders.ByteLevel()
tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(SPECIAL), show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train_from_iterator(texts, trainer)
tokenizer.add_special_tokens(SPECIAL)
with open(target, "w", encoding="utf-8") as file:
    file.write(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=None, separators=(",", ":")) + "\n")
print(f"{tokenizer.get_vocab_size()} tokens from {len(texts)} texts")
