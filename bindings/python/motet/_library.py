"""libmotet itself: where it is found, and the C structs of its public headers, field by field.

The library is looked for in this order: the file that the environment variable MOTET_LIBRARY names, this package's
own directory, and where the dynamic linker finds libmotet.so.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_longlong,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Dict, List, Optional, Tuple, Type

from . import errors


class Error(Structure):
    _fields_ = [
        ("status", c_int),
        ("text", c_char * 1024),
        ("file", c_char * 512),
        ("line", c_int),
        ("key", c_char * 128),
        ("rule", c_char * 32),
        ("rank", c_int),
        ("instruction", c_longlong),
        ("microbatch", c_int),
    ]


class Instruction(Structure):
    _fields_ = [
        ("kind", c_uint8),
        ("flags", c_uint8),
        ("reserved", c_uint16),
        ("stage", c_int32),
        ("microbatch", c_int32),
        ("range", c_int32),
        ("buffer", c_int32),
        ("peer", c_int32),
    ]


class Module(Structure):
    _fields_ = [("name", c_char_p), ("layer_begin", c_int32), ("layer_end", c_int32)]


class Pair(Structure):
    """Module edges, stage edges."""

    _fields_ = [("from_", c_int32), ("to", c_int32)]


class Region(Structure):
    _fields_ = [("name", c_char_p), ("skeleton", c_char_p), ("replicated", c_bool)]


class Stage(Structure):
    _fields_ = [
        ("region", c_int32),
        ("slab", c_int32),
        ("layer_begin", c_int32),
        ("layer_end", c_int32),
        ("group", c_int32),
        ("inputs", c_uint32),
        ("share", c_double),
    ]


class Microbatch(Structure):
    _fields_ = [("replica", c_int32), ("tokens", c_int32), ("present", c_uint64), ("cached", c_uint64)]


class Range(Structure):
    _fields_ = [
        ("begin", c_int32),
        ("end", c_int32),
        ("microbatch", c_int32),
        ("first_share", c_int32),
        ("degree", c_int32),
    ]


class Share(Structure):
    _fields_ = [("tokens", c_int32), ("features", c_int32)]


class Group(Structure):
    _fields_ = [("first", c_int64), ("count", c_int32)]


class Buffer(Structure):
    _fields_ = [
        ("kind", c_int32),
        ("stage", c_int32),
        ("edge", c_int32),
        ("microbatch", c_int32),
        ("range", c_int32),
        ("member", c_int32),
        ("bytes", c_int64),
    ]


class Tie(Structure):
    _fields_ = [("first_stage", c_int32), ("second_stage", c_int32), ("bytes", c_int64)]


class Carried(Structure):
    _fields_ = [("stage", c_int32), ("microbatch", c_int32), ("rank", c_int32)]


class SizeTable(Structure):
    _fields_ = [("values", POINTER(c_int64)), ("stage_stride", c_int64), ("microbatch_stride", c_int64)]


class Program(Structure):
    _fields_ = [
        ("ranks", c_int32),
        ("replicas", c_int32),
        ("module_count", c_int32),
        ("module_edge_count", c_int32),
        ("layer_count", c_int32),
        ("microbatch_count", c_int32),
        ("modules", POINTER(Module)),
        ("module_edges", POINTER(Pair)),
        ("layer_trainable", POINTER(c_uint8)),
        ("microbatches", POINTER(Microbatch)),
        ("region_count", c_int32),
        ("stage_count", c_int32),
        ("edge_count", c_int32),
        ("range_count", c_int32),
        ("share_count", c_int32),
        ("group_count", c_int32),
        ("tie_count", c_int32),
        ("carried_count", c_int32),
        ("regions", POINTER(Region)),
        ("stages", POINTER(Stage)),
        ("edges", POINTER(Pair)),
        ("ranges", POINTER(Range)),
        ("shares", POINTER(Share)),
        ("groups", POINTER(Group)),
        ("group_rank_count", c_int64),
        ("group_ranks", POINTER(c_int32)),
        ("ties", POINTER(Tie)),
        ("carried", POINTER(Carried)),
        ("buffer_count", c_int64),
        ("buffers", POINTER(Buffer)),
        ("static_bytes", POINTER(c_int64)),
        ("saved_bytes", SizeTable),
        ("output_bytes", SizeTable),
        ("memory_cap", c_int64),
        ("rank_begin", POINTER(c_int64)),
        ("instructions", POINTER(Instruction)),
        ("schedule", c_char_p),
        ("arena", c_void_p),
    ]


class VerifyOptions(Structure):
    _fields_ = [("capacity", c_int32), ("check_blocking", c_bool)]


class RankMemory(Structure):
    _fields_ = [
        ("peak_bytes", c_int64),
        ("peak_instruction", c_int64),
        ("peak_activations", c_double),
        ("peak_features", c_int32),
    ]


class Verification(Structure):
    _fields_ = [
        ("memory", POINTER(RankMemory)),
        ("blocking_hangs", c_bool),
        ("cycle", POINTER(c_int64)),
        ("cycle_count", c_int32),
    ]


class PlanOptions(Structure):
    _fields_ = [
        ("schedule", c_char_p),
        ("unit", c_char_p),
        ("ranks", c_int32),
        ("microbatches", c_int32),
        ("replicas", c_int32),
        ("trainable", c_char_p),
        ("encode", POINTER(c_double)),
        ("encode_count", c_int32),
        ("split", POINTER(c_int32)),
        ("split_count", c_int32),
        ("alpha_seconds", c_double),
        ("beta_bytes_per_second", c_double),
        ("bytes", c_int64),
        ("memory_cap_bytes", c_int64),
        ("layout", c_char_p),
    ]


class Idle(Structure):
    _fields_ = [
        ("warm_up", c_double),
        ("cool_down", c_double),
        ("stage_imbalance", c_double),
        ("microbatch_variance", c_double),
        ("communication", c_double),
        ("data_parallel_wait", c_double),
        ("input_stall", c_double),
    ]


class PlanResult(Structure):
    _fields_ = [
        ("schedule", c_char_p),
        ("program", POINTER(Program)),
        ("makespan", c_double),
        ("bound", c_double),
        ("idle_share", c_double),
        ("bubble_whole", c_double),
        ("bubble_stage", c_double),
        ("idle", Idle),
        ("peak_features", c_int32),
        ("memory", POINTER(RankMemory)),
        ("start", POINTER(c_double)),
        ("finish", POINTER(c_double)),
    ]


class SimulateOptions(Structure):
    _fields_ = [("unit", c_char_p), ("alpha_seconds", c_double), ("beta_bytes_per_second", c_double)]


class SimulationResult(Structure):
    _fields_ = [
        ("makespan", c_double),
        ("idle_share", c_double),
        ("bubble_whole", c_double),
        ("bubble_stage", c_double),
        ("idle", Idle),
        ("peak_features", c_int32),
        ("memory", POINTER(RankMemory)),
        ("start", POINTER(c_double)),
        ("finish", POINTER(c_double)),
    ]


class PackSequence(Structure):
    _fields_ = [("tokens", c_int64), ("area", c_double)]


PACK_BANDWIDTHS_MAX = 64


class PackCost(Structure):
    _fields_ = [
        ("attention_seconds_per_area", c_double),
        ("linear_seconds_per_token", c_double),
        ("fixed_seconds", c_double),
        ("ring_bytes_per_token", c_double),
        ("latency_seconds_per_hop", c_double),
        ("no_overlap", c_bool),
        ("bandwidth_count", c_int32),
        ("bandwidth_degree", c_int32 * PACK_BANDWIDTHS_MAX),
        ("bandwidth_bytes_per_second", c_double * PACK_BANDWIDTHS_MAX),
    ]


class PackOptions(Structure):
    _fields_ = [
        ("ranks", c_int32),
        ("memory_tokens", c_int64),
        ("cost", PackCost),
        ("degrees", POINTER(c_int32)),
        ("degree_count", c_int32),
        ("ranks_per_node", c_int32),
        ("group_budget", c_int32),
        ("planner", c_int),
        ("static_degree", c_int32),
        ("scope", c_int),
        ("batch", c_int),
        ("batch_size", c_int32),
        ("deadline_ms", c_double),
    ]


class PackGroup(Structure):
    _fields_ = [
        ("microbatch", c_int32),
        ("degree", c_int32),
        ("rank_first", c_int64),
        ("sequence_first", c_int64),
        ("sequence_count", c_int32),
        ("cumulative_first", c_int64),
        ("tokens", c_int64),
        ("area", c_double),
        ("start", c_double),
        ("seconds", c_double),
    ]


class PackMicrobatch(Structure):
    _fields_ = [
        ("group_first", c_int64),
        ("group_count", c_int64),
        ("value", c_double),
        ("lower_bound", c_double),
    ]


class PackSlice(Structure):
    _fields_ = [
        ("sequence", c_int32),
        ("chunk", c_int32),
        ("first_begin", c_int64),
        ("second_begin", c_int64),
        ("first_tokens", c_int32),
        ("second_tokens", c_int32),
    ]


class PackPart(Structure):
    _fields_ = [
        ("group", c_int64),
        ("rank", c_int32),
        ("position", c_int32),
        ("slice_first", c_int64),
        ("loss_numerator", c_int64),
    ]


class PackPlan(Structure):
    _fields_ = [
        ("planner", c_int),
        ("stop", c_int),
        ("value", c_double),
        ("lower_bound", c_double),
        ("digest", c_uint64),
        ("microbatch_count", c_int64),
        ("group_count", c_int64),
        ("deferred_count", c_int64),
        ("part_count", c_int64),
        ("microbatches", POINTER(PackMicrobatch)),
        ("groups", POINTER(PackGroup)),
        ("ranks", POINTER(c_int32)),
        ("sequences", POINTER(c_int32)),
        ("deferred", POINTER(c_int32)),
        ("parts", POINTER(PackPart)),
        ("slices", POINTER(PackSlice)),
        ("cumulative", POINTER(c_int64)),
        ("loss_denominator", c_int64),
        ("distinct_groups", c_int32),
        ("seconds_lost_to_budget", c_double),
    ]


#: The C name of each struct that is a mirror of one in a public header. The tests hold sizes and offsets against it.
MIRRORS: Dict[str, Type[Structure]] = {
    "motet_error": Error,
    "motet_instruction": Instruction,
    "motet_program_module": Module,
    "motet_module_edge": Pair,
    "motet_program_region": Region,
    "motet_program_stage": Stage,
    "motet_program_edge": Pair,
    "motet_program_microbatch": Microbatch,
    "motet_range": Range,
    "motet_share": Share,
    "motet_group": Group,
    "motet_buffer": Buffer,
    "motet_tie": Tie,
    "motet_carried": Carried,
    "motet_size_table": SizeTable,
    "motet_program": Program,
    "motet_verify_options": VerifyOptions,
    "motet_rank_memory": RankMemory,
    "motet_verification": Verification,
    "motet_plan_options": PlanOptions,
    "motet_idle": Idle,
    "motet_plan_result": PlanResult,
    "motet_simulate_options": SimulateOptions,
    "motet_simulation_result": SimulationResult,
    "motet_pack_sequence": PackSequence,
    "motet_pack_cost": PackCost,
    "motet_pack_options": PackOptions,
    "motet_pack_group": PackGroup,
    "motet_pack_microbatch": PackMicrobatch,
    "motet_pack_slice": PackSlice,
    "motet_pack_part": PackPart,
    "motet_pack_plan": PackPlan,
}

_STATUS = c_int
_ERROR = POINTER(Error)

#: Function, result, arguments.
_FUNCTIONS: List[Tuple[str, object, List[object]]] = [
    ("motet_status_string", c_char_p, [c_int]),
    ("motet_program_destroy", None, [POINTER(Program)]),
    ("motet_instruction_name", c_char_p, [c_int]),
    ("motet_program_digest", c_uint64, [POINTER(Program)]),
    ("motet_program_read", _STATUS, [c_char_p, _ERROR, POINTER(POINTER(Program))]),
    ("motet_program_write", _STATUS, [POINTER(Program), c_char_p, _ERROR]),
    ("motet_program_read_pytorch_csv", _STATUS, [c_char_p, c_int, _ERROR, POINTER(POINTER(Program))]),
    ("motet_program_write_pytorch_csv", _STATUS, [POINTER(Program), c_bool, c_char_p, _ERROR]),
    ("motet_verify", _STATUS, [POINTER(Program), POINTER(VerifyOptions), _ERROR, POINTER(Verification)]),
    ("motet_verification_free", None, [POINTER(Verification)]),
    ("motet_plan_create", _STATUS, [POINTER(PlanOptions), _ERROR, POINTER(c_void_p)]),
    ("motet_plan_destroy", None, [c_void_p]),
    ("motet_plan_get", POINTER(PlanResult), [c_void_p]),
    (
        "motet_simulation_create",
        _STATUS,
        [POINTER(Program), POINTER(SimulateOptions), _ERROR, POINTER(c_void_p)],
    ),
    ("motet_simulation_destroy", None, [c_void_p]),
    ("motet_simulation_get", POINTER(SimulationResult), [c_void_p]),
    ("motet_pack_cost_read", _STATUS, [c_char_p, _ERROR, POINTER(PackCost)]),
    ("motet_pack_seconds", c_double, [POINTER(PackCost), c_int64, c_double, c_int32]),
    ("motet_pack_stop_name", c_char_p, [c_int]),
    ("motet_packer_create", _STATUS, [POINTER(PackOptions), _ERROR, POINTER(c_void_p)]),
    ("motet_packer_destroy", None, [c_void_p]),
    ("motet_packer_longest", c_int64, [c_void_p]),
    (
        "motet_packer_plan",
        _STATUS,
        [c_void_p, POINTER(PackSequence), c_int32, _ERROR, POINTER(POINTER(PackPlan))],
    ),
]

_loaded: Optional[ctypes.CDLL] = None


def _candidates() -> List[str]:
    named = os.environ.get("MOTET_LIBRARY")
    if named:
        return [named]
    own = sorted(str(path) for path in Path(__file__).parent.glob("libmotet.so*"))
    found = ctypes.util.find_library("motet")
    return own + ([found] if found else [])


def library() -> ctypes.CDLL:
    """libmotet, loaded once. OSError says where it was looked for."""
    global _loaded
    if _loaded is not None:
        return _loaded
    candidates = _candidates()
    if not candidates:
        raise OSError(
            "libmotet.so was not found: set MOTET_LIBRARY to its path, put it into the directory "
            f"{Path(__file__).parent}, or install it where the dynamic linker looks"
        )
    loaded = ctypes.CDLL(candidates[0])
    for name, result, arguments in _FUNCTIONS:
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    _loaded = loaded
    return loaded


def raise_error(error: Error) -> None:
    """Raises what a libmotet call left in its error record."""
    kind = errors.BY_STATUS.get(error.status, errors.MotetError)
    raise kind(
        error.text.decode(errors="replace"),
        status=error.status,
        rule=error.rule.decode() or None,
        rank=error.rank if error.rank >= 0 else None,
        instruction=error.instruction if error.instruction >= 0 else None,
        microbatch=error.microbatch if error.microbatch >= 0 else None,
        file=error.file.decode(errors="replace") or None,
        line=error.line if error.line > 0 else None,
        key=error.key.decode(errors="replace") or None,
    )


def check(status: int, error: Error) -> None:
    if status != 0:
        raise_error(error)
