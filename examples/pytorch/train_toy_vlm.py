#!/usr/bin/env python3
"""A toy vision-language model, trained with plain PyTorch over gloo on a plan that Motet derives.

    MOTET_LIBRARY=build/libmotet.so PYTHONPATH=bindings/python python3 examples/pytorch/train_toy_vlm.py --ranks 4

Each process builds the whole model by seed and trains its part: the encoder's microbatches that the plan gives it, and
its slab of the language model's blocks. Some microbatches have no picture. The task: the picture shows a number of bright
patches, and the answer's tokens count them.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn import functional

import motet
from motet.torch import Runner

PATCHES, PATCH, WIDTH, WORDS, TEXT, BLOCKS = 8, 12, 32, 24, 10, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, hidden):
        length = hidden.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        normed = self.norm(hidden)
        hidden = hidden + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return hidden + self.mlp(hidden)


class ToyVLM(nn.Module):
    """Modules as the schedule names them: vision, projector, llm."""

    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(PATCH, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.projector = nn.Linear(48, WIDTH)
        self.words, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS))

    def encode(self, pixels):
        return self.projector(self.vision(pixels))

    def embed(self, tokens, features):
        hidden = self.words(tokens)
        return hidden if features is None else torch.cat([features, hidden], 1)

    def loss(self, hidden, labels):
        return functional.cross_entropy(self.head(hidden[:, -labels.shape[1] :]).flatten(0, 1), labels.flatten())


def make_batch(microbatches, step, with_picture):
    """Microbatches of (pixels or None, tokens, labels), the same on every rank."""
    generator = torch.Generator().manual_seed(1000 + step)
    batch = []
    for m in range(microbatches):
        bright = torch.rand(2, PATCHES, generator=generator) < 0.5
        pixels = torch.randn(2, PATCHES, PATCH, generator=generator) * 0.1 + bright[..., None]
        tokens = torch.randint(0, WORDS // 2, (2, TEXT), generator=generator)
        count = bright.sum(1, keepdim=True) if with_picture(m) else tokens[:, :1] % PATCHES
        batch.append((pixels if with_picture(m) else None, tokens, (count + torch.arange(TEXT)) % WORDS))
    return batch


class Part:
    """What a rank computes of the model: `forward` and `shape` as motet.torch.Runner asks for."""

    def __init__(self, model, program, microbatches):
        self.model, self.program, self.microbatches = model, program, microbatches
        self.batch = []

    def blocks(self, stage):
        """The blocks of a stage: its layers of the plan's llm, scaled to the blocks that there are."""
        place = self.program.stages[stage]
        llm = next(module for module in self.program.modules if module.name == "llm")
        layers = llm.layer_end - llm.layer_begin
        begin, end = max(place.layer_begin, llm.layer_begin), max(place.layer_end, llm.layer_begin)
        return slice((begin - llm.layer_begin) * BLOCKS // layers, (end - llm.layer_begin) * BLOCKS // layers)

    def holds(self, stage, name):
        place, module = self.program.stages[stage], next(m for m in self.program.modules if m.name == name)
        return place.layer_begin <= module.layer_begin < place.layer_end

    def ends(self, stage):
        return self.program.stages[stage].layer_end == self.program.layer_count

    def parameters(self, stage):
        parts = [*self.model.blocks[self.blocks(stage)]]
        if self.holds(stage, "vision"):
            parts += [self.model.vision, self.model.projector]
        if self.holds(stage, "llm"):
            parts.append(self.model.words)
        if self.ends(stage):
            parts.append(self.model.head)
        return [parameter for part in parts for parameter in part.parameters()]

    def forward(self, stage, microbatch, inputs):
        model = self.model
        pixels, tokens, labels = self.batch[microbatch]
        hidden = next(iter(inputs.values())) if inputs else None
        if self.holds(stage, "vision") and pixels is not None:
            hidden = model.encode(pixels)
        if self.holds(stage, "llm"):
            hidden = model.embed(tokens, hidden)
        for block in model.blocks[self.blocks(stage)]:
            hidden = block(hidden)
        return model.loss(hidden, labels) / self.microbatches if self.ends(stage) else hidden

    def shape(self, stage, microbatch):
        """Behind the encoder alone there are features, behind a stage with llm layers the whole row."""
        pixels, tokens, _ = self.batch[microbatch]
        slice_ = self.blocks(stage)
        features = 0 if pixels is None else PATCHES
        if slice_.start == slice_.stop and not self.holds(stage, "llm"):
            return (tokens.shape[0], features, WIDTH)
        return (tokens.shape[0], features + tokens.shape[1], WIDTH)


def reference(model, batch):
    """The same step in one process: the losses, gradients in `.grad`."""
    losses = []
    for pixels, tokens, labels in batch:
        hidden = model.embed(tokens, None if pixels is None else model.encode(pixels))
        for block in model.blocks:
            hidden = block(hidden)
        loss = model.loss(hidden, labels) / len(batch)
        loss.backward()
        losses.append(float(loss.detach()))
    return losses


def freeze(model, trainable):
    for name, parts in (
        ("vision", [model.vision]),
        ("projector", [model.projector]),
        ("llm", [model.words, model.blocks, model.head]),
    ):
        for part in parts:
            part.requires_grad_(name in trainable)


def make_plan(options):
    times = "vision: f=1, b=2; projector: f=0, b=0; llm: f=1, b=2"
    encode = [1, 0, 2] if options.text_only else None
    return motet.plan(
        options.schedule, times, options.ranks, options.microbatches, trainable=options.trainable, encode=encode
    )


def train(rank, options, store, results):
    """One process. `results`, if given, receives (losses of all steps, gradients of the last, parts) of this rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    plan = make_plan(options)
    torch.manual_seed(0)
    model = ToyVLM()
    freeze(model, options.trainable)
    part = Part(model, plan.program, options.microbatches)
    stages = [s for s, stage in enumerate(plan.program.stages) if rank in plan.program.groups[stage.group]]
    parameters = {s: part.parameters(s) for s in stages}
    runner = Runner(plan.program, part.forward, part.shape, parameters)
    learning = [p for held in parameters.values() for p in held if p.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=options.learning_rate) if learning else None
    vision = next(j for j, module in enumerate(plan.program.modules) if module.name == "vision")
    steps = []
    for step in range(options.steps):
        model.zero_grad()
        part.batch = make_batch(
            options.microbatches, step, lambda m: bool(plan.program.microbatches[m].present >> vision & 1)
        )
        losses = runner.step(optimizer)
        steps.append(losses)
        if options.verbose and losses:
            print(f"step {step}  loss {sum(losses.values()):.4f}", flush=True)
    if results is not None:
        names = {id(p): name for name, p in model.named_parameters()}
        held = {names[id(p)] for s in stages for p in parameters[s]}
        torch.save((steps, {n: (p.grad, p.detach()) for n, p in model.named_parameters() if n in held}), f"{results}.{rank}")
    dist.destroy_process_group()


def train_all(rank, jobs, directory, results):
    for number, options in enumerate(jobs):
        name = None if results is None else f"{results}.{number}"
        train(rank, options, os.path.join(directory, f"store{number}"), name)


def launch(jobs, results=None):
    """Trains one after another, in as many processes as they have ranks."""
    with tempfile.TemporaryDirectory() as directory:
        multiprocessing.spawn(train_all, (jobs, directory, results), nprocs=jobs[0].ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--microbatches", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--schedule", default="<vision+projector: transpose, llm: 1f1b>")
    parser.add_argument("--trainable", nargs="+", default=["vision", "projector", "llm"])
    parser.add_argument("--text-only", action="store_true", help="every third microbatch has no picture")
    options = parser.parse_args()
    options.verbose = True
    plan = make_plan(options)
    print(f"{plan.schedule} on {options.ranks} ranks: makespan {plan.makespan:g}, bound {plan.bound:g}", flush=True)
    launch([options])


if __name__ == "__main__":
    main()
