"""Motet: plans, proves and simulates the parallel training of multimodal models.

    >>> import motet
    >>> plan = motet.plan("<vision: transpose, llm: 1f1b>", "vision: f=1; llm: f=1, b=2", ranks=4, microbatches=16)
    >>> plan.makespan, plan.bound
    (58.0, 58.0)
    >>> plan.instructions(0)[0].kind
    'FWD'

All of it is libmotet's work; see `motet._library` for where that is looked for. `motet.torch` runs a plan with
torch.distributed.
"""

from .errors import (
    ArgumentError,
    FailedError,
    FileError,
    IllegalError,
    LimitError,
    MotetError,
    OutOfMemoryError,
    ParseError,
    RefusedError,
    UnsupportedError,
)
from .packing import Cost, Group, Pack, Packer, pack
from .planning import IDLE_CAUSES, Plan, RankMemory, Simulation, Verification, plan, plan_layout, simulate, verify
from .program import (
    Buffer,
    Edge,
    Instruction,
    Microbatch,
    Module,
    Program,
    Region,
    Stage,
    read_program,
    read_pytorch_csv,
    write_pytorch_csv,
)
from .sampler import Assignment, PackSampler

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Assignment",
    "Buffer",
    "Cost",
    "Edge",
    "FailedError",
    "FileError",
    "Group",
    "IDLE_CAUSES",
    "IllegalError",
    "Instruction",
    "LimitError",
    "Microbatch",
    "Module",
    "MotetError",
    "OutOfMemoryError",
    "Pack",
    "PackSampler",
    "Packer",
    "ParseError",
    "Plan",
    "Program",
    "RankMemory",
    "RefusedError",
    "Region",
    "Simulation",
    "Stage",
    "UnsupportedError",
    "Verification",
    "pack",
    "plan",
    "plan_layout",
    "read_program",
    "read_pytorch_csv",
    "simulate",
    "verify",
    "write_pytorch_csv",
]
