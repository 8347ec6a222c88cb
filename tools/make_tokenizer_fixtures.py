#!/usr/bin/env python3
"""Writes tests/data/tokenizer/: three small byte-level BPE tokenizers in the forms of published models, and hard texts
with the ids that HuggingFace's `tokenizers` (PyPI) gives them.

    qwen2.json   NFC, the Qwen2 expression in Split, merges as pairs
    gpt2.json    ByteLevel alone with a space in front, merges as texts, added tokens with every flag
    llama3.json  no normalizer, another expression, ignore_merges
    internlm2.json  letters are characters with a mark for the space, tokens for bytes: SentencePiece's form, as converted
    metaspace.json  the same with the mark put by the pre-tokenizer, unknown characters instead of bytes
"""
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/tokenizer")
target.mkdir(parents=True, exist_ok=True)

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's used to foxes that jump.",
    "A pipeline is made of stages, and a stage of layers: the bubble is what the stages wait for each other.",
    "while (count > 0) { total += values[--count]; }  /* sums the values */ return total;",
    "在北京的一个早晨，人们在公园里打太极拳。图片里有一只猫和一只狗。",
    "日本語のテキストには漢字とひらがなとカタカナが混ざっています。写真に写っているのは猫です。",
    "Привет, мир! Это небольшой текст на русском языке для проверки.",
    "0 1 2 3 10 11 12 100 1000 2024 3.14159 1,000,000",
    # Not white space since Unicode 6.3, whatever some expression engines say.
    "!\u180e !\u180e !\u180e !\u180e",
    "résumé café naïve Ångström über straße façade élève",
] * 3

HARD = [
    "",
    " ",
    "a",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\t\ttabs",
    "line\nline\r\nline\n\n\nline",
    "   \n   \n\n  text",
    "spaces          and more          spaces",
    "it's IT'S they'Re we'LL I'd 'Sam 'ſharp",
    "don’t confuse ’ with '",
    "1234567890 12 345 6789 3.14159 ½ ٣٤٥ 一二三 Ⅷ ²",
    "def f(x):\n    return x ** 2  # squares\n\n\tif x != y && z[0] -> {}\n",
    "int main(void){printf(\"%d\\n\",0x7fff);}",
    "在公园里有一只猫。图片描述：一只狗，两只鸟！",
    "日本語テキスト、ひらがなとカタカナ。ﾊﾝｶｸ",
    "한국어 텍스트도 있습니다. 각각",
    "Привет мир, как дела?",
    "مرحبا بالعالم، كيف حالك؟",
    "שלום עולם",
    "नमस्ते दुनिया क्षत्रिय",
    "สวัสดีชาวโลก",
    "👩‍👩‍👧‍👦 family 👍🏽 thumbs 🇩🇪🇯🇵 flags ❤️ heart 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "e\u0301 vs \u00e9, A\u030a vs \u00c5 vs \u212b, o\u0302\u0323 vs \u1ed9, \u1112\u1161\u11ab vs \ud55c",
    "q\u0307\u0323 and q\u0323\u0307, \u0344, \u0958, \ufb1d, \u2126",
    "z\u0300\u0301\u0302\u0303\u0304\u0305 zalgo\u0336\u0335",
    "\u0000\u0001\u0002\u001b[31m\u007f\u0080\u009f control",
    "\u00a0nbsp \u2003em \u3000ideographic \u200b zero \u2028line\u2029para \u0085nel \u180emvs \ufeffbom \u001c\u001d\u001e\u001f",
    "\ufffd\uffff\U0010ffff\ue000 odd",
    "a !\u180e\u180e! \u180e  b\u180e\u180e, \u0085\u0085! \u3000\u2028 !",
    "mixedРусскийEnglish中文日本語123abc",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case a.b.c/d\\e",
    "http://example.org/path?query=1&other=%20#fragment",
    "!!!???...---***###",
    "((([[[{{{<<<>>>}}}]]])))",
    "the the the the the the the the",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "ababababababababababababababababab bababababababababa",
    "thethethethethethedogdogdogfoxfoxjumpsjumps",
    "<|im_start|>user\n<img><IMG_CONTEXT><IMG_CONTEXT></img>\nWhat is this?<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n",
    "<|im_start|><|im_start|> <|im_end|>x<|im_end|",
    "<|im_ <|im_start<|im_start|>|> <img ><img>",
    "text<|endoftext|>more<|endoftext|>",
    "left   <lstrip>  x <rstrip>   right <both>   y<both>z",
    "word single words singleword a-single-b single_ _single ésingle single٣ single",
    "longlonger longest long er longer",
    "\u1112\u1161\u11abtok \ud55ctok",
    "\nnewline first",
    "\u2028<lstrip> \u3000<both>\u00a0x",
    "𝒳𝒴𝒵 𠮷野家 𐍈 \U0001f9ec",
    "ǅ ǈ ß ẞ ﬁ ﬆ ŉ İ ı K",
    "x\u0301\u200d\u200cy _\u203f_ \u24b6\u24d0 \u2160",
]
generator = random.Random(7)
ALPHABET = list("abc dE'1 \n\t.,(") + ["é", "e\u0301", "猫", "👍", "\u200d", "  ", "the", "<|im_end|>", "\r\n", "٣", "ﬁ", "\u0323"]
HARD += ["".join(generator.choice(ALPHABET) for _ in range(generator.randrange(1, 60))) for _ in range(60)]


