"""Whether a tensor is one that was seen before, without keeping it alive.

A weak reference would not do: torch.utils.swap_tensors, by which Module.to() changes DTensors and
other subclasses, refuses tensors to which there is one, and so a job would end that is sound.
"""

import weakref

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


class Identities:
    """Numbers for the objects of a model's tensors. Another number means another object.

    The id of an object may be that of one that is gone. So an object counts as the one of before
    only under the same name in the same module, which is known by a weak reference.
    """

    def __init__(self):
        self._count = 0
        self._known = {}  # (id of the module, name): (the module, id of the object, its number)
        self._now = {}  # id of an object: its number
        self._names = {}  # id of an object: the name that it had last

    def look_at(self, tensors):
        """tensors: holdings of a model, all of it."""
        self._now = {}
        for held in tensors:
            owner, place = id(held.owner), (id(held.home), held.name)
            if owner not in self._now:
                module, known, number = self._known.get(place, (None, None, None))
                if known != owner or module() is not held.home:
                    number = self._count
                    self._count += 1
                self._now[owner] = number
            self._known[place] = (weakref.ref(held.home), owner, self._now[owner])
            self._names[owner] = held.name
        self._known = {place: each for place, each in self._known.items() if each[0]() is not None}

    def number_of(self, held) -> int:
        """held: one of those that were looked at last."""
        return self._now[id(held.owner)]

    def name_of(self, tensor) -> str:
        """What a tensor was called in the model when it was looked at; empty if it was not."""
        return self._names.get(id(tensor), "")


def _storage_of(tensor) -> StorageWeakRef | None:
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError, ValueError):
        return None  # sparse ones, lazy ones and some subclasses have none
