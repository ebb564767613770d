"""Whether a tensor is one that was seen before, without keeping it alive.

A weak reference would not do: torch.utils.swap_tensors, by which Module.to() changes DTensors and
other subclasses, refuses tensors to which there is one, and so a job would end that is sound.
"""

import torch
from torch.multiprocessing.reductions import StorageWeakRef


class Seen:
    """A tensor as it was seen: its id, and its storage, which is known to be gone once it is."""

    __slots__ = ("_id", "_storage")

    def __init__(self, tensor):
        self._id = id(tensor)
        self._storage = _storage_of(tensor)

    def is_gone(self) -> bool:
        """Whether the memory that it had is free, and its id may be another tensor's. False where
        its kind has no storage."""
        return self._storage is not None and self._storage.expired()

    def is_of(self, tensor) -> bool:
        return id(tensor) == self._id and not self.is_gone()


def _storage_of(tensor) -> StorageWeakRef | None:
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):  # sparse ones and some subclasses have none
        return None
