"""Holdings: what a rank has of a name, whatever it is kept in.

`check`, `observe` and what judges them see nothing else of a model.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Mapping

import torch

from ._groups import Groups
from ._layout import Placement, Run


@dataclasses.dataclass
class Holding:
    """What this rank has of one tensor.

    local is None if the tensor is on meta or its memory is not there (freed, or a kind that is not
    known: then `unreadable` says which). owner is the object whose identity is the tensor's.
    groups: the ranks that it is held together with; None if nobody said which.
    """

    name: str
    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    local: torch.Tensor | None
    runs: list[Run]
    owner: object
    groups: Groups | None = None
    persistent: bool = True
    requires_grad: bool = False
    placements: list[Placement] = dataclasses.field(default_factory=list)
    coordinates: tuple[int, ...] = ()  # on the mesh of the placements
    mesh_names: tuple[str, ...] | None = None
    mesh_shape: tuple[int, ...] = ()
    unique: bool = False  # no other tensor of the job has its name
    is_meta: bool = False
    partial: bool = False
    unreadable: str = ""
    misfit: str = ""  # why it cannot be what its name says
    # What each rank has of its own: "batches", a statistic of those that it has seen; "own", a
    # state of its random numbers, or the like.
    drifts: str = ""
    accumulates: bool = False  # a buffer that was written in place again and again
    is_range: bool = False  # a smallest or largest value of what was seen: at first infinite
    also: bool = False  # it is the framework's own, beside what a checkpoint has
    codes: bool = False  # its elements are codes in a container, not numbers of its dtype
    computed: bool = False  # a part, as was told: the shape is this part's, times their number
    partly: bool = False  # this rank's optimizer has state of some parameters, and not of all
    is_counter: bool = False  # a number of Python's, which no checkpoint has as a tensor
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)
    home: torch.nn.Module | None = None  # the module whose tensor it is

    def is_of_numbers(self, finite) -> bool:
        """Whether its values are to be finite. finite: of all, or {pattern of names: of these}."""
        if self.codes or not isinstance(finite, Mapping):
            return not self.codes and bool(finite)
        return all(
            wanted or not fnmatch.fnmatchcase(self.name, each) for each, wanted in finite.items()
        )

    def may_be_infinite(self) -> bool:
        """Whether the Inf in it are those of a mask: a buffer's, and all negative. Statistics are
        no masks; of what may be one, a mask has nothing but 0 beside them. Or those of a range that
        nothing was seen of: every element."""
        if self.is_range:
            return bool(self.local.isinf().all())
        if self.kind != "buffer" or self.drifts:
            return False
        try:
            if not self.local.amax().item() < math.inf:  # without a tensor of that size
                return False
            return not self.accumulates or bool(
                self.local.isinf().sum() == self.local.count_nonzero()
            )
        except (RuntimeError, TypeError, NotImplementedError):  # a dtype that has no order
            return False

    @property
    def device(self) -> str:
        if self.is_meta:
            return "meta"
        there = self.owner if self.local is None else self.local
        return str(getattr(there, "device", "meta"))


def bytes_of(held: Holding, low: int, high: int):
    """(global start, bytes) of what is held of global bytes [low, high); touching ones joined."""
    size = held.local.element_size()
    flat = held.local.contiguous().reshape(-1).view(torch.uint8)
    found = []
    for run in held.runs:
        for i in range(run.count):
            start = (run.start + i * run.stride) * size
            first, last = max(low, start), min(high, start + run.length * size)
            if first >= last:
                continue
            at = (run.local_start + i * run.local_stride) * size + first - start
            found.append((first, bytes(flat[at : at + last - first].tolist())))
    found.sort()
    joined = []
    for start, data in found:
        if joined and joined[-1][0] + len(joined[-1][1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + data)
        else:
            joined.append((start, data))
    return joined


def alias_groups(tensors: list[Holding]) -> dict[str, int]:
    """A number for each tensor; those whose memory overlaps have the same."""
    stretches = []  # storage, first byte, end, name
    for held in tensors:
        if held.local is not None and held.local.numel():
            size = held.local.element_size()
            first = held.local.storage_offset() * size
            spans = zip(held.local.shape, held.local.stride(), strict=True)
            last = sum((length - 1) * abs(stride) for length, stride in spans)
            storage = held.local.untyped_storage()._cdata
            stretches.append((storage, first, first + (last + 1) * size, held.name))
    stretches.sort()
    group_of: dict[str, int] = {}
    group, storage, end = -1, None, 0
    for here, first, stop, name in stretches:
        if here != storage or first >= end:
            group, storage, end = group + 1, here, stop
        end = max(end, stop)
        group_of[name] = group
    # Numbered in the order of names: addresses differ from run to run.
    numbers: dict[int, int] = {}
    return {
        held.name: numbers.setdefault(group_of[held.name], len(numbers))
        for held in tensors
        if held.name in group_of
    }
