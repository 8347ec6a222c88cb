#!/usr/bin/env python3
"""The peer of bench/training_step.c: the same models in PyTorch, one training step at a time.

Reads lines from standard input and answers each with one line:

  load MODEL MODE THREADS   MODEL: large, small or multimodal; MODE: float32, bfloat16 (weights and moments too) or
                            autocast; answers "ok VERSION"
  compile                   torch.compile of the model loaded; answers "ok" or "no"
  step                      answers wall and processor seconds of forward, backward and optimizer: six numbers
  product N MODE            answers wall and processor seconds of a product of N x N matrices

The models are written for speed: fused q/k/v and gate/up, fused attention and norms, fused AdamW, batches without padding.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

# hidden, layers, heads, key/value heads, intermediate, vocabulary; sequences, tokens of each
DECODERS = {"large": (768, 4, 12, 12, 2048, 8192, 2, 512), "small": (256, 4, 4, 4, 688, 1024, 8, 128),
            "multimodal": (768, 6, 12, 4, 3072, 8192, 2, 640)}
TILES, PATCHES, VISION, VISION_LAYERS, VISION_HEADS, FEATURES = 4, 256, 384, 4, 6, 64


class Block(nn.Module):
    def __init__(self, hidden, heads, groups, up):
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, hidden // heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-6), nn.RMSNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.width)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up, self.down = nn.Linear(hidden, 2 * up, bias=False), nn.Linear(up, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, -1, self.width).transpose(1, 2).split(
            [self.heads, self.groups, self.groups], 1)
        half = self.width // 2
        q, k = (t * cos + torch.cat([-t[..., half:], t[..., :half]], -1) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.groups)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class VisionBlock(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden, eps=1e-6), nn.LayerNorm(hidden, eps=1e-6)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.scale1, self.scale2 = (nn.Parameter(torch.full((hidden,), 0.1)) for _ in range(2))

    def forward(self, x):
        tiles, rows, hidden = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(tiles, rows, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(tiles, rows, hidden)
        x = x + self.scale1 * self.out(y)
        return x + self.scale2 * self.down(F.gelu(self.up(self.norm2(x))))


class Vision(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.patch = nn.Conv2d(3, VISION, 14, 14)
        self.cls, self.positions = nn.Parameter(torch.zeros(1, 1, VISION)), nn.Parameter(torch.zeros(1, PATCHES + 1, VISION))
        self.blocks = nn.ModuleList(VisionBlock(VISION, VISION_HEADS) for _ in range(VISION_LAYERS))
        self.projector = nn.Sequential(nn.LayerNorm(4 * VISION), nn.Linear(4 * VISION, hidden), nn.GELU(), nn.Linear(hidden, hidden))

    def forward(self, pixels):
        x = self.patch(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        x = x[:, 1:].reshape(-1, 8, 2, 8, 2, VISION).transpose(2, 3).reshape(-1, FEATURES, 4 * VISION)
        return self.projector(x)


class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        hidden, layers, heads, groups, up, vocabulary, self.sequences, self.tokens = DECODERS[name]
        self.vision = Vision(hidden) if name == "multimodal" else None
        self.embed = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, groups, up) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(hidden, eps=1e-6), nn.Linear(hidden, vocabulary, bias=False)
        angles = torch.outer(torch.arange(self.tokens), 1e6 ** (-torch.arange(0, hidden // heads, 2) / (hidden // heads)))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids, labels, pixels):
        x = self.embed(ids)
        if self.vision is not None:
            features = self.vision(pixels).view(self.sequences, -1, x.shape[-1]).to(x.dtype)
            x = torch.cat([features, x[:, features.shape[1]:]], 1)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels)


class Peer:
    def load(self, name, mode, threads):
        torch.set_num_threads(int(threads))
        torch.manual_seed(1)
        self.autocast = mode == "autocast"
        dtype = torch.bfloat16 if mode == "bfloat16" else torch.float32
        self.model = self.run = Model(name).to(dtype)
        self.ids = torch.arange(self.model.sequences * self.model.tokens).mul(37).remainder(self.model.embed.num_embeddings)
        self.labels = self.ids.mul(53).add(1).remainder(self.model.embed.num_embeddings)
        self.ids = self.ids.view(self.model.sequences, self.model.tokens)
        self.pixels = torch.rand(TILES, 3, 224, 224).to(dtype) if name == "multimodal" else None
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        return "ok " + torch.__version__

    def compile(self):
        try:
            self.run = torch.compile(self.model)
            self.step()
            return "ok"
        except Exception:  # no compiler, or one that does not do
            self.run = self.model
            return "no"

    def step(self):
        marks = [(time.perf_counter(), time.process_time())]
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.run(self.ids, self.labels, self.pixels)
        marks.append((time.perf_counter(), time.process_time()))
        loss.backward()
        marks.append((time.perf_counter(), time.process_time()))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        marks.append((time.perf_counter(), time.process_time()))
        return " ".join(f"{b[k] - a[k]:.9f}" for a, b in zip(marks, marks[1:]) for k in (0, 1))

    def product(self, size, mode):
        dtype = torch.bfloat16 if mode == "bfloat16" else torch.float32
        a, b = (torch.rand(int(size), int(size)).to(dtype) for _ in range(2))
        torch.mm(a, b)
        best = (1e9, 1e9)
        for _ in range(5):
            begin = time.perf_counter(), time.process_time()
            torch.mm(a, b)
            best = min(best[0], time.perf_counter() - begin[0]), min(best[1], time.process_time() - begin[1])
        return f"{best[0]:.9f} {best[1]:.9f}"


def main():
    peer = Peer()
    for line in sys.stdin:
        words = line.split()
        print(getattr(peer, words[0])(*words[1:]), flush=True)


if __name__ == "__main__":
    main()
