"""Flexible context parallelism: groups of ranks for sequences of any length (docs/pack.md)."""

from __future__ import annotations

import os
import weakref
from ctypes import POINTER, byref, c_int32, c_void_p
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _library as lib
from .program import Path

_PLANNERS = {"best": 0, "bfd-dp": 1, "static": 2, "pow2-greedy": 3, "lpt": 4}
_SCOPES = {"microbatch": 0, "global": 1}


class Cost:
    """Seconds of a group that holds `tokens` and `area` (query-key pairs that the mask keeps) at a degree:

    fixed + linear * tokens / degree + max(attention * area / degree, ring), with the ring's
    ring_bytes * tokens * (degree - 1) / (degree * bandwidth) + latency * (degree - 1); a sum without `overlap`.
    """

    def __init__(
        self,
        *,
        attention: float,
        linear: float = 0.0,
        fixed: float = 0.0,
        ring_bytes: float = 0.0,
        bandwidth: Optional[Mapping[int, float]] = None,
        latency: float = 0.0,
        overlap: bool = True,
    ) -> None:
        self._c = lib.PackCost(
            attention_seconds_per_area=attention,
            linear_seconds_per_token=linear,
            fixed_seconds=fixed,
            ring_bytes_per_token=ring_bytes,
            latency_seconds_per_hop=latency,
            no_overlap=not overlap,
        )
        listed = sorted((bandwidth or {}).items())
        if len(listed) > lib.PACK_BANDWIDTHS_MAX:
            raise ValueError(f"bandwidth: {len(listed)} degrees; at most {lib.PACK_BANDWIDTHS_MAX}")
        self._c.bandwidth_count = len(listed)
        for i, (degree, value) in enumerate(listed):
            self._c.bandwidth_degree[i] = degree
            self._c.bandwidth_bytes_per_second[i] = value

    @classmethod
    def read(cls, path: Path) -> "Cost":
        """Reads a cost file, as `motet pack --cost` does."""
        cost, error = cls(attention=0.0), lib.Error()
        lib.check(lib.library().motet_pack_cost_read(os.fsencode(path), byref(error), byref(cost._c)), error)
        return cost

    def seconds(self, tokens: int, area: Optional[float] = None, degree: int = 1) -> float:
        area = 0.5 * float(tokens) * float(tokens) if area is None else area
        return float(lib.library().motet_pack_seconds(byref(self._c), tokens, area, degree))


class Group(NamedTuple):
    """Some ranks that share out some sequences."""

    microbatch: int
    ranks: Tuple[int, ...]
    sequences: Tuple[int, ...]  #: indices of the sequences that were given
    tokens: int
    start: float
    seconds: float


class Pack(NamedTuple):
    """A plan. `value` is at least `lower_bound`, which no plan of these sequences can beat."""

    value: float
    lower_bound: float
    stop: str  #: why the search ended
    digest: str
    microbatches: Tuple[Tuple[Group, ...], ...]
    deferred: Tuple[int, ...]  #: sequences that no microbatch had room for
    distinct_groups: int


class Packer:
    """Plans batch after batch for one set of ranks and limits.

    ranks: to be cut into groups; memory_tokens: that one rank's memory takes
    degrees: allowed widths; None: all. planner: "best", "bfd-dp", "static:16", "pow2-greedy" or "lpt"
    batch: "all", "auto" or a number of sequences a microbatch
    scope: "microbatch" (a barrier behind each) or "global"
    """

    def __init__(
        self,
        ranks: int,
        memory_tokens: int,
        cost: Cost,
        *,
        degrees: Optional[Sequence[int]] = None,
        ranks_per_node: int = 0,
        group_budget: int = 0,
        planner: str = "best",
        batch: Union[str, int] = "all",
        scope: str = "microbatch",
        deadline_ms: float = 1.0,
    ) -> None:
        name, _, width = planner.partition(":")
        if name not in _PLANNERS or (name == "static") != bool(width):
            raise ValueError(f"planner: '{planner}' is none of best, bfd-dp, static:DEGREE, pow2-greedy, lpt")
        if scope not in _SCOPES:
            raise ValueError(f"scope: '{scope}' is neither 'microbatch' nor 'global'")
        if isinstance(batch, str) and batch not in ("all", "auto"):
            raise ValueError(f"batch: '{batch}' is neither 'all', 'auto' nor a number")
        options = lib.PackOptions(
            ranks=ranks,
            memory_tokens=memory_tokens,
            cost=cost._c,
            ranks_per_node=ranks_per_node,
            group_budget=group_budget,
            planner=_PLANNERS[name],
            static_degree=int(width) if width else 0,
            scope=_SCOPES[scope],
            batch=1 if isinstance(batch, int) else 2 if batch == "auto" else 0,
            batch_size=batch if isinstance(batch, int) else 0,
            deadline_ms=deadline_ms,
        )
        if degrees is not None:
            options.degrees, options.degree_count = (c_int32 * len(degrees))(*degrees), len(degrees)
        library, error, pointer = lib.library(), lib.Error(), c_void_p()
        lib.check(library.motet_packer_create(byref(options), byref(error), byref(pointer)), error)
        self._pointer = pointer
        weakref.finalize(self, library.motet_packer_destroy, pointer)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that fits at all."""
        return int(lib.library().motet_packer_longest(self._pointer))

    def plan(self, tokens: Sequence[int], areas: Optional[Sequence[float]] = None) -> Pack:
        """Plans sequences by their lengths; areas default to a causal mask's, tokens^2 / 2.

        IllegalError where one fits no group.
        """
        if areas is None:
            areas = [0.5 * float(t) * float(t) for t in tokens]
        if len(areas) != len(tokens):
            raise ValueError(f"{len(areas)} areas for {len(tokens)} sequences")
        sequences = (lib.PackSequence * len(tokens))(*(lib.PackSequence(t, a) for t, a in zip(tokens, areas)))
        error, pointer = lib.Error(), POINTER(lib.PackPlan)()
        status = lib.library().motet_packer_plan(
            self._pointer, sequences, len(tokens), byref(error), byref(pointer)
        )
        lib.check(status, error)
        return _copy(pointer.contents)


def _copy(c: lib.PackPlan) -> Pack:
    groups = [
        Group(
            g.microbatch,
            tuple(c.ranks[g.rank_first : g.rank_first + g.degree]),
            tuple(c.sequences[g.sequence_first : g.sequence_first + g.sequence_count]),
            g.tokens,
            g.start,
            g.seconds,
        )
        for g in (c.groups[i] for i in range(c.group_count))
    ]
    return Pack(
        value=c.value,
        lower_bound=c.lower_bound,
        stop=lib.library().motet_pack_stop_name(c.stop).decode(),
        digest=f"{c.digest:016x}",
        microbatches=tuple(
            tuple(groups[m.group_first : m.group_first + m.group_count])
            for m in (c.microbatches[i] for i in range(c.microbatch_count))
        ),
        deferred=tuple(c.deferred[: c.deferred_count]),
        distinct_groups=c.distinct_groups,
    )


def pack(
    tokens: Sequence[int],
    ranks: int,
    memory_tokens: int,
    cost: Union[Cost, Path],
    *,
    areas: Optional[Sequence[float]] = None,
    **options: object,
) -> Pack:
    """Plans one batch: `Packer(ranks, memory_tokens, cost, **options).plan(tokens, areas)`. `cost` may be a file."""
    if not isinstance(cost, Cost):
        cost = Cost.read(cost)
    return Packer(ranks, memory_tokens, cost, **options).plan(tokens, areas)  # type: ignore[arg-type]
