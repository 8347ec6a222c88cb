"""Runs a training step with torch.distributed as a program says, instruction by instruction.

    plan = motet.plan("<vision+projector: transpose, llm: 1f1b>", ...)
    runner = motet.torch.Runner(plan.program, forward, shape, parameters)
    for step in range(steps):
        losses = runner.step(optimizer)

Plain sends and receives: any backend with `isend` and `irecv` will do. The program was proven to match them by order and
never to wait for itself, so they carry no tags and need no second stream. examples/pytorch/train_toy_vlm.py is a whole
training script.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from .errors import UnsupportedError
from .program import Instruction, Program

#: forward(stage, microbatch, inputs): the stage's output, from the outputs of the stages that feed it (by stage number)
#: and from what the microbatch's data hold. The last stage gives the microbatch's loss, scaled as it shall count.
Forward = Callable[[int, int, Mapping[int, torch.Tensor]], torch.Tensor]
#: shape(stage, microbatch): size of the stage's output.
Shape = Callable[[int, int], Sequence[int]]

_Key = Tuple[str, int, int]  # ("output", stage, microbatch), ("gradient", edge, microbatch), ("saved", stage, microbatch)
_DONE_BY_FORWARD = ("LOAD",)
_COMPUTE = ("FWD", "BWD", "BWD_X", "BWD_W")
_MOVES = ("SEND", "RECV", "WAIT", "ALL_REDUCE", "OPTIM", "STEP_END")


class Runner:
    """One rank's part of a program.

    program: of `motet.plan`, or read from a file; every rank has the same one (its `digest` tells)
    forward, shape: see `Forward`, `Shape`; an empty stage in the middle passes its input on without being asked
    parameters: of each stage that this rank holds (`stages`), those whose gradients the program reduces
    tied: the weight of each tie of the program that this rank holds
    group: the process group whose ranks are the program's; None: all processes

    Making a Runner is collective: process groups are made for the program's collectives. Gradients are added to
    `.grad`, as autograd does; clearing them is the caller's.
    """

    def __init__(
        self,
        program: Program,
        forward: Forward,
        shape: Shape,
        parameters: Mapping[int, Sequence[torch.nn.Parameter]],
        *,
        tied: Optional[Mapping[int, torch.nn.Parameter]] = None,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        self.program = program
        self.rank = dist.get_rank(group)
        if dist.get_world_size(group) != program.ranks:
            raise ValueError(f"the program is for {program.ranks} ranks, not {dist.get_world_size(group)}")
        self._forward, self._shape, self._parameters = forward, shape, parameters
        self._tied = tied or {}
        self._dtype, self._device = dtype, torch.device(device)
        self._world = group
        self._list = program.instructions(self.rank)
        _check(self._list, program)
        self._groups = self._make_groups()
        self._sources: Dict[int, List[int]] = {}  # of each stage: edges into it
        self._targets: Dict[int, List[int]] = {}
        for number, edge in enumerate(program.edges):
            self._sources.setdefault(edge.target, []).append(number)
            self._targets.setdefault(edge.source, []).append(number)
        self._trained = _trained_stages(program)
        #: (stage, microbatch) that somebody computes; others have no data.
        self._active: Set[Tuple[int, int]] = {
            (i.stage, i.microbatch) for r in range(program.ranks) for i in program.instructions(r) if i.kind == "FWD"
        }
        self._backward = {(i.stage, i.microbatch) for i in self._list if i.kind in ("BWD", "BWD_X")}
        self._split = {(i.stage, i.microbatch) for i in self._list if i.kind == "BWD_W"}
        self._drops = self._last_uses()

    @property
    def stages(self) -> Tuple[int, ...]:
        """The stages that this rank holds."""
        program = self.program
        return tuple(s for s, stage in enumerate(program.stages) if self.rank in program.groups[stage.group])

    def step(self, optimizer: Optional[torch.optim.Optimizer] = None) -> Dict[int, float]:
        """Runs the list once. Returns the losses of the microbatches whose last stage is here, by microbatch."""
        self._values: Dict[_Key, Any] = {}
        self._handles: Dict[Tuple[int, int, bool], Tuple[dist.Work, torch.Tensor]] = {}
        self._losses: Dict[int, torch.Tensor] = {}
        for number, instruction in enumerate(self._list):
            kind = instruction.kind
            if kind == "FWD":
                self._run_forward(instruction.stage, instruction.microbatch)
            elif kind == "BWD" or kind == "BWD_X":
                self._run_backward(instruction.stage, instruction.microbatch)
            elif kind == "BWD_W":
                self._run_weights(instruction.stage, instruction.microbatch)
            elif kind in ("SEND", "RECV", "WAIT"):
                self._transfer(instruction)
            elif kind == "ALL_REDUCE":
                self._reduce(instruction)
            elif kind == "OPTIM":
                if optimizer is not None:
                    optimizer.step()
            elif kind == "STEP_END":
                dist.barrier(self._groups[instruction.peer])
            for key in self._drops[number]:
                self._values.pop(key, None)
        losses = {m: float(loss) for m, loss in self._losses.items()}
        del self._values, self._handles, self._losses
        return losses

    # ---- compute ----

    def _inputs_of(self, stage: int, microbatch: int) -> List[int]:
        """Edges along which the stage gets data for the microbatch."""
        edges = self.program.edges
        return [e for e in self._sources.get(stage, ()) if (edges[e].source, microbatch) in self._active]

    def _outputs_of(self, stage: int, microbatch: int) -> List[int]:
        edges = self.program.edges
        return [e for e in self._targets.get(stage, ()) if (edges[e].target, microbatch) in self._active]

    def _run_forward(self, stage: int, microbatch: int) -> None:
        edges = self.program.edges
        learns = (stage, microbatch) in self._backward or (stage, microbatch) in self._split
        inputs: Dict[int, torch.Tensor] = {}
        for e in self._inputs_of(stage, microbatch):
            source = edges[e].source
            value = self._values[("output", source, microbatch)].detach()
            inputs[source] = value.requires_grad_() if learns and source in self._trained else value
        last = not self._outputs_of(stage, microbatch)
        place = self.program.stages[stage]
        with torch.set_grad_enabled(learns):
            if place.layer_begin == place.layer_end and not last and len(inputs) == 1:
                output = next(iter(inputs.values())).clone()
            else:
                output = self._forward(stage, microbatch, inputs)
        if last:
            self._losses[microbatch] = output.detach()
        self._values[("output", stage, microbatch)] = output.detach()
        if learns:
            self._values[("saved", stage, microbatch)] = (inputs, output)

    def _incoming(self, stage: int, microbatch: int) -> Optional[torch.Tensor]:
        """The gradient of the stage's output; None for a loss."""
        gradients = [self._values[("gradient", e, microbatch)] for e in self._outputs_of(stage, microbatch)]
        if not gradients:
            return None
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        return total

    def _run_backward(self, stage: int, microbatch: int) -> None:
        inputs, output = self._values[("saved", stage, microbatch)]
        gradient = self._incoming(stage, microbatch)
        wanted = {source: value for source, value in inputs.items() if value.requires_grad}
        if (stage, microbatch) in self._split:
            # Input gradients alone; the graph is kept for BWD_W.
            values = list(wanted.values())
            found = torch.autograd.grad(output, values, gradient, retain_graph=True) if values else ()
            gradients = dict(zip(wanted, found))
            self._values[("weights", stage, microbatch)] = gradient
        else:
            torch.autograd.backward(output, gradient)
            gradients = {source: value.grad for source, value in wanted.items()}
        for e in self._inputs_of(stage, microbatch):
            source = self.program.edges[e].source
            if source in gradients:
                self._values[("gradient", e, microbatch)] = gradients[source]

    def _run_weights(self, stage: int, microbatch: int) -> None:
        _, output = self._values[("saved", stage, microbatch)]
        parameters = [p for p in self._parameters.get(stage, ()) if p.requires_grad]
        if (stage, microbatch) in self._backward:
            gradient = self._values.pop(("weights", stage, microbatch))
        else:
            gradient = self._incoming(stage, microbatch)
        torch.autograd.backward(output, gradient, inputs=parameters)

    # ---- transfers and collectives ----

    def _transfer(self, instruction: Instruction) -> None:
        buffer = self.program.buffers[instruction.buffer]
        gradient = buffer.kind == "GRADIENT"
        key = ("gradient", buffer.edge, buffer.microbatch) if gradient else ("output", buffer.stage, buffer.microbatch)
        if instruction.kind == "WAIT":
            work, tensor = self._handles.pop((instruction.buffer, instruction.peer, instruction.recv))
            work.wait()
            if instruction.recv:
                self._values[key] = tensor
            return
        receives = instruction.kind == "RECV"
        peer = instruction.peer if self._world is None else dist.get_global_rank(self._world, instruction.peer)
        if receives:
            size = tuple(self._shape(buffer.stage, buffer.microbatch))
            tensor = torch.empty(size, dtype=self._dtype, device=self._device)
            work = dist.irecv(tensor, peer, group=self._world)
        else:
            tensor = self._values[key].contiguous()
            work = dist.isend(tensor, peer, group=self._world)
        self._handles[(instruction.buffer, instruction.peer, receives)] = (work, tensor)

    def _reduce(self, instruction: Instruction) -> None:
        buffer = self.program.buffers[instruction.buffer]
        if buffer.kind == "TIED_GRADIENT":
            parameters: Sequence[torch.nn.Parameter] = [self._tied[buffer.edge]]
        else:
            parameters = [p for p in self._parameters[buffer.stage] if p.requires_grad]
        if not parameters:
            return
        for parameter in parameters:  # a rank without data adds nothing, and takes part
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
        dist.all_reduce(flat, group=self._groups[instruction.peer])
        at = 0
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.copy_(flat[at : at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    def _make_groups(self) -> Dict[int, dist.ProcessGroup]:
        """Process groups of all collectives of the program, made by every rank in one order."""
        program = self.program
        used = sorted(
            {
                i.peer
                for r in range(program.ranks)
                for i in program.instructions(r)
                if i.kind in ("ALL_REDUCE", "STEP_END")
            }
        )
        made = {}
        for number in used:
            ranks = program.groups[number]
            if self._world is not None:
                ranks = tuple(dist.get_global_rank(self._world, r) for r in ranks)
            made[number] = dist.new_group(list(ranks))
        return made

    # ---- lifetimes ----

    def _last_uses(self) -> List[List[_Key]]:
        """For each instruction, the values that nothing behind it reads."""
        last: Dict[_Key, int] = {}
        edges, buffers = self.program.edges, self.program.buffers
        for number, i in enumerate(self._list):
            if i.kind in _COMPUTE:
                last[("saved", i.stage, i.microbatch)] = number
            if i.kind == "FWD":
                last[("output", i.stage, i.microbatch)] = number
                for e in self._inputs_of(i.stage, i.microbatch):
                    last[("output", edges[e].source, i.microbatch)] = number
            elif i.kind in ("BWD", "BWD_X"):
                for e in self._inputs_of(i.stage, i.microbatch):
                    last[("gradient", e, i.microbatch)] = number
                for e in self._outputs_of(i.stage, i.microbatch):
                    last[("gradient", e, i.microbatch)] = number
            elif i.kind in ("SEND", "WAIT"):
                buffer = buffers[i.buffer]
                if buffer.kind == "GRADIENT":
                    last[("gradient", buffer.edge, buffer.microbatch)] = number
                else:
                    last[("output", buffer.stage, buffer.microbatch)] = number
        drops: List[List[_Key]] = [[] for _ in self._list]
        for key, number in last.items():
            drops[number].append(key)
        return drops


def _trained_stages(program: Program) -> Set[int]:
    """Stages that have a trainable layer, or one in a stage before them: gradients flow back to these."""
    trained = {
        s
        for s, stage in enumerate(program.stages)
        if any(program.layer_trainable[stage.layer_begin : stage.layer_end])
    }
    for edge in sorted(program.edges):  # every edge goes up, so that sources are settled before their targets
        if edge.source in trained:
            trained.add(edge.target)
    return trained


def _check(instructions: Sequence[Instruction], program: Program) -> None:
    for instruction in instructions:
        if instruction.kind not in _COMPUTE + _MOVES + _DONE_BY_FORWARD:
            raise UnsupportedError(f"{instruction.kind} is not run by motet.torch")
        if instruction.next or program.carried:
            raise UnsupportedError("work for the next step (order=ahead) is not run by motet.torch")
        if instruction.range > 0:
            raise UnsupportedError("token ranges are not run by motet.torch")
