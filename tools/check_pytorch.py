#!/usr/bin/env python3
"""Holds examples/pytorch/train_toy_vlm.py against the same training in one process: losses, gradients and weights.

Needs PyTorch. Usage: MOTET_LIBRARY=build/libmotet.so PYTHONPATH=bindings/python:examples/pytorch tools/check_pytorch.py
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing
import train_toy_vlm as example

import motet
import motet.torch

STEPS, RATE = 3, 0.1
ALL = ["vision", "projector", "llm"]
#: schedule, ranks, microbatches, what trains, text-only microbatches
CASES = [
    ("<vision+projector: transpose, llm: 1f1b>", 2, 6, ALL, False),
    ("<vision+projector: transpose, llm: 1f1b>", 4, 6, ALL, False),
    ("<vision+projector: transpose, llm: 1f1b>", 4, 7, ALL, True),
    ("<vision+projector: transpose, llm: 1f1b>", 2, 5, ["projector", "llm"], True),
    ("<vision+projector: transpose(order=prefix), llm: 1f1b>", 4, 6, ALL, False),
    ("<vision+projector: transpose, llm: 1f1b(virtual=2)>", 2, 4, ALL, False),
    ("<vision+projector: inline, llm: 1f1b>", 2, 4, ALL, False),
    ("<vision+projector: transpose, llm: gpipe>", 4, 4, ["projector"], False),
]


def one_process(options, plan):
    torch.manual_seed(0)
    model = example.ToyVLM()
    example.freeze(model, options.trainable)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=RATE)
    vision = next(j for j, module in enumerate(plan.program.modules) if module.name == "vision")
    losses = []
    for step in range(options.steps):
        model.zero_grad()
        batch = example.make_batch(
            options.microbatches, step, lambda m: bool(plan.program.microbatches[m].present >> vision & 1)
        )
        losses.append(example.reference(model, batch))
        optimizer.step()
    return losses, {name: (p.grad, p.detach()) for name, p in model.named_parameters()}


def difference(a, b):
    if a is None or b is None:
        return 0.0 if a is None and b is None else float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))


def options_of(case):
    schedule, ranks, microbatches, trainable, text_only = case
    return argparse.Namespace(
        schedule=schedule, ranks=ranks, microbatches=microbatches, trainable=trainable, text_only=text_only,
        steps=STEPS, learning_rate=RATE, verbose=False,
    )


def compare(options, results):
    """Holds what the ranks wrote against one process. (whether it is good, what was found)"""
    losses, wanted = one_process(options, example.make_plan(options))
    seen, worst_gradient, worst_weight = set(), 0.0, 0.0
    found = [{} for _ in range(STEPS)]
    for rank in range(options.ranks):
        steps, held = torch.load(f"{results}.{rank}", weights_only=False)
        for step, part in enumerate(steps):
            found[step].update(part)
        for name, (gradient, weight) in held.items():
            seen.add(name)
            worst_gradient = max(worst_gradient, difference(gradient, wanted[name][0]))
            worst_weight = max(worst_weight, difference(weight, wanted[name][1]))
    if any(sorted(losses_of) != list(range(options.microbatches)) for losses_of in found):
        return False, "some microbatch has no loss"
    if seen != set(wanted):
        return False, f"nobody holds {sorted(set(wanted) - seen)}"
    worst_loss = max(abs(found[s][m] - losses[s][m]) for s in range(STEPS) for m in range(options.microbatches))
    good = worst_loss < 1e-5 and worst_gradient < 1e-4 and worst_weight < 1e-5
    return good, f"losses {worst_loss:.1e}, gradients {worst_gradient:.1e}, weights {worst_weight:.1e} apart"


WIDTH = 16


def split_layers():
    torch.manual_seed(1)
    return [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(4)]


def split_input(microbatch):
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(microbatch))


def run_split(rank, path, store, results):
    """A published zero-bubble order, read from its CSV: input and weight gradients apart."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    program, layers = motet.read_pytorch_csv(path), split_layers()

    def forward(stage, microbatch, inputs):
        output = layers[stage](inputs[stage - 1] if inputs else split_input(microbatch))
        return output.square().mean() if stage == 3 else output

    runner = motet.torch.Runner(
        program, forward, lambda stage, microbatch: (3, WIDTH), {rank: list(layers[rank].parameters())}
    )
    assert any(i.kind == "BWD_W" for i in program.instructions(rank))
    runner.step()
    torch.save([p.grad for p in layers[rank].parameters()], f"{results}.{rank}")
    torch.distributed.destroy_process_group()


def check_split(directory):
    path = Path(__file__).resolve().parents[1] / "tests" / "data" / "schedules" / "zb1p_p4_m8.csv"
    torch.multiprocessing.spawn(run_split, (str(path), f"{directory}/store", f"{directory}/split"), nprocs=4)
    layers = split_layers()
    for microbatch in range(8):
        torch.nn.Sequential(*layers)(split_input(microbatch)).square().mean().backward()
    worst = 0.0
    for rank in range(4):
        for gradient, parameter in zip(torch.load(f"{directory}/split.{rank}"), layers[rank].parameters()):
            worst = max(worst, difference(gradient, parameter.grad))
    return worst < 1e-5, f"gradients {worst:.1e} apart"


def report(good, what, text):
    print(f"{'ok' if good else 'FAIL':4}  {what}: {text}", flush=True)
    return not good


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for ranks in sorted({case[1] for case in CASES}):
            cases = [case for case in CASES if case[1] == ranks]
            example.launch([options_of(case) for case in cases], f"{directory}/{ranks}")
            for number, case in enumerate(cases):
                schedule, _, microbatches, trainable, text_only = case
                what = f"{schedule}, {ranks} ranks, {microbatches} microbatches, {'+'.join(trainable)} trained"
                good, text = compare(options_of(case), f"{directory}/{ranks}.{number}")
                failed += report(good, what + (", some text-only" if text_only else ""), text)
        good, text = check_split(directory)
        failed += report(good, "zb1p from its CSV, 4 ranks", text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
