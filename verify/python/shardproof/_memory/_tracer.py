"""`who`, while the job runs: what Python itself has allocated, and the history of CUDA's allocator.

It costs: tracemalloc counts each allocation of Python, CUDA's allocator keeps the stack of each of
its own. Nothing is imported for the job.
"""

import contextlib
import sys
import tracemalloc

from .._package import is_ours
from ._seldom import Seldom
from ._stacks import frame_text

TOLD_MAX = 5
TOLD_BYTES_MIN = 1 << 20
_FRAMES = 8
_GROWTH_BYTES = 32 << 20
_GROWTH_PARTS = 10
_EVENTS_MAX = 100_000


class Tracer:
    """What Python had allocated, by stack, when that was most. sample() is called by the watch's
    thread between stages, begin() and found() by the job's at them."""

    def __init__(self):
        self._most, self._found = 0, []
        self._snapshots = Seldom()
        self._has_history = self._has_begun = False
        self._trace()

    def begin(self):
        """What was most is asked for anew."""
        self._most, self._found = tracemalloc.get_traced_memory()[0], []

    def _trace(self):
        """Not while torch is imported, which allocates more often than anything after it."""
        torch = sys.modules.get("torch")
        spec = getattr(torch, "__spec__", None)
        if self._has_begun or spec is None or getattr(spec, "_initializing", False):
            return
        self._has_begun = True
        if not tracemalloc.is_tracing():
            tracemalloc.start(_FRAMES)

    def sample(self):
        self._trace()
        self._start_history()
        if not tracemalloc.is_tracing():
            return
        now = tracemalloc.get_traced_memory()[0]
        grown = now >= self._most + max(_GROWTH_BYTES, self._most // _GROWTH_PARTS)
        if grown and self._snapshots.is_due():
            with self._snapshots:
                self._most, self._found = now, _by_stack(tracemalloc.take_snapshot())

    def found(self) -> list[dict]:
        return self._found

    def _start_history(self):
        """Has CUDA's allocator keep stacks once the job uses it, unless the job has it do so."""
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        is_initialized = getattr(cuda, "is_initialized", None)
        if self._has_history or is_initialized is None or not is_initialized():
            return
        self._has_history = True
        with contextlib.suppress(RuntimeError, TypeError, AttributeError):
            if not sys.modules["torch"]._C._cuda_isHistoryEnabled():
                cuda.memory._record_memory_history(
                    "all", context="alloc", stacks="python", max_entries=_EVENTS_MAX
                )


def _by_stack(snapshot) -> list[dict]:
    """The largest, those of one stack together. Snapshot.statistics does the same in minutes."""
    sums = {}
    for trace in snapshot.traces._traces:
        size, stack = trace[1], trace[2]
        known = sums.get(stack)
        if known is None:
            sums[stack] = [size, 1]
        else:
            known[0] += size
            known[1] += 1
    found = []
    for stack, (size, count) in sorted(sums.items(), key=lambda item: -item[1][0]):
        if size < TOLD_BYTES_MIN or len(found) == TOLD_MAX:
            break
        frames = [frame_text(filename, line) for filename, line in stack
                  if not is_ours(filename) and not filename.startswith("<")]  # fmt: skip
        if frames:
            found.append({"by": "python", "bytes": size, "count": count,
                          "what": "Python's own allocations", "stack": frames})  # fmt: skip
    return found
