"""Checks of what was saved, once run() is over; rank 0 reads it."""

import dataclasses

import torch

from .check import Check
from .tensors import read_checkpoint
from .values import compare


class Saved(Check):
    at_the_end = True

    def look(self, rank, model):
        if rank.case.rank == 0:
            self.look_at_saved(rank, read_checkpoint(rank.case.save_to))

    def look_at_saved(self, rank, saved):
        raise NotImplementedError


class SavedAll(Saved):
    """Each of the tensors is in the saved checkpoint."""

    def look_at_saved(self, rank, saved):
        for name in self.tensors:
            if name not in saved:
                rank.fail(name, "is not in the saved checkpoint")


class NotSaved(Saved):
    """None of these is in the saved checkpoint: the model's state dict does not have them."""

    def look_at_saved(self, rank, saved):
        for name in self.tensors:
            if name in saved:
                rank.fail(name, "is in the saved checkpoint, and not in the model's state dict")


@dataclasses.dataclass
class SavedOnce(Saved):
    """What is tied is saved under one name. shared: {tensor: the other}"""

    shared: dict = dataclasses.field(default_factory=dict)

    def look_at_saved(self, rank, saved):
        for name, other in self.shared.items():
            if name in saved and other in saved:
                rank.fail(name, f"is saved twice, also as {other}")


@dataclasses.dataclass
class SavedUnchanged(Saved):
    """What was saved is what was loaded. keys: {tensor: its key in what was loaded, if another}"""

    keys: dict = dataclasses.field(default_factory=dict)

    def look_at_saved(self, rank, saved):
        for name in self.tensors:
            key = self.keys.get(name, name)
            want = read_checkpoint(rank.case.checkpoint, key)[key]
            if saved[name].dtype != want.dtype:
                rank.fail(name, f"is saved as {saved[name].dtype}, expected {want.dtype}")
            else:
                indices = torch.arange(want.numel()).view(want.shape)
                compare(rank, name, saved[name], want, indices)
