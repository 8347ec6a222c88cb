#!/usr/bin/env python3
"""Random ways to run one training must give the losses of one rank: schedules, owners, orders, microbatches computed
at once, pipeline, data and context widths, recomputation, feature caches, threads, phases, videos and microbatches
without pictures.

    MOTET=motet TEST_DATA=tests/data equality.py [first seed] [how many]

Under `deterministic: exact` losses and weights must have the same bits, else losses agree to 1e-5 (bfloat16: 2e-2, to
1e-4 in the first step). A draw that is refused must say by which rule; too many refusals fail too."""
import json, os, pathlib, random, re, subprocess, sys, tempfile

MOTET, DATA = os.environ["MOTET"], pathlib.Path(os.environ["TEST_DATA"]).resolve()
ROWS, BATCH, STEPS = 6, 12, 3
LAYERS = 6  # of the decoder, with embedding and head
ALONE = "<vision+projector: inline, llm: 1f1b>"
BODIES = ["1f1b", "1f1b(virtual=2)", "1f1b(virtual=3)", "gpipe", "zb1p", "zb2p", "fold", "zbv", "vhalf", "vmin", "dualpipev"]


def write_data(path):
    """Lines with pictures, several pictures, none, and videos; runs of each kind, so that whole rows lack pictures."""
    lines = (DATA / "train/train.jsonl").read_text().splitlines()[:24]
    text = [{"messages": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": "A number " + "and one " * n}]}
            for n in range(12)]
    films = [{"messages": [{"role": "user", "content": "<video> or <image>?"}, {"role": "assistant", "content": "Both."}],
              "videos": ["../../video/waves.mp4"], "images": ["rgb.png"]},
             {"messages": [{"role": "user", "content": "And this?"}, {"role": "assistant", "content": "A wave."}],
              "video": "../../video/moving.gif"}]
    (path / "pictures.jsonl").write_text("\n".join(lines) + "\n")
    (path / "mixed.jsonl").write_text("\n".join(lines[:10] + [json.dumps(line) for line in text + films]) + "\n")
    (path / "text.jsonl").write_text("\n".join(json.dumps(line) for line in text) + "\n")
    config = json.loads((DATA / "train/config.json").read_text())
    (path / "plain.json").write_text(json.dumps(config))
    config["llm_config"]["tie_word_embeddings"] = True
    (path / "tied.json").write_text(json.dumps(config))


def draw_encoder(rng, ahead):
    kind = rng.choice(["transpose"] * 4 + ["inline", "inline"])
    if kind == "inline":
        return kind
    options = rng.choice([[], ["order=prefix"], ["order=ahead"] if ahead else [], [f"window={rng.randint(1, 6)}"]])
    if rng.random() < 0.4:
        options = options + ["owner=" + rng.choice(["balanced", "round-robin"])]
    if rng.random() < 0.35:
        options = options + [f"batch={rng.randint(2, 4)}"]
    return "transpose" + (f"({', '.join(options)})" if options else "")


def draw_body(rng):
    body = rng.choice(BODIES)
    if rng.random() < 0.75:
        return body
    return (body[:-1] + ", " if "(" in body else body + "(") + f"batch={rng.randint(2, 3)})"


def draw_schedule(rng, ranks, ahead):
    body = draw_body(rng)
    form = rng.random()
    if form < 0.55:
        return f"<vision+projector: {draw_encoder(rng, ahead)}, llm: {body}>"
    if form < 0.65:
        return f"<vision: {draw_encoder(rng, ahead)}, projector+llm: {body}>"
    if form < 0.72:
        return f"<vision: {draw_encoder(rng, ahead)}, projector: {draw_encoder(rng, ahead)}, llm: {body}>"
    if form < 0.80:
        same = rng.choice(["1f1b", "gpipe", "1f1b(batch=2)"])
        return f"<vision: {same}, projector: {rng.choice([same, 'inline'])}, llm: {same}>"
    if form < 0.84:
        return f"<vision+projector+llm: {rng.choice([body] * 10 + ['transpose'])}>"
    if form < 0.88:
        return rng.choice([f"<vision: {draw_encoder(rng, ahead)}, projector: 1f1b, llm: 1f1b>", "<vision: 1f1b, projector: transpose, llm: 1f1b>",
                           f"<vision+projector: {rng.choice(['1f1b', 'gpipe'])}, llm: transpose>"])
    if ranks < 2:
        return f"<vision+projector: {draw_encoder(rng, ahead)}, llm: {body}>"
    own = rng.randint(1, ranks - 1)
    data = rng.choice([d for d in range(1, own + 1) if own % d == 0])
    options = [f"ranks={own}"] + ([f"data={data}"] if data > 1 else []) + rng.choice([[], [], [f"inner={rng.choice(['gpipe', '1f1b'])}"]])
    trunk = f"dedicate(ranks={ranks - own}, inner={body})" if "(" not in body and rng.random() < 0.4 else body
    return f"<vision+projector: dedicate({', '.join(options)}), llm: {trunk}>"


def draw_split(rng, schedule, ranks):
    """Six decoder layers over the slabs of a schedule whose one Sharded region is the decoder, at random; None for others."""
    body = re.fullmatch(r"<vision\+projector: (?:transpose|inline).*, llm: (\w+)(?:\((?:virtual=(\d))?(?:, )?(?:batch=\d)?\))?>", schedule)
    if body is None or body[1] == "dedicate" or rng.random() < 0.5:
        return None
    slabs = ranks * (2 if body[1] in ("fold", "zbv", "vhalf", "vmin", "dualpipev") else int(body[2] or 1))
    layers = [rng.randrange(slabs) for _ in range(LAYERS)]
    return [layers.count(slab) for slab in range(slabs)]


def draw_way(rng, what, frozen):
    pipeline = rng.choice([1, 2, 2, 3, 4, 8])
    data = rng.choice([1, 1, 2, 3]) if pipeline <= 2 else rng.choice([1, 1, 2]) if pipeline <= 4 else 1
    way = {"parallel.pipeline": pipeline, "parallel.data": data, "train.microbatches": ROWS // data,
           "memory.recompute": rng.choice(["[]", "[]", "all", "[vision]", "[llm]"]),
           "train.threads": rng.choice([1, 1, 2]), "data.decode_threads": rng.choice([1, 2]),
           "train.search_seconds": rng.choice([0, 0.002])}
    way["schedule"] = draw_schedule(rng, pipeline, ahead=frozen and "cache" not in what)
    split = draw_split(rng, way["schedule"], pipeline)
    return way | ({"parallel.split": split} if split else {})


def draw(rng):
    """What decides the losses, and ways to run it: one, or several of which each goes on from the one before."""
    what = {"trainable": rng.choice(["all", "all", "[projector]", "[llm]", "[projector, llm]", "[vision]", "[vision, projector]"]),
            "train.dtype": rng.choice(["float32", "float32", "float32", "bfloat16"]),
            "deterministic": rng.choice(["exact", "exact", "run"]),
            "data.train": rng.choice(["pictures", "mixed", "mixed", "text"]),
            "config": rng.choice(["plain", "plain", "tied"]),
            "phases": "null"}
    if rng.random() < 0.2:
        what["phases"] = ("[{until: 1, trainable: [projector], learning_rate: 5e-3}, {until: 2, trainable: [llm]}, "
                          "{trainable: all, learning_rate: {vision: 1e-4, default: 1e-3}}]")
    frozen = what["phases"] == "null" and what["trainable"] in ("[projector]", "[llm]", "[projector, llm]")
    if frozen and rng.random() < 0.4:
        what["cache"] = True
    if "cache" not in what and rng.random() < 0.12: # groups of context ranks: transposed encoders, rounding
        what["deterministic"] = "run"
        way = draw_way(rng, what, frozen)
        way.pop("parallel.split", None)
        way.update({"parallel.context": 2, "parallel.pipeline": min(way["parallel.pipeline"], 4), "memory.recompute": "[]",
                    "schedule": f"<vision+projector: transpose{rng.choice(['', '(batch=2)'])}, llm: {rng.choice(BODIES)}>"})
        return what, [way]
    legs = rng.choice([1, 1, 2, 3])
    ways = [draw_way(rng, what, frozen) for _ in range(legs)]
    for step, way in enumerate(ways):
        way["train.steps"] = STEPS - legs + 1 + step
    return what, ways


def run(work, name, what, way):
    keys = {"train.steps": STEPS, "train.save_every": 1, "train.global_batch": BATCH, "train.learning_rate": 1e-3, "data.eval": "null",
            "train.timeline_every": 0, "data.video_frames": 3, "output_dir": work / name, **what, **way}
    if keys.pop("cache", False):
        keys["data.feature_cache"] = work / "cache"
    keys["data.train"] = work / (what["data.train"] + ".jsonl")
    keys["config"] = work / (what["config"] + ".json")
    done = subprocess.run([MOTET, "train", "train/job.yaml"] + [f"{key}={value}" for key, value in keys.items()], cwd=DATA,
                          capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        return done.returncode, done.stderr.strip(), None
    lines = [json.loads(line) for line in (work / name / "metrics.jsonl").read_text().splitlines()]
    return 0, keys, [(line["loss"], line["gradient_norm"], line["weights_digest"]) for line in lines]


def differs(what, alone, wide):
    if len(alone) != len(wide):
        return "other steps"
    if what["deterministic"] == "exact":
        return None if alone == wide else "other bits"
    for step, (one, other) in enumerate(zip(alone, wide)):
        most = 1e-5 if what["train.dtype"] == "float32" else 1e-4 if step == 0 else 2e-2
        if abs(one[0] - other[0]) > most * abs(one[0]):
            return f"step {step + 1}: {one[0]} and {other[0]}"
    return None


def main():
    first, count = (int(word) for word in (sys.argv[1:] + ["0", "12"][len(sys.argv) - 1:]))
    alone, refused, failures = {}, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        write_data(work)
        for seed in range(first, first + count):
            what, ways = draw(random.Random(seed))
            key = json.dumps(what, sort_keys=True)
            if key not in alone:
                alone[key] = run(work, f"alone{seed}", what, {"parallel.pipeline": 1, "train.microbatches": ROWS, "schedule": ALONE})
            for way in ways:
                code, text, losses = run(work, f"wide{seed}", what, way)
                if code:
                    break
            if alone[key][0] != 0:
                problem = f"one rank fails: {alone[key][1]}"
            elif code != 0:
                refused += 1
                problem = None if code == 1 and re.match(r"motet: (\S+: )?\[[a-z]+\] ", text) else f"exit code {code}: {text}"
            else:
                problem = differs(what, alone[key][2], losses)
            if problem or os.environ.get("VERBOSE"):
                print(f"seed {seed}: {problem or ('refused: ' + text if code else 'equal')}\n   {what}\n   {ways}", flush=True)
            failures += problem is not None
    print(f"{count} draws, {refused} refused, {len(alone)} references, {failures} failures")
    return 1 if failures or refused > 0.4 * count else 0


sys.exit(main())
