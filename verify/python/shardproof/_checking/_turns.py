"""Which calls of `check` look at a model, and at which of its tensors: `every` and `budget_s`.

Names stand on a circle, by their hash. A call with a budget looks at those in a window, and the
next one goes on where it ended. Where the window is and how wide, rank 0 says: ranks that looked at
different names would take them for absent.
"""

import math
import weakref

from torch import nn

from .._holdings._record import place_of
from .._syncs._synced import Synced

_CIRCLE = 1 << 32
_FIRST = _CIRCLE >> 4  # the window of the first call, of which nothing is known
_LEAST = _CIRCLE >> 10
_GROWTH = 4  # at most, from call to call
_AIM = 0.8  # of the budget


class Turns:
    """The calls for one model."""

    _of_models: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def __init__(self):
        self.calls = 0
        self.pending = None  # what is read in the background, and not yet told
        self.synced = Synced()
        self.again = None  # of a check against a manifest, for the next one
        self._start, self._width = 0, _FIRST

    @classmethod
    def of(cls, model) -> "Turns":
        """model: a module or a list of them, of which the first one counts."""
        first = model[0] if isinstance(model, list | tuple) and model else model
        if not isinstance(first, nn.Module):
            return cls()  # which will be told
        return cls._of_models.setdefault(first, cls())

    def is_due(self, every: int) -> bool:
        """Whether this call is one that looks: the first one, and each `every`-th after it."""
        self.calls += 1
        return (self.calls - 1) % every == 0

    def window(self, transport):
        """\\returns a function that says of a name whether this call looks at it, the same on all
        ranks."""
        self._start, self._width = transport.everybody([self._start, self._width])[0]
        start, width = self._start, self._width
        return lambda name: ((place_of(name) >> 32) - start) % _CIRCLE < width

    def took(self, seconds: float, budget_s: float):
        """seconds: of the slowest rank, for what it had in the window."""
        self._start = (self._start + self._width) % _CIRCLE
        wider = self._width * min(_GROWTH, _AIM * budget_s / max(seconds, 1e-6))
        self._width = int(min(max(wider, _LEAST), _CIRCLE))


def refuse_nonsense(deadline, every, budget_s):
    """\\raises ValueError, before anything is sent."""
    for what, value in (("deadline", deadline), ("budget_s", budget_s)):
        if what == "budget_s" and value is None:
            continue
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"shardproof.check: {what} is {value!r}: expected seconds above 0")
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise ValueError(f"shardproof.check: every is {every!r}: expected a number of calls")
