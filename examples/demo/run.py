#!/usr/bin/env python3
"""The demo: prepares pictures with captions, measures this machine, shows three schedules side by side, shows that they
compute the same, and trains.

    examples/demo/run.py [--quick]

Everything is printed; what is not a time is asserted. Runs on Python's standard library.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MOTET = os.path.join(ROOT, "build", "motet")
JOB = "examples/demo/job.yaml"
INLINE = "<vision+projector: inline, llm: 1f1b>"
PREFIX = "<vision+projector: transpose(order=prefix), llm: 1f1b>"
FILL = "<vision+projector: transpose, llm: 1f1b>"
EVERYTHING, DECODER = ["vision", "projector", "llm"], ["llm"]


def say(text=""):
    print(text, flush=True)


def heading(text):
    say("\n== " + text)


def motet(*words, quiet=True):
    """Runs the command; its output as text, or shown as it comes."""
    done = subprocess.run([MOTET, *words], cwd=ROOT, text=True, stdout=subprocess.PIPE if quiet else None,
                          stderr=subprocess.PIPE if quiet else None)
    if done.returncode != 0:
        sys.exit("demo: 'motet %s' ended with code %d\n%s%s" % (" ".join(words), done.returncode, done.stdout or "",
                                                               done.stderr or ""))
    return done.stdout


def train(name, quiet=True, **keys):
    """Trains from scratch into demo/NAME; the metrics, a dictionary a step."""
    folder = os.path.join("demo", name)
    shutil.rmtree(os.path.join(ROOT, folder), ignore_errors=True)
    words = ["train", JOB, "output_dir=" + folder]
    words += [key.replace("__", ".") + "=" + (json.dumps(value) if isinstance(value, list) else str(value))
              for key, value in keys.items()]
    motet(*words, quiet=quiet)
    with open(os.path.join(ROOT, folder, "metrics.jsonl")) as lines:
        return [json.loads(line) for line in lines]


def layers_of_decoder():
    with open(os.path.join(ROOT, "examples/demo/config.json")) as config:
        return json.load(config)["llm_config"]["num_hidden_layers"] + 2  # with the token embedding and the head


def plan(schedule, trainable, split, profile):
    return json.loads(motet("plan", JOB, "schedule=" + schedule, "trainable=" + json.dumps(trainable),
                            "parallel.split=" + json.dumps(split), "profile=" + profile, "--json"))


def best_split(schedule, trainable, profile="demo/profile.json"):
    """The decoder layers of the two stages with which the simulator finds the schedule fastest."""
    layers = layers_of_decoder()
    splits = [[first, layers - first] for first in range(2, layers - 1)]
    return min(splits, key=lambda split: plan(schedule, trainable, split, profile)["step_seconds"])


def prepare():
    heading("pictures with captions, and this machine's costs")
    os.makedirs(os.path.join(ROOT, "demo"), exist_ok=True)
    subprocess.run([sys.executable, "tools/make_demo_data.py", "demo/data"], cwd=ROOT, check=True)
    motet("profile", JOB, "-o", "demo/profile.json", quiet=False)


def compare_schedules(steps):
    """Measured and simulated step times of three schedules, the latter two by a profile that the first one's run has
    scaled; `fill` must win, frozen and trained."""
    won = True
    for name, trainable in (("frozen", DECODER), ("trained", EVERYTHING)):
        heading("two ranks, %s encoder: %d steps of each schedule, medians" % (name, steps))
        say("  %-8s %-9s %10s %10s %7s %6s   idle by cause, simulated" %
            ("schedule", "layers", "measured s", "simulated", "error", "idle"))
        times, profile = {}, "demo/profile.json"
        for label, schedule in (("inline", INLINE), ("prefix", PREFIX), ("fill", FILL)):
            split = best_split(schedule, trainable, profile)
            planned = plan(schedule, trainable, split, profile)
            lines = train("compare-%s-%s" % (name, label), schedule=schedule, trainable=trainable, profile=profile,
                          parallel__split=split, train__steps=steps, train__eval_every=0, train__save_every=0)[3:]
            times[label] = statistics.median(line["makespan_seconds"] for line in lines)
            expected = statistics.median(line["simulated_seconds"] for line in lines)
            causes = sorted(planned["idle_by_cause"].items(), key=lambda cause: -cause[1])
            whole = sum(planned["idle_by_cause"].values()) or 1.0
            say("  %-8s %-9s %10.3f %10.3f %6.1f%% %5.1f%%   %s" % (
                label, "%d + %d" % tuple(split), times[label], expected, 100 * (expected / times[label] - 1),
                100 * statistics.median(line["idle_share"] for line in lines),
                ", ".join("%s %.0f%%" % (cause.replace("_", " "), 100 * seconds / whole)
                          for cause, seconds in causes if seconds > 0.005 * whole)))
            if label == "inline":
                profile = "demo/profile-%s.json" % name
                motet("profile", "--calibrate", "demo/compare-%s-inline" % name, "-o", profile)
        say("  fill against inline %+.1f%%, against prefix %+.1f%%" % (
            100 * (times["fill"] / times["inline"] - 1), 100 * (times["fill"] / times["prefix"] - 1)))
        won = won and times["fill"] < min(times["inline"], times["prefix"])
    say("\n  fill is the fastest of the three, frozen and trained: %s" % ("yes" if won else "NOT IN THIS RUN"))


def compare_losses(steps):
    """The same losses whatever the schedule, owners, ranks and replicas; asserted."""
    heading("the same losses, whatever the schedule: largest relative difference over %d steps" % steps)
    ways = [("inline, 2 ranks", INLINE, 2, 1), ("prefix, 2 ranks", PREFIX, 2, 1), ("fill, 2 ranks", FILL, 2, 1),
            ("fill, 3 ranks", FILL, 3, 1), ("fill, 4 ranks", FILL, 4, 1),
            ("round robin, 3 ranks", FILL.replace("transpose", "transpose(owner=round-robin)"), 3, 1),
            ("gpipe, 2 ranks", FILL.replace("1f1b", "gpipe"), 2, 1), ("2 virtual stages, 2 ranks", FILL.replace(
                "1f1b", "1f1b(virtual=2)"), 2, 1), ("fill, 2 replicas of 2 ranks", FILL, 2, 2)]
    small = {"train__steps": steps, "train__global_batch": 12, "train__eval_every": 0, "train__save_every": 0}
    for name, trainable in (("all train", EVERYTHING), ("projector alone", ["projector"]), ("decoder alone", DECODER)):
        def losses(schedule, ranks, replicas):
            lines = train("equal", schedule=schedule, trainable=trainable, parallel__pipeline=ranks,
                          parallel__data=replicas, train__microbatches=4 // replicas, **small)
            return [line["loss"] for line in lines]

        reference = losses(INLINE, 1, 1)
        worst = {label: max(abs(a - b) / abs(b) for a, b in zip(losses(schedule, ranks, replicas), reference))
                 for label, schedule, ranks, replicas in ways}
        label = max(worst, key=worst.get)
        say("  %-16s against one rank, loss %.6f: %.1e (%s), %d ways" % (name, reference[-1], worst[label], label,
                                                                        len(worst)))
        assert worst[label] < 1e-5, "%s: %s differs from one rank by %g" % (name, label, worst[label])
        assert reference[-1] < reference[0], "the loss does not fall"


def train_model(steps):
    heading("training, %d steps of <transpose, 1f1b> on two ranks" % steps)
    train("run", quiet=False, train__steps=steps, train__eval_every=steps // 3,
          parallel__split=best_split(FILL, EVERYTHING))
    with open(os.path.join(ROOT, "demo/run/evaluation.jsonl")) as lines:
        losses = [json.loads(line)["eval_loss"] for line in lines]
    say("  loss on pictures held out: " + " -> ".join("%.3f" % loss for loss in losses))
    assert losses[-1] < losses[0], "the evaluation loss does not fall"
    heading("pictures held out: what the model says, and the drawing's own title")
    for told in json.loads(motet("generate", "demo/run", "--data", "demo/data/eval.jsonl", "--max-tokens", "24",
                                 "--json"))["answers"]:
        say("  %-44s %-34s %s" % (os.path.basename(told["images"][0]), told["text"], told["wanted"]))
    heading("the last timeline, as measured; demo/run/timeline/ has it as Chrome trace JSON too")
    motet("show", "demo/run", quiet=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps: to see that all of it works")
    quick = parser.parse_args().quick
    begin = time.time()
    prepare()
    compare_schedules(5 if quick else 23)
    compare_losses(2)
    train_model(12 if quick else 60)
    say("\ndemo: all of it in %.0f s" % (time.time() - begin))


if __name__ == "__main__":
    main()
