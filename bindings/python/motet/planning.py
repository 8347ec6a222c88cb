"""Plans, proofs and simulations."""

from __future__ import annotations

import os
import weakref
from ctypes import byref, c_double, c_int32, c_void_p
from functools import cached_property
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library as lib
from .errors import RefusedError
from .program import COMPUTE, Instruction, Path, Program, read_program, read_pytorch_csv

IDLE_CAUSES: Tuple[str, ...] = tuple(field[0] for field in lib.Idle._fields_)


class RankMemory(NamedTuple):
    """What one rank holds at most."""

    peak_bytes: int
    peak_instruction: int  #: index in the rank's list where the peak stands; -1 on an empty list
    peak_activations: float  #: microbatch-stages of Sharded regions held at once
    peak_features: int  #: outputs of transposed regions held at once


def _memory(array: Any, ranks: int) -> Tuple[RankMemory, ...]:
    return tuple(
        RankMemory(m.peak_bytes, m.peak_instruction, m.peak_activations, m.peak_features)
        for m in (array[r] for r in range(ranks))
    )


class Timed:
    """What a plan and a simulation have in common: a program with a time for every instruction."""

    def __init__(self, program: Program, result: Any) -> None:
        self._result = result
        #: The program; its lists are `program.instructions(rank)`.
        self.program = program
        #: Seconds of the step.
        self.makespan: float = result.makespan
        #: Idle time of all ranks / (ranks * makespan).
        self.idle_share: float = result.idle_share
        #: 1 - (largest body time of a rank) / makespan; body: instructions of Sharded regions.
        self.bubble_whole: float = result.bubble_whole
        #: 1 - (body time) / (time from a rank's first to its last body instruction), worst rank.
        self.bubble_stage: float = result.bubble_stage
        #: Rank-seconds of idle time by cause (docs/simulation.md); together they are all of it.
        self.idle: Dict[str, float] = {name: getattr(result.idle, name) for name in IDLE_CAUSES}
        #: Most outputs of transposed regions alive at once.
        self.peak_features: int = result.peak_features
        self.memory: Tuple[RankMemory, ...] = _memory(result.memory, program.ranks)

    def instructions(self, rank: int) -> Tuple[Instruction, ...]:
        return self.program.instructions(rank)

    def times(self, rank: int) -> Tuple[Tuple[float, float], ...]:
        """(start, finish) in seconds of each of a rank's instructions."""
        if not 0 <= rank < self.program.ranks:
            raise IndexError(f"rank {rank} of {self.program.ranks}")
        begin, end = self.program.rank_begin[rank], self.program.rank_begin[rank + 1]
        return tuple((self._result.start[i], self._result.finish[i]) for i in range(begin, end))

    @cached_property
    def busy(self) -> Tuple[float, ...]:
        """Seconds of compute of each rank."""
        return tuple(
            sum(
                finish - start
                for instruction, (start, finish) in zip(self.program.instructions(r), self.times(r))
                if instruction.kind in COMPUTE
            )
            for r in range(self.program.ranks)
        )


class Plan(Timed):
    """A schedule that was derived, ordered, lowered, proven and simulated."""

    def __init__(self, program: Program, result: Any) -> None:
        super().__init__(program, result)
        #: Proven: no order of the same work takes less.
        self.bound: float = result.bound
        #: The canonical text.
        self.schedule: str = result.schedule.decode()

    def __repr__(self) -> str:
        return f"<motet.Plan {self.schedule}: makespan {self.makespan:g}, bound {self.bound:g}>"


class Simulation(Timed):
    """A program that was proven and simulated."""

    def __repr__(self) -> str:
        return f"<motet.Simulation of {self.program!r}: makespan {self.makespan:g}>"


class _Handle:
    """Keeps what a C handle owns alive."""

    def __init__(self, pointer: c_void_p, destroy: Any) -> None:
        self.pointer = pointer
        weakref.finalize(self, destroy, pointer)


def plan(
    schedule: str,
    unit: str,
    ranks: int,
    microbatches: int,
    *,
    replicas: int = 1,
    trainable: Optional[Sequence[str]] = None,
    encode: Optional[Sequence[float]] = None,
    split: Optional[Sequence[int]] = None,
    alpha: float = 0.0,
    beta: float = 0.0,
    bytes: int = 0,
    memory_cap: int = 0,
) -> Plan:
    """Plans a schedule on unit costs: what `motet plan` does (docs/commands.md).

    schedule: as in "<vision: transpose, llm: 1f1b>"
    unit: times per region, as in "vision: f=1; llm: f=1, b=2"
    ranks, microbatches: of one pipeline; replicas: data-parallel pipelines
    trainable: modules that train; None: those with backward times
    encode: forward times of the transposed regions, repeated over the microbatches; 0: no data there
    split: layers of each stage of the Sharded regions; None: even
    alpha: seconds of latency; beta: bytes per second, 0: unlimited; bytes: size of an activation
    memory_cap: bytes a rank may use; 0: no cap

    IllegalError names the rule that a schedule breaks.
    """
    if isinstance(trainable, str):
        raise TypeError("trainable: a sequence of module names, not one text")
    options = lib.PlanOptions(
        schedule=schedule.encode(),
        unit=unit.encode(),
        ranks=ranks,
        microbatches=microbatches,
        replicas=replicas,
        alpha_seconds=alpha,
        beta_bytes_per_second=beta,
        bytes=bytes,
        memory_cap_bytes=memory_cap,
    )
    if trainable is not None:
        options.trainable = ",".join(trainable).encode()
    if encode is not None:
        options.encode, options.encode_count = (c_double * len(encode))(*encode), len(encode)
    if split is not None:
        options.split, options.split_count = (c_int32 * len(split))(*split), len(split)
    return _make(options)


