"""Programs: what every plan lowers to. One instruction list a rank, over tables (docs/formats/program.md)."""

from __future__ import annotations

import os
import weakref
from ctypes import POINTER, byref
from functools import cached_property
from typing import Any, NamedTuple, Optional, Tuple, Union

from . import _library as lib

Path = Union[str, "os.PathLike[str]"]

KINDS: Tuple[str, ...] = (
    "FWD",
    "BWD",
    "BWD_X",
    "BWD_W",
    "RECOMPUTE",
    "SEND",
    "RECV",
    "WAIT",
    "REDUCE",
    "REDUCE_SCATTER",
    "ALL_GATHER",
    "ALL_REDUCE",
    "OFFLOAD",
    "FETCH",
    "LOAD",
    "OPTIM",
    "STEP_END",
)
BUFFER_KINDS: Tuple[str, ...] = ("ACTIVATION", "GRADIENT", "WEIGHT_GRADIENT", "TIED_GRADIENT", "PARAMETER")
#: Kinds of instruction that compute; a rank is busy in these.
COMPUTE = frozenset(("FWD", "BWD", "BWD_X", "BWD_W", "RECOMPUTE", "OPTIM"))


class Instruction(NamedTuple):
    """One instruction. Fields that its kind does not use are -1."""

    kind: str
    stage: int
    microbatch: int
    buffer: int  #: transfers and collectives: index in `Program.buffers`
    peer: int  #: transfers: the other rank; collectives and STEP_END: index in `Program.groups`
    range: int  #: index in `Program.ranges`; 0 is the whole microbatch
    recv: bool  #: WAIT: for the receive (else for the send)
    next: bool  #: FWD, LOAD: of the next step's microbatch of this number


class Module(NamedTuple):
    name: str
    layer_begin: int
    layer_end: int


class Stage(NamedTuple):
    """A run of layers that one instruction computes; it may be empty."""

    region: int
    slab: int
    layer_begin: int
    layer_end: int
    group: int  #: the ranks that hold its weights: index in `Program.groups`
    inputs: int  #: bit set: 1 pixels, 2 tokens, 4 labels
    share: float


class Region(NamedTuple):
    name: str
    skeleton: str
    replicated: bool


class Microbatch(NamedTuple):
    replica: int
    tokens: int
    present: int  #: bit j: module j has data
    cached: int  #: bit j: module j's output is cached


class Edge(NamedTuple):
    """Activations flow from stage `source` to stage `target`, gradients back."""

    source: int
    target: int


class Buffer(NamedTuple):
    kind: str
    stage: int
    edge: int
    microbatch: int
    range: int
    bytes: int


class Tie(NamedTuple):
    """A weight that two stages share."""

    first_stage: int
    second_stage: int
    bytes: int


class Carried(NamedTuple):
    """An output that lies ready on `rank` when the step begins."""

    stage: int
    microbatch: int
    rank: int


def _text(value: Optional[bytes]) -> str:
    return (value or b"").decode(errors="replace")


