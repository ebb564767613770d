"""Checks of the values that a model holds."""

import dataclasses

import torch
from torch.distributed.tensor import DTensor

from .check import Check
from .tensors import (
    differing,
    differing_by_ulp,
    element,
    indices_like,
    own,
    part_like,
    read_checkpoint,
    tensors_of,
)


def compare(rank, name, mine, theirs, indices, places=differing):
    """Names the first element that differs, by its index in the whole tensor."""
    if mine.shape != theirs.shape:
        rank.fail(name, f"has a shard of {list(mine.shape)}, expected {list(theirs.shape)}")
        return
    wrong = places(mine, theirs)
    if len(wrong):
        here = int(wrong[0])
        rank.fail(
            name,
            f"element {int(indices.reshape(-1)[here])} is {element(mine, here)}, expected "
            f"{element(theirs, here)}; {len(wrong)} of the {mine.numel()} elements here differ",
        )


class Values(Check):
    """This rank holds the elements of `expected` that it should; `differ` tells which do not."""

    def expected(self, rank, name):
        """The whole tensor."""
        raise NotImplementedError

    def differ(self, mine, theirs):
        return differing(mine, theirs)

    def look(self, rank, model):
        found = tensors_of(model)
        for name in self.tensors:
            if name not in found:
                rank.fail(name, "is not in the model")
                continue
            tensor, want = found[name], self.expected(rank, name)
            if own(tensor).is_meta:
                rank.fail(name, "is on the meta device")
            elif tensor.dtype != want.dtype or tensor.shape != want.shape:
                is_, wanted = ((one.dtype, list(one.shape)) for one in (tensor, want))
                rank.fail(name, f"is {is_[0]} {is_[1]}, expected {wanted[0]} {wanted[1]}")
            else:
                part, indices = part_like(want, tensor), indices_like(tensor)
                compare(rank, name, own(tensor), part, indices, self.differ)


@dataclasses.dataclass
class SameAsCheckpoint(Values):
    """Bit for bit what the checkpoint has. keys: {tensor: its key there, where that is another}"""

    keys: dict = dataclasses.field(default_factory=dict)

    def expected(self, rank, name):
        key = self.keys.get(name, name)
        return read_checkpoint(rank.case.checkpoint, key)[key]


@dataclasses.dataclass
class SameAsReference(Values):
    """Bit for bit what there was at `reference` on rank 0 or, if `own_rank`, on the rank itself."""

    own_rank: bool = False

    def remember(self, rank, model):
        """Every rank keeps the whole tensors; gathering them is for all ranks that hold a part."""
        found = {name: one for name, one in tensors_of(model).items() if name in self.tensors}
        for name, tensor in found.items():
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            found[name] = full.detach().clone()
        torch.save(found, f"{rank.directory}/reference.{rank.case.rank}.pt")

    def expected(self, rank, name):
        number = rank.case.rank if self.own_rank else 0
        return torch.load(f"{rank.directory}/reference.{number}.pt")[name]


@dataclasses.dataclass
class WithinFormula(Values):
    """F32, within `ulp` units in the last place of a formula. formula: {tensor: its values}"""

    formula: dict = dataclasses.field(default_factory=dict)
    ulp: int = 0

    def expected(self, rank, name):
        return torch.tensor(self.formula[name], dtype=torch.float32)

    def differ(self, mine, theirs):
        return differing_by_ulp(mine, theirs, self.ulp)


@dataclasses.dataclass
class Finite(Check):
    """No NaN or Inf that the checkpoint does not have in the same place."""

    keys: dict = dataclasses.field(default_factory=dict)

    def look(self, rank, model):
        found = tensors_of(model)
        for name in self.tensors:
            mine = own(found[name])
            allowed = torch.zeros_like(mine, dtype=torch.bool)
            source = read_checkpoint(rank.case.checkpoint, self.keys.get(name, name))
            for tensor in source.values():
                allowed = ~part_like(tensor, found[name]).isfinite()
            for what, wrong in (("NaN", mine.isnan() & ~allowed), ("Inf", mine.isinf() & ~allowed)):
                if wrong.any():
                    first = int(indices_like(found[name])[wrong][0])
                    rank.fail(name, f"{int(wrong.sum())} elements are {what}, the first is {first}")


class NotMeta(Check):
    """No tensor is left without memory."""

    def look(self, rank, model):
        for name, tensor in tensors_of(model).items():
            if name in self.tensors and own(tensor).is_meta:
                rank.fail(name, "is still on the meta device")


class Defined(Check):
    """Every tensor is there, and run() does not say that its values mean nothing yet."""

    def look(self, rank, model):
        found = tensors_of(model)
        for name in self.tensors:
            said = rank.content(name) if callable(rank.content) else rank.content
            if name not in found:
                rank.fail(name, "is not in the model")
            elif own(found[name]).is_meta:
                rank.fail(name, "is still on the meta device")
            elif said in ("none", "undefined"):
                rank.fail(name, f'run() calls its content "{said}": nothing has given it a value')
