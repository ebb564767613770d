"""Checks of the host memory of a rank."""

import ctypes
import dataclasses
import threading

from ._pages import anonymous_bytes, committed_bytes
from .check import Check
from .tensors import own, tensors_of

SHARED_PAGES_BYTES = 8192  # that a tensor may share with its neighbours
M_MMAP_THRESHOLD = -3


class MemoryWatch(threading.Thread):
    """The most host memory of this process since it began, mapped files not counted."""

    def __init__(self):
        super().__init__(daemon=True)
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 64 << 10)  # what is freed is given back
        self.idle = self.peak = anonymous_bytes()
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.002):
            self.peak = max(self.peak, anonymous_bytes())

    def used(self):
        self.over.set()
        self.join()
        return self.peak - self.idle


@dataclasses.dataclass
class PeakMemory(Check):
    """A rank needs no more than its shards, one bucket and some slack. limits: {rank: bytes}"""

    limits: dict = dataclasses.field(default_factory=dict)
    at_the_end = True

    def begin(self, rank):
        rank.memory = MemoryWatch()

    def look(self, rank, model):
        used, limit = rank.memory.used(), self.limits.get(rank.case.rank)
        if limit is not None and used > limit:
            bound = f"its own shards, one bucket and the slack are {limit}"
            rank.fail("", f"its host memory rose by {used} bytes; {bound}")


class NoPages(Check):
    """What has no value yet is backed by no pages."""

    def look(self, rank, model):
        for name in self.tensors:
            tensor = own(tensors_of(model)[name])
            if tensor.is_meta:
                continue
            committed = committed_bytes(tensor.data_ptr(), tensor.nbytes)
            if committed > SHARED_PAGES_BYTES:
                of = f"{committed} of {tensor.nbytes} bytes"
                rank.fail(name, f"{of} are committed, and it has no value yet")