class Program:
    """A program. Made by `plan`, `read_program` and `read_pytorch_csv`."""

    def __init__(self, pointer: Any, owner: Optional[object] = None) -> None:
        self._pointer = pointer
        self._owner = owner  # what keeps the memory alive; None: this object does
        if owner is None:
            weakref.finalize(self, lib.library().motet_program_destroy, pointer)

    @property
    def _c(self) -> Any:
        return self._pointer.contents

    @property
    def ranks(self) -> int:
        """All ranks: replica * pipeline ranks + pipeline rank."""
        return int(self._c.ranks)

    @property
    def replicas(self) -> int:
        return int(self._c.replicas)

    @property
    def schedule(self) -> str:
        """The canonical schedule text, or ""."""
        return _text(self._c.schedule)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over every table and list; equal on every rank and machine."""
        return f"{lib.library().motet_program_digest(self._pointer):016x}"

    @property
    def layer_count(self) -> int:
        return int(self._c.layer_count)

    @cached_property
    def layer_trainable(self) -> Tuple[bool, ...]:
        return tuple(bool(self._c.layer_trainable[i]) for i in range(self._c.layer_count))

    @cached_property
    def modules(self) -> Tuple[Module, ...]:
        c = self._c
        return tuple(
            Module(_text(c.modules[i].name), c.modules[i].layer_begin, c.modules[i].layer_end)
            for i in range(c.module_count)
        )

    @cached_property
    def microbatches(self) -> Tuple[Microbatch, ...]:
        c = self._c
        return tuple(
            Microbatch(m.replica, m.tokens, m.present, m.cached)
            for m in (c.microbatches[i] for i in range(c.microbatch_count))
        )

    @cached_property
    def regions(self) -> Tuple[Region, ...]:
        c = self._c
        return tuple(
            Region(_text(r.name), _text(r.skeleton), bool(r.replicated))
            for r in (c.regions[i] for i in range(c.region_count))
        )

    @cached_property
    def stages(self) -> Tuple[Stage, ...]:
        c = self._c
        return tuple(
            Stage(s.region, s.slab, s.layer_begin, s.layer_end, s.group, s.inputs, s.share)
            for s in (c.stages[i] for i in range(c.stage_count))
        )

    @cached_property
    def edges(self) -> Tuple[Edge, ...]:
        c = self._c
        return tuple(Edge(c.edges[i].from_, c.edges[i].to) for i in range(c.edge_count))

    @cached_property
    def ranges(self) -> Tuple[Tuple[int, int], ...]:
        """Token ranges; the first is (0, -1), the whole microbatch."""
        c = self._c
        return tuple((c.ranges[i].begin, c.ranges[i].end) for i in range(c.range_count))

    @cached_property
    def groups(self) -> Tuple[Tuple[int, ...], ...]:
        """Sets of ranks, ascending; the first is all ranks."""
        c = self._c
        return tuple(
            tuple(c.group_ranks[c.groups[i].first + r] for r in range(c.groups[i].count))
            for i in range(c.group_count)
        )

    @cached_property
    def buffers(self) -> Tuple[Buffer, ...]:
        c = self._c
        return tuple(
            Buffer(BUFFER_KINDS[b.kind], b.stage, b.edge, b.microbatch, b.range, b.bytes)
            for b in (c.buffers[i] for i in range(c.buffer_count))
        )

    @cached_property
    def ties(self) -> Tuple[Tie, ...]:
        c = self._c
        return tuple(
            Tie(t.first_stage, t.second_stage, t.bytes) for t in (c.ties[i] for i in range(c.tie_count))
        )

    @cached_property
    def carried(self) -> Tuple[Carried, ...]:
        c = self._c
        return tuple(
            Carried(k.stage, k.microbatch, k.rank) for k in (c.carried[i] for i in range(c.carried_count))
        )

    @cached_property
    def rank_begin(self) -> Tuple[int, ...]:
        """Rank r's instructions are numbers rank_begin[r] to rank_begin[r + 1] of all."""
        return tuple(self._c.rank_begin[r] for r in range(self._c.ranks + 1))

    def instructions(self, rank: int) -> Tuple[Instruction, ...]:
        """The list of one rank."""
        if not 0 <= rank < self.ranks:
            raise IndexError(f"rank {rank} of {self.ranks}")
        array, begin, end = self._c.instructions, self.rank_begin[rank], self.rank_begin[rank + 1]
        return tuple(
            Instruction(
                KINDS[i.kind], i.stage, i.microbatch, i.buffer, i.peer, i.range, bool(i.flags & 1), bool(i.flags & 2)
            )
            for i in (array[k] for k in range(begin, end))
        )

    def write(self, path: Path) -> None:
        """Writes the program as JSON."""
        error = lib.Error()
        lib.check(lib.library().motet_program_write(self._pointer, os.fsencode(path), byref(error)), error)

    def __repr__(self) -> str:
        return f"<motet.Program {self.schedule or 'without schedule'}: {self.ranks} ranks, digest {self.digest}>"


def read_program(path: Path) -> Program:
    """Reads a program JSON file. It is safe to walk, though not yet proven: see `verify`."""
    error, pointer = lib.Error(), POINTER(lib.Program)()
    lib.check(lib.library().motet_program_read(os.fsencode(path), byref(error), byref(pointer)), error)
    return Program(pointer)


_PLACEMENTS = {"auto": 0, "loop": 1, "v": 2}


def read_pytorch_csv(path: Path, placement: str = "auto") -> Program:
    """Reads a torch.distributed.pipelining schedule CSV (docs/formats/pytorch-csv.md).

    `placement` "loop" or "v" demands that the stages lie that way on the ranks.
    """
    if placement not in _PLACEMENTS:
        raise ValueError(f"placement: '{placement}' is none of {', '.join(_PLACEMENTS)}")
    error, pointer = lib.Error(), POINTER(lib.Program)()
    status = lib.library().motet_program_read_pytorch_csv(
        os.fsencode(path), _PLACEMENTS[placement], byref(error), byref(pointer)
    )
    lib.check(status, error)
    return Program(pointer)


def write_pytorch_csv(program: Program, path: Path, communication: bool = False) -> None:
    """Writes the compute order (or, with `communication`, sends and receives too) as PyTorch pipelining CSV.

    UnsupportedError for what that form cannot say: replicas, transposed regions, stages that are no chain.
    """
    error = lib.Error()
    status = lib.library().motet_program_write_pytorch_csv(
        program._pointer, communication, os.fsencode(path), byref(error)
    )
    lib.check(status, error)
