#!/usr/bin/env python3
"""Makes the demo's data set from pictures that Debian packages: train.jsonl and eval.jsonl.

    tools/make_demo_data.py [--root /usr/share/openclipart/png] [--train 2000] [--eval 200] OUTPUT_DIRECTORY

The pictures are those of the package openclipart-png (public domain); the lines refer to them by paths relative to the
root, nothing is copied. A caption is what the drawing's author wrote into the file (its title), or for sets that share
one title the file's name, behind the kind of thing that the directory says: "Bird: puffin." The choice is the same on
every machine: it follows from the paths alone. Pictures of the two files differ in content, not only in name.

Python's standard library is enough.
"""
import argparse
import collections
import hashlib
import json
import os
import re
import struct
import sys

# What a directory shows, the longest prefix first; "" leaves a directory out.
KINDS = {
    "animals": "animal", "animals/amphibian": "amphibian", "animals/birds": "bird", "animals/bugs": "insect",
    "animals/dinosaurs": "dinosaur", "animals/fantasy": "fantasy animal", "animals/fish": "fish",
    "animals/mammals": "mammal", "buildings": "building", "buildings/furniture": "furniture",
    "buildings/homes": "house", "buttons": "button", "computer": "computer", "computer/buttons": "button",
    "computer/connectors": "connector", "computer/diagrams": "diagram", "computer/folders": "folder",
    "computer/games": "game", "computer/hardware": "hardware", "computer/icons": "icon",
    "computer/network": "network", "containers": "container", "decorations": "decoration", "education": "school",
    "education/books": "book", "electronics": "electronics", "electronics/battery": "battery",
    "electronics/bulb": "light bulb", "food": "food", "food/beverages": "drink", "food/breads_and_carbs": "bread",
    "food/dairy": "dairy", "food/desserts": "dessert", "food/fruit": "fruit", "food/meats_and_eggs": "meat",
    "food/vegetables": "vegetable", "geography": "geography", "geography/astronomy": "space", "logos": "logo",
    "office": "office", "office/telephone": "telephone", "people": "person", "people/bodypart": "body part",
    "people/clothing": "clothes", "people/smilies": "smiley", "people/stickmen": "stick figure", "plants": "plant",
    "plants/flowers": "flower", "plants/trees": "tree", "recreation": "leisure", "recreation/art": "art",
    "recreation/games": "game", "recreation/games/cards": "playing card", "recreation/games/chess": "chess piece",
    "recreation/games/dice": "die", "recreation/holiday": "holiday", "recreation/holiday/christmas": "christmas",
    "recreation/holiday/easter": "easter", "recreation/holiday/valentines": "valentine", "recreation/music": "music",
    "recreation/party": "party", "recreation/religion": "religion", "recreation/sports": "sport",
    "recreation/toys": "toy", "science": "science", "science/astronomy": "space", "science/medicine": "medicine",
    "shapes": "shape", "shapes/arrows": "arrow", "shapes/callouts": "speech bubble", "shapes/flowchart": "flow chart",
    "shapes/jigsaw": "jigsaw piece", "shapes/stars": "star", "signs_and_symbols": "sign",
    "signs_and_symbols/awards": "award", "signs_and_symbols/clocks": "clock",
    "signs_and_symbols/disability": "sign", "signs_and_symbols/flags": "flag", "signs_and_symbols/hazard": "warning sign",
    "signs_and_symbols/led": "lamp", "signs_and_symbols/map_symbols": "map symbol", "signs_and_symbols/money": "money",
    "signs_and_symbols/weather": "weather", "special/gradients": "gradient", "special/patterns": "pattern",
    "tools": "tool", "tools/weapons": "weapon", "tools/toys": "toy", "transportation": "vehicle",
    "transportation/aiga-symbols": "sign", "transportation/boating": "boat", "transportation/roadsigns": "road sign",
    "transportation/vehicles": "vehicle", "unsorted": "",
}
# A kind fills no more than this part of the data.
LARGEST_SHARE = 0.08
# Sides in pixels: smaller ones show little, larger ones cost time.
SMALLEST, LARGEST = 24, 1600
# Titles that belong to a collection, not to the picture.
COLLECTION_FILES = 4
COLLECTION_WORDS = re.compile(r"collection|theme|iconset|icons\b|clipart|cliparts|svg|http|@|part of|untitled|unnamed|title", re.I)
# This prolific author's titles are Italian.
OTHER_LANGUAGE = re.compile(r"architetto|francesco", re.I)
CARD = re.compile(r"^(white|simple|bordered|ornamental)_([cdhs])_([0-9]+|[ajqk])$")
SUITS = {"c": "clubs", "d": "diamonds", "h": "hearts", "s": "spades"}
RANKS = {"a": "ace", "1": "ace", "2": "two", "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "8": "eight",
         "9": "nine", "10": "ten", "j": "jack", "q": "queen", "k": "king"}
STAR = re.compile(r"^star_([0-9]+)pt([0-9]+)step$")
QUESTIONS = ["What is in this picture?", "Describe the picture.", "Name what you see."]


