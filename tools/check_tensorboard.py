#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard's own reader and holds them against metrics.jsonl and evaluation.jsonl.

Usage: check_tensorboard.py RUN    (needs the package tensorboard)
"""

import json
import math
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = {"loss", "learning_rate", "gradient_norm", "tokens_per_second", "step_seconds", "idle_share", "mfu", "memory_bytes", "input_stall_seconds"}


def main():
    run = Path(sys.argv[1])
    read = lambda name: [json.loads(line) for line in (run / name).read_text().splitlines()]
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    wanted = {tag: {} for tag in TAGS | {"eval_loss"}}
    for line in read("metrics.jsonl"):
        line["tokens_per_second"] = line["tokens"] / line["step_seconds"]
        for tag in TAGS:
            if line[tag] is not None:
                wanted[tag][line["step"]] = line[tag]
    for line in read("evaluation.jsonl"):
        wanted["eval_loss"][line["step"]] = line["eval_loss"]
    wanted = {tag: values for tag, values in wanted.items() if values}
    found = set(events.Tags()["scalars"])
    assert found == set(wanted), found ^ set(wanted)
    for tag, values in wanted.items():
        scalars = events.Scalars(tag)
        assert [scalar.step for scalar in scalars] == sorted(values), (tag, [scalar.step for scalar in scalars])
        for scalar in scalars:
            assert math.isclose(scalar.value, values[scalar.step], rel_tol=1e-6, abs_tol=1e-6), (tag, scalar)
    print(f"{sum(map(len, wanted.values()))} scalars of {len(wanted)} names are the run's")


if __name__ == "__main__":
    main()