def plan_layout(
    layout: str,
    unit: str,
    ranks: int,
    microbatches: int,
    *,
    replicas: int = 1,
    trainable: Optional[Sequence[str]] = None,
    alpha: float = 0.0,
    beta: float = 0.0,
    bytes: int = 0,
    memory_cap: int = 0,
) -> Plan:
    """Plans 1F1B, interleaved where there are several chunks a rank, over a Megatron-LM pipeline layout.

    layout: as in "Et*3|(tt|)*29,m|L" (docs/megatron.md)
    unit: times of one layer of each kind, as in "E: f=0.1, b=0.2; t: f=1, b=2; L: f=0.5, b=1"; kinds that are not
        named cost nothing
    trainable: of "E", "t", "m", "L"; the rest as in `plan`
    """
    if isinstance(trainable, str):
        raise TypeError("trainable: a sequence of letters, not one text")
    options = lib.PlanOptions(
        layout=layout.encode(),
        unit=unit.encode(),
        ranks=ranks,
        microbatches=microbatches,
        replicas=replicas,
        alpha_seconds=alpha,
        beta_bytes_per_second=beta,
        bytes=bytes,
        memory_cap_bytes=memory_cap,
    )
    if trainable is not None:
        options.trainable = ",".join(trainable).encode()
    return _make(options)


def _make(options: lib.PlanOptions) -> Plan:
    library, error, pointer = lib.library(), lib.Error(), c_void_p()
    lib.check(library.motet_plan_create(byref(options), byref(error), byref(pointer)), error)
    handle = _Handle(pointer, library.motet_plan_destroy)
    result = library.motet_plan_get(pointer).contents
    return Plan(Program(result.program, owner=handle), result)


def _is_json(content: str) -> bool:
    return content.lstrip("\ufeff \t\r\n").startswith("{")


def _load(source: Union[Program, Path], placement: str) -> Tuple[Program, bool]:
    """The program, and whether it is a foreign order that brought its own sends and receives."""
    if isinstance(source, Program):
        return source, False
    with open(source, encoding="utf-8", errors="replace") as file:
        content = file.read()
    if _is_json(content):
        return read_program(source), False
    return read_pytorch_csv(source, placement), "SEND" in content or "RECV" in content


class Verification(NamedTuple):
    """What the proof of an accepted program found."""

    program: Program
    memory: Tuple[RankMemory, ...]
    #: Whether the order would hang if its sends and receives blocked one after the other; None: not asked.
    blocking_hangs: Optional[bool]
    #: With `blocking_hangs`: pairs (rank, instruction), each of which waits for the next one.
    cycle: Tuple[Tuple[int, int], ...]


def verify(
    source: Union[Program, Path], *, capacity: int = 0, blocking: Optional[bool] = None, placement: str = "auto"
) -> Verification:
    """Proves a program, a program JSON file or a PyTorch pipelining CSV, or raises RefusedError with the rule.

    capacity: buffered sends per channel; 0, the hardest case, is always checked
    blocking: whether the order must also end when each of its sends and receives blocks in turn (as on one NCCL
        stream); None: for CSV files with sends and receives of their own. False there: only tell, in `blocking_hangs`
    """
    program, explicit = _load(source, placement)
    judged = explicit if blocking is None else (blocking or explicit)
    library, error, found = lib.library(), lib.Error(), lib.Verification()
    options = lib.VerifyOptions(capacity=capacity, check_blocking=judged)
    status = library.motet_verify(program._pointer, byref(options), byref(error), byref(found))
    try:
        cycle = tuple((found.cycle[2 * i], found.cycle[2 * i + 1]) for i in range(found.cycle_count))
        if status == 0:
            hangs = bool(found.blocking_hangs) if judged else None
            verification = Verification(program, _memory(found.memory, program.ranks), hangs, cycle)
    finally:
        library.motet_verification_free(byref(found))
    try:
        lib.check(status, error)
    except RefusedError as refused:
        refused.cycle = cycle
        raise
    if verification.blocking_hangs and blocking is not False:
        hang = RefusedError(
            "the order hangs when sends and receives block one after the other; with sends posted and waited for "
            "later it ends",
            status=-7,
            rule="progress",
            rank=cycle[0][0],
            instruction=cycle[0][1],
        )
        hang.cycle = cycle
        raise hang
    return verification


def simulate(
    source: Union[Program, Path], unit: str, *, alpha: float = 0.0, beta: float = 0.0, placement: str = "auto"
) -> Simulation:
    """Proves and simulates a program, a program JSON file or a PyTorch pipelining CSV on unit costs.

    unit: times of everything that a rank holds, as in "f=1, x=1, w=1", or per module of the program
    alpha: seconds of latency of a transfer; beta: bytes per second, 0: unlimited
    """
    program, _ = _load(source, placement)
    options = lib.SimulateOptions(unit=unit.encode(), alpha_seconds=alpha, beta_bytes_per_second=beta)
    library, error, pointer = lib.library(), lib.Error(), c_void_p()
    status = library.motet_simulation_create(program._pointer, byref(options), byref(error), byref(pointer))
    lib.check(status, error)
    simulation = Simulation(program, library.motet_simulation_get(pointer).contents)
    simulation._handle = _Handle(pointer, library.motet_simulation_destroy)  # type: ignore[attr-defined]
    return simulation
