#!/usr/bin/env python3
"""Kills random ranks of training runs at random times, while they start, compute, save and end; some are stopped, or
crash, instead.

    MOTET=motet TEST_DATA=tests/data kills.py FIRST COUNT    trials number FIRST to FIRST + COUNT - 1; the number is the seed

A trial trains with 2 to 4 ranks and has ranks killed until it was hit twice, then lets the run end. After each kill all
ranks must be gone within five seconds, with one message; every checkpoint must be whole; and in the end each step's loss
and weights must have the bits of a run that nobody disturbed.
"""
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MOTET, DATA = os.path.abspath(os.environ["MOTET"]), os.environ["TEST_DATA"]
STEPS, SECONDS = 60, 5.0


class Failure(Exception):
    pass


def command(directory, ranks):
    return [MOTET, "train", "train/job.yaml", f"output_dir={directory}", f"parallel.pipeline={ranks}", f"train.steps={STEPS}",
            "train.save_every=2", "train.search_seconds=0", "train.timeline_every=7"]


def records(directory):
    with open(f"{directory}/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return [(line["step"], line["loss"], line["weights_digest"]) for line in lines]


def rank_processes(directory):
    """Rank to process number, of the ranks that there are by now."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/cmdline", "rb") as file:
                if f"output_dir={directory}".encode() not in file.read().split(b"\0"):
                    continue
            with open(path + "/environ", "rb") as file:
                environment = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
        except (OSError, ProcessLookupError):
            continue
        rank = environment.get(b"OMPI_COMM_WORLD_RANK", environment.get(b"PMI_RANK"))
        if rank is not None:
            found[int(rank)] = int(path[6:])
    return found


def kill(process, directory, rank, how):
    """Sends the rank a signal as soon as it is there; returns when, or None where the run was at its end before."""
    while process.poll() is None:
        number = rank_processes(directory).get(rank)
        if number is not None:
            try:
                os.kill(number, how)
            except ProcessLookupError:
                continue
            return time.monotonic()
        time.sleep(0.005)
    return None


def hit(directory, ranks, rank, how, after):
    """Starts the run and kills the rank after so many seconds. Whether it was hit."""
    with open(directory + ".out", "w") as out, open(directory + ".err", "w") as err:
        process = subprocess.Popen(command(directory, ranks), cwd=DATA, stdout=out, stderr=err)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            pass
        killed = kill(process, directory, rank, how)
        try:
            code = process.wait(SECONDS if killed is not None else 60)
        except subprocess.TimeoutExpired:
            for number in [process.pid, *rank_processes(directory).values()]:
                os.kill(number, signal.SIGKILL)
            raise Failure(f"ranks are left {SECONDS} s after the kill") from None
    with open(directory + ".err") as file:
        text = file.read()
    messages = [line for line in text.splitlines() if line.startswith("motet: ")]
    if code == 0 and not messages:
        return False  # killed behind its end
    if code != 3 or len(messages) != 1:
        raise Failure(f"exit code {code}, messages: {text}")
    # One that was killed before it said who it is may be one of several.
    if not re.search(rf"rank {rank} |ranks (\d+, )*{rank}(, \d+)* have not begun|not begun, of rank (\d+, )*{rank},", messages[0]):
        raise Failure(f"rank {rank} is not named: {messages[0]}")
    print(f"  {how.name} to rank {rank} of {ranks} after {after:.2f} s, {time.monotonic() - killed:.1f} s to the end: {messages[0]}")
    time.sleep(0.3)
    left = rank_processes(directory)
    if left:
        raise Failure(f"left behind: {left}")
    return True


def finish(directory, ranks):
    run = subprocess.run(command(directory, ranks), cwd=DATA, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise Failure(f"the run does not go on: {run.stderr}")
    if "passed over" in run.stdout:
        raise Failure(f"a checkpoint was not whole: {run.stdout}")


def trial(seed, work, whole, seconds):
    chance = random.Random(seed)
    ranks = chance.randint(2, 4)
    directory = f"{work}/run-{seed}"
    hits = 0
    while hits < 2:
        # Some kills fall into the start, which is short.
        after = chance.uniform(0, 0.8) if chance.random() < 0.3 else chance.uniform(0, seconds[ranks])
        how = chance.choice([signal.SIGKILL] * 4 + [signal.SIGSTOP, signal.SIGSEGV])
        if not hit(directory, ranks, chance.randrange(ranks), how, after):
            break
        hits += 1
    finish(directory, ranks)
    if records(directory) != whole[ranks]:
        raise Failure("the steps differ from those of a run that nobody disturbed")
    left = glob.glob(f"{directory}/checkpoints/.step-*")
    if left:
        raise Failure(f"left behind: {left}")
    shutil.rmtree(directory)
    return hits


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    work = tempfile.mkdtemp()
    whole, seconds = {}, {}
    for ranks in (2, 3, 4):
        begin = time.monotonic()
        finish(f"{work}/whole-{ranks}", ranks)
        seconds[ranks] = time.monotonic() - begin
        whole[ranks] = records(f"{work}/whole-{ranks}")
        assert [step for step, _, _ in whole[ranks]] == list(range(1, STEPS + 1))
    hits = failures = 0
    for seed in range(first, first + count):
        try:
            print(f"trial {seed}", flush=True)
            hits += trial(seed, work, whole, seconds)
        except Failure as failure:
            failures += 1
            print(f"FAIL: trial {seed} in {work}/run-{seed}: {failure}", flush=True)
    print(f"{hits} kills, {failures} failures")
    if failures == 0:
        shutil.rmtree(work)
    return 1 if failures or hits == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