def png_header(path):
    """Width, height and texts of a whole PNG, or None."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[-8:-4] != b"IEND":
        return None
    width, height = struct.unpack(">II", data[16:24])
    texts, place = {}, 8
    while place + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[place:place + 8])
        if kind == b"tEXt":
            key, _, value = data[place + 8:place + 8 + length].partition(b"\0")
            try:
                texts[key.decode("latin-1")] = value.decode("utf-8")
            except UnicodeDecodeError:
                texts[key.decode("latin-1")] = value.decode("latin-1")
        place += 12 + length
    return width, height, texts, hashlib.sha256(data).digest()


def kind_of(directory):
    while directory:
        if directory in KINDS:
            return KINDS[directory]
        directory = directory.rpartition("/")[0]
    return ""


def words_of(text):
    """Lower-case words without running numbers, underscores and endings."""
    text = re.sub(r"\.(svg|png)$", "", text.strip())
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", text)
    text = re.sub(r"[_\-/]+", " ", text)
    text = re.sub(r"\(.*?\)|[\"#]|\b0\d+\b|\bv\d\b", " ", text)
    text = re.sub(r"(?<=[a-z])0*\d{1,2}\b", "", text)
    return " ".join(text.lower().split()).strip(" .,:;")


def name_words(name, author):
    """Words of a file's name; names end in the author's, cut off at some length."""
    stem = name[:-4]
    first = words_of(author).split()
    if first:
        cut = stem.lower().find("_" + first[0][:6])
        stem = stem[:cut] if cut > 0 else stem
    return words_of(re.sub(r"^(aiga|gnome|mime|etiquette|hotel_icon)[_\-]", "", stem))


def caption_of(path, texts, shared):
    directory, name = os.path.split(path)
    kind = kind_of(directory)
    stem = name[:-4]
    if not kind or OTHER_LANGUAGE.search(stem) or OTHER_LANGUAGE.search(texts.get("Author", "")):
        return None
    card, star = CARD.match(stem), STAR.match(stem)
    if card and card.group(3) in RANKS:
        words = f"{RANKS[card.group(3)]} of {SUITS[card.group(2)]}"
    elif star:
        words = f"{int(star.group(1))} points, step {int(star.group(2))}"
    else:
        title = texts.get("Title", "")
        good = title and shared[title] <= COLLECTION_FILES and not COLLECTION_WORDS.search(title)
        words = words_of(title) if good else name_words(name, texts.get("Author", ""))
    if not re.search(r"[a-z]{3}", words) or len(words) > 48 or re.search(r"[^a-z0-9 ,.'&+!\u00e0-\u00ff]", words):
        return None
    return kind, f"{kind[0].upper()}{kind[1:]}: {words}."


def order_key(path):
    return hashlib.sha256(path.encode()).digest()


def collect(root):
    """All usable pictures as (path, kind, caption, width, height), without copies."""
    headers = {}
    for directory, folders, files in os.walk(root):
        folders.sort()
        for name in files:
            full = os.path.join(directory, name)
            if name.endswith(".png") and not os.path.islink(full):
                header = png_header(full)
                if header is not None and min(header[:2]) >= SMALLEST and max(header[:2]) <= LARGEST:
                    headers[os.path.relpath(full, root)] = header
    shared = collections.Counter(header[2].get("Title", "") for header in headers.values())
    seen, pictures = set(), []
    for path in sorted(headers):
        width, height, texts, digest = headers[path]
        caption = caption_of(path, texts, shared)
        if caption is not None and digest not in seen:
            seen.add(digest)
            pictures.append((path, *caption, width, height))
    return sorted(pictures, key=lambda picture: order_key(picture[0]))


def choose(pictures, wanted):
    limit = max(1, int(wanted * LARGEST_SHARE))
    counts, chosen = collections.Counter(), []
    for picture in pictures:
        if counts[picture[1]] < limit and len(chosen) < wanted:
            counts[picture[1]] += 1
            chosen.append(picture)
    return chosen, counts


def write(path, pictures):
    with open(path, "w", encoding="utf-8") as file:
        for name, _, caption, _, _ in pictures:
            question = QUESTIONS[order_key(name)[0] % len(QUESTIONS)]
            line = {"messages": [{"role": "user", "content": "<image>\n" + question},
                                 {"role": "assistant", "content": caption}], "images": [name]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output")
    parser.add_argument("--root", default="/usr/share/openclipart/png")
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--eval", type=int, default=200)
    options = parser.parse_args()
    if not os.path.isdir(options.root):
        sys.exit(f"{options.root} does not exist: install the package openclipart-png, or name a --root")
    pictures = collect(options.root)
    chosen, counts = choose(pictures, options.train + options.eval)
    if len(chosen) < options.train + options.eval:
        sys.exit(f"only {len(chosen)} of {options.train + options.eval} pictures with captions under {options.root}")
    os.makedirs(options.output, exist_ok=True)
    # The chosen are in an order that has nothing to do with their content.
    write(os.path.join(options.output, "eval.jsonl"), chosen[:options.eval])
    write(os.path.join(options.output, "train.jsonl"), chosen[options.eval:])
    print(f"{options.train} training and {options.eval} held-out pictures of {len(counts)} kinds in {options.output}")


if __name__ == "__main__":
    main()
