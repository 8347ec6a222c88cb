"""Batches for flexible context parallelism: which samples a rank loads when, planned by `motet.Packer`."""

from __future__ import annotations

import random
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .packing import Group, Packer


class Assignment(NamedTuple):
    """What one rank does in one microbatch of one step."""

    step: int
    microbatch: int
    samples: Tuple[int, ...]  #: indices in the data set; the group's, empty where the rank has nothing to do
    group: Optional[Group]  #: the ranks that share them; `group.sequences` are places in the step's batch


class PackSampler:
    """A batch sampler for torch.utils.data.DataLoader (`batch_sampler=`), one a rank.

    It yields one list of sample indices a microbatch: all ranks of a group get the same list, and take their slices of it.
    Every rank yields the same number of lists an epoch; a rank that a plan leaves idle gets an empty one, which
    `collate_fn` must take. `assignments()` walks the same microbatches with their groups.

        lengths: tokens of each sample; packer: for all ranks of the (data x context) plane; rank: this one
        batch_size: samples a step, over all ranks. What a step has no room for joins the next one
        shuffle, seed: the order of samples, the same on all ranks; call `set_epoch` before each epoch
    """

    def __init__(
        self,
        lengths: Sequence[int],
        packer: Packer,
        batch_size: int,
        rank: int,
        *,
        areas: Optional[Sequence[float]] = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size: {batch_size}; at least 1 is needed")
        if areas is not None and len(areas) != len(lengths):
            raise ValueError(f"{len(areas)} areas for {len(lengths)} samples")
        self._lengths, self._areas, self._packer = lengths, areas, packer
        self._batch_size, self._rank, self._shuffle, self._seed = batch_size, rank, shuffle, seed
        self._epoch = 0
        self._count: Optional[int] = None

    def set_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._count = epoch, None

    def __iter__(self) -> Iterator[List[int]]:
        for assignment in self.assignments():
            yield list(assignment.samples)

    def __len__(self) -> int:
        """Microbatches of this epoch; plans them all to count."""
        if self._count is None:
            self._count = sum(1 for _ in self.assignments())
        return self._count

    def assignments(self) -> Iterator[Assignment]:
        order = list(range(len(self._lengths)))
        if self._shuffle:
            random.Random(f"{self._seed}/{self._epoch}").shuffle(order)
        at, step, waiting = 0, 0, []  # type: int, int, List[int]
        while at < len(order) or waiting:
            fresh = max(self._batch_size - len(waiting), 0)
            batch = waiting + order[at : at + fresh]
            at += fresh
            plan = self._packer.plan(
                [self._lengths[i] for i in batch], None if self._areas is None else [self._areas[i] for i in batch]
            )
            if len(plan.deferred) == len(batch):
                raise ValueError(f"no sample of step {step} finds room; give the packer batch='auto'")
            for number, groups in enumerate(plan.microbatches):
                mine = next((group for group in groups if self._rank in group.ranks), None)
                samples = tuple(batch[k] for k in mine.sequences) if mine is not None else ()
                yield Assignment(step, number, samples, mine)
            waiting = [batch[k] for k in plan.deferred]
            step += 1
