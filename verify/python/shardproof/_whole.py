"""The digests of whole tensors, as the sums of what ranks have of them."""

import dataclasses

import torch

from . import _digest, _layout
from ._groups import Groups
from ._holding import Holding
from ._judge import total
from ._record import Record


@dataclasses.dataclass(frozen=True)
class Part:
    """What a rank has of one tensor; travels."""

    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...] | None  # the ranks whose parts make it up; None: nobody said
    coverage: tuple[int, int]
    digest: tuple[int, int]
    kind: str = ""

    @property
    def element_bytes(self) -> int:
        return getattr(torch, self.dtype.removeprefix("torch.")).itemsize


@dataclasses.dataclass(frozen=True)
class Whole:
    """One tensor. ranks: those that made it up."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    digest: tuple[int, int]
    ranks: tuple[int, ...]
    kind: str = ""


def part_of(held: Holding, record: Record) -> Part:
    groups: Groups | None = held.groups
    whole = groups.whole if groups else None
    return Part(record.dtype, record.shape, whole, record.coverage, record.digest, record.kind)


def wholes(everybody: list[dict[str, Part]]) -> dict[str, Whole | str]:
    """everybody: the parts of every rank, by name. \\returns each tensor, or why it is not whole:
    its parts have gaps or overlap, or replicas of it differ."""
    return {name: _whole(name, everybody) for name in sorted({n for own in everybody for n in own})}


def _whole(name: str, everybody) -> Whole | str:
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, own in enumerate(everybody):
        if name in own:
            whole = own[name].whole
            groups.setdefault((rank,) if whole is None else whole, []).append(rank)
    found: list[Whole] = []
    for ranks in groups.values():
        parts = [everybody[rank][name] for rank in ranks]
        first = parts[0]
        if len({(part.dtype, part.shape) for part in parts}) > 1:
            return f"ranks {ranks} do not agree on its dtype and shape"
        whole = _digest.coverage(_layout.local_runs(first.shape), first.element_bytes)
        if total(part.coverage for part in parts) != whole:
            return f"the parts of ranks {ranks} do not make it up"
        dtype = getattr(torch, first.dtype.removeprefix("torch."))
        digest = total(part.digest for part in parts)
        found.append(Whole(dtype, tuple(first.shape), digest, tuple(ranks), first.kind))
    tags = {(whole.dtype, whole.shape, whole.digest) for whole in found}
    if len(tags) > 1:
        return f"ranks {list(found[0].ranks)} and others hold different tensors of this name"
    return found[0]
