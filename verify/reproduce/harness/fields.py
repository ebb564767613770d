"""Checks of everything but values: fields, shards, shared memory, names, reports of keys."""

import dataclasses

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from .check import Check
from .tensors import indices_like, own, read_checkpoint, tensors_of


def describe(model):
    """{name: {field: what it is}}."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    non_persistent = {
        f"{prefix}.{name}".strip(".")
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }
    return {
        name: {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "kind": "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer",
            "persistent": name not in non_persistent,
            "requires_grad": tensor.requires_grad,
            "attributes": {
                key: str(value)
                for key, value in vars(tensor).items()
                if not key.startswith("_") and isinstance(value, str | int | float | bool)
            },
            "placements": str(getattr(tensor, "placements", "not distributed")),
            "object": f"the object {id(tensor):#x}",
        }
        for name, tensor in tensors_of(model).items()
    }


@dataclasses.dataclass
class FieldKept(Check):
    """A field is what it was at `reference`, or else what the model's own class gives."""

    field: str = ""

    def remember(self, rank, model):
        rank.remembered = describe(model)

    def look(self, rank, model):
        found = describe(model)
        was = rank.remembered if self.reference else describe(rank.case.build("meta"))
        for name in self.tensors:
            seen, expected = found[name][self.field], was[name][self.field]
            if seen != expected:
                rank.fail(name, f"{self.field} is {seen}, expected {expected}")


@dataclasses.dataclass
class FieldAlike(Check):
    """A field is alike on all ranks."""

    field: str = ""

    def look(self, rank, model):
        described = describe(model)
        mine = {name: described[name][self.field] for name in self.tensors if name in described}
        everyone = [None] * rank.case.world_size
        dist.all_gather_object(everyone, mine)
        for name in self.tensors:
            seen, expected = mine.get(name), everyone[0].get(name)
            if seen != expected:
                rank.fail(name, f"{self.field} is {seen}, on rank 0 {expected}")


class Layout(Check):
    """The shards are those of torch.chunk, and together they are the whole tensor."""

    def look(self, rank, model):
        found = tensors_of(model)
        for name in self.tensors:
            tensor, indices = found[name], indices_like(found[name])
            if own(tensor).shape != indices.shape:
                given = f"its placements give {list(indices.shape)}"
                rank.fail(name, f"has a shard of {list(own(tensor).shape)}; {given}")
            if isinstance(tensor, DTensor) and any(one.is_partial() for one in tensor.placements):
                rank.fail(name, "awaits a reduction over ranks")
            held = torch.zeros(tensor.numel())
            held[indices.reshape(-1)[: own(tensor).numel()]] = 1
            dist.all_reduce(held)
            if (held == 0).any():
                rank.fail(name, f"no rank has element {int((held == 0).nonzero()[0])}")


@dataclasses.dataclass
class MemoryShared(Check):
    """Tied tensors share memory, others do not. shared: {tensor: the other}"""

    shared: dict = dataclasses.field(default_factory=dict)
    must: bool = True

    def look(self, rank, model):
        found = tensors_of(model)
        for name, other in self.shared.items():
            places = [own(found[one]).untyped_storage().data_ptr() for one in (name, other)]
            if (places[0] == places[1]) != self.must:
                rank.fail(
                    name, f"{'does not share' if self.must else 'shares'} memory with {other}"
                )


class Names(Check):
    """The model has the tensors that its own class makes, and no other."""

    def look(self, rank, model):
        found, declared = set(tensors_of(model)), set(tensors_of(rank.case.build("meta")))
        for what, names in (("lacks", declared - found), ("has in addition", found - declared)):
            if names:
                listed = ", ".join(sorted(names)[:5])
                rank.fail("", f"the model {what} {len(names)} tensors: {listed}")


@dataclasses.dataclass
class KeyReport(Check):
    """The keys that the framework reports as missing or unexpected are those that are.

    which: "missing" or "unexpected"
    """

    which: str = ""

    def look(self, rank, model):
        declared = rank.case.build("meta").state_dict()
        keys = read_checkpoint(rank.case.checkpoint)
        for name in self.tensors:
            truth = name not in (keys if self.which == "missing" else declared)
            if truth != (name in rank.keys[self.which]):
                is_ = "is" if truth else "is not"
                rank.fail(name, f"{is_} {self.which}, and the report says otherwise")
