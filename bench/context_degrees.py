#!/usr/bin/env python3
"""Two ranks train on texts of very different length: with groups of flexible degree, and with both ranks in one ring for
everything (static context parallelism). The texts are this source tree's: paragraphs of its pages, headers and sources.

    bench/context_degrees.py [--steps N] [--rounds N] [--profile FILE]

Both train the same steps from the same weights, in turn; the table has medians over all steps. Losses must agree.
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOTET = os.path.join(ROOT, "build", "motet")
LONGEST = 3000  # bytes of a text
MARKERS = ("<image>", "<video>", "<img>", "</img>", "<IMG_CONTEXT>", "<|")  # mean something to the data set

JOB = """config: {folder}/config.json
init: random
schedule: "<vision+projector: inline, llm: 1f1b>"
output_dir: {folder}/run
data:
  train: {folder}/texts.jsonl
  tokenizer: {root}/examples/demo/tokenizer.json
parallel: {{pipeline: 1, data: 1, context: 2}}
train: {{steps: 6, microbatches: 2, global_batch: 16, learning_rate: 1.0e-3, seed: 1}}
"""


def texts():
    """Paragraphs of pages, and whole headers and sources, cut to LONGEST bytes."""
    found = []
    for pattern in ("README.md", "docs/*.md", "docs/formats/*.md", "include/motet/*.h", "src/*/*.[ch]"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            with open(path, encoding="utf-8") as file:
                whole = file.read()
            parts = whole.split("\n\n") if path.endswith(".md") else [whole]
            found += [(os.path.relpath(path, ROOT), part[:LONGEST]) for part in parts
                      if len(part) >= 32 and not any(mark in part for mark in MARKERS)]
    return found


def prepare(folder):
    with open(os.path.join(folder, "texts.jsonl"), "w", encoding="utf-8") as out:
        for name, text in texts():
            out.write(json.dumps({"messages": [{"role": "user", "content": "What does %s say?" % name},
                                               {"role": "assistant", "content": text}]}) + "\n")
    with open(os.path.join(ROOT, "examples/demo/config.json")) as file:
        config = json.load(file)
    config["llm_config"]["num_hidden_layers"] = 2
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out)
    with open(os.path.join(folder, "job.yaml"), "w") as out:
        out.write(JOB.format(folder=folder, root=ROOT))


def motet(*words):
    done = subprocess.run([MOTET, *words], cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit("'motet %s' ended with code %d\n%s%s" % (" ".join(words), done.returncode, done.stdout, done.stderr))


def train(folder, degrees, steps):
    shutil.rmtree(os.path.join(folder, "run"), ignore_errors=True)
    motet("train", os.path.join(folder, "job.yaml"), "profile=" + os.path.join(folder, "profile.json"),
          "context.degrees=" + degrees, "train.steps=%d" % steps)
    with open(os.path.join(folder, "run", "metrics.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", help="of such a job; without it, this machine is measured first")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp()
    try:
        prepare(folder)
        if arguments.profile:
            shutil.copy(arguments.profile, os.path.join(folder, "profile.json"))
        else:
            motet("profile", os.path.join(folder, "job.yaml"), "-o", os.path.join(folder, "profile.json"))
        runs = {"static": [], "flexible": []}
        for turn in range(arguments.rounds):
            for degrees in ("static", "flexible") if turn % 2 == 0 else ("flexible", "static"):
                runs[degrees].append(train(folder, degrees, arguments.steps))
    finally:
        shutil.rmtree(folder)
    off = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(runs["flexible"][0], runs["static"][0]))
    print("two ranks, %d steps of 16 texts in 2 microbatches, %d rounds; losses differ by %.1e of themselves\n" %
          (arguments.steps, arguments.rounds, off))
    print("| degrees  | tokens a step | tokens/s | best of a step | step, s | planning, ms | waits for groups, ms |")
    print("|----------|---------------|----------|----------------|---------|--------------|----------------------|")
    rates = {}
    for degrees, several in runs.items():
        steps = [[run[index] for run in several] for index in range(1, arguments.steps)]  # the first one warms up
        best = [min(same, key=lambda line: line["step_seconds"]) for same in steps]
        lines = [line for same in steps for line in same]
        rates[degrees] = sum(line["tokens"] for line in best) / sum(line["step_seconds"] for line in best)
        print("| %-8s | %13.0f | %8.0f | %14.0f | %7.3f | %12.2f | %20.3f |" % (
            degrees, statistics.mean(line["tokens"] for line in best),
            statistics.median(line["tokens"] / line["step_seconds"] for line in lines), rates[degrees],
            statistics.median(line["step_seconds"] for line in lines),
            1e3 * statistics.median(line["planning_seconds"] for line in lines),
            1e3 * statistics.median(line.get("group_wait_seconds", 0) for line in lines)))
    print("\nflexible against static: %+.1f%% tokens a second, each step's best round" %
          (100 * (rates["flexible"] / rates["static"] - 1)))
    assert off < 1e-5, "the losses differ"


if __name__ == "__main__":
    main()
