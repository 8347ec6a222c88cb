#!/usr/bin/env python3
"""Writes tests/data/safetensors/ with the safetensors library (PyPI: torch, safetensors).

The values follow from formulas that the test repeats, so that the reader is checked against another writer.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/safetensors")
(target / "sharded").mkdir(parents=True, exist_ok=True)

halves = torch.tensor([0.0, -0.0, 1.0, -2.5, 65504.0, 6.103515625e-05, 5.9604644775390625e-08, float("inf")])
save_file(
    {
        "ramp.f32": torch.arange(6, dtype=torch.float32).reshape(2, 3) * 0.5 - 1,
        "halves.f16": halves.to(torch.float16),
        "halves.bf16": halves.to(torch.bfloat16),
        "ramp.f64": torch.arange(4, dtype=torch.float64) / 3,
        "numbers.i64": torch.tensor([-1, 2**40]),
        "numbers.i32": torch.tensor([7, -7], dtype=torch.int32),
        "flags": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 5),
    },
    str(target / "kinds.safetensors"),
    metadata={"format": "pt"},
)

weights = {f"layers.{i}.weight": torch.full((2, 2), float(i)) for i in range(5)}
places = {}
for shard, names in enumerate([["layers.0.weight", "layers.3.weight"], ["layers.1.weight", "layers.2.weight", "layers.4.weight"]]):
    name = f"model-{shard + 1:05d}-of-00002.safetensors"
    save_file({n: weights[n] for n in names}, str(target / "sharded" / name), metadata={"format": "pt"})
    places.update({n: name for n in names})
index = {"metadata": {"total_size": 80}, "weight_map": dict(sorted(places.items()))}
(target / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