def train(size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return json.loads(tokenizer.to_str())


def special(identifier, content, **flags):
    entry = {"id": identifier, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    entry.update(flags)
    return entry


def write(name, document):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (target / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_str(text)
    cases = []
    for hard in HARD:
        ids = tokenizer.encode(hard, add_special_tokens=False).ids
        cases.append({"text": hard, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                      "plain": tokenizer.decode(ids, skip_special_tokens=True)})
    rows = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
    (target / f"{name}_cases.json").write_text("[\n" + rows + "\n]\n", encoding="utf-8")


base = train(900)
size = len(base["model"]["vocab"])
chat = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>"]

qwen2 = json.loads(json.dumps(base))
qwen2["added_tokens"] = [special(size + i, content) for i, content in enumerate(chat)]
assert isinstance(qwen2["model"]["merges"][0], list)
write("qwen2", qwen2)

gpt2 = json.loads(json.dumps(base))
gpt2["normalizer"] = None
gpt2["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
gpt2["model"]["merges"] = [" ".join(pair) for pair in gpt2["model"]["merges"]]
gpt2["added_tokens"] = [special(size, "<|endoftext|>"), special(size + 1, "<lstrip>", lstrip=True),
                        special(size + 2, "<rstrip>", rstrip=True), special(size + 3, "<both>", lstrip=True, rstrip=True),
                        special(size + 4, "single", single_word=True, special=False),
                        special(size + 5, "long", special=False), special(size + 6, "longer", special=False),
                        special(size + 7, "\ud55c", special=False, normalized=True)]
gpt2["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]}
write("gpt2", gpt2)

llama3 = json.loads(json.dumps(base))
llama3["normalizer"] = None
llama3["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
llama3["model"]["ignore_merges"] = True
# Tokens that no merge makes: only whole words reach them.
for i, word in enumerate(["Ġzalgo", "Hello"]):
    llama3["model"]["vocab"][word] = size + i
llama3["added_tokens"] = [special(size + 2 + i, content) for i, content in enumerate(chat)]
write("llama3", llama3)

def train_characters(size):
    """Pieces do not cross words, as SentencePiece has it; the file then cuts nothing."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never", split=True)
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=first, limit_alphabet=120, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = None
    document["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    document["added_tokens"] = document["added_tokens"][:3]
    return document


internlm2 = train_characters(700)
size = len(internlm2["model"]["vocab"])
internlm2["added_tokens"] += [special(size + i, content) for i, content in enumerate(chat[1:])]
write("internlm2", internlm2)

metaspace = json.loads(json.dumps(internlm2))
metaspace["normalizer"] = None
metaspace["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
metaspace["model"]["byte_fallback"] = False
write("metaspace", metaspace)
print(f"tokenizers {tokenizers.__version__}, {len(HARD)} texts, {size} tokens")
