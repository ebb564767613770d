"""A check whose tensors are read in a thread of its own while the job computes its next step.

The thread makes no collective. What it has read is sent, judged and told in the next call of
`check` for the model, or by `Pending.result`, as that of a check within the call is.
"""

import dataclasses
import threading
import time
import weakref

from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._digests import _called
from .._judging._outcome import Outcome, conclude
from .._judging._transport import Transport
from . import _look
from ._look import Asked
from ._turns import Turns

_AT_ONCE_BYTES = 1 << 20  # buffers: the forward writes to some of them, and they are seldom larger
GONE = "it was found while the job computed, but is no longer so"


class Pending:
    """A check in the background. Made by `check(model, background=True)`."""

    def __init__(self, behind=None, kept=None, outcome=None):
        self._behind, self._outcome = behind, outcome
        self._kept = kept  # for as long as the caller may ask

    @property
    def done(self) -> bool:
        """Whether this rank has read what it can. Says nothing of the others."""
        return self._behind is None or not self._behind.thread.is_alive()

    @_called.by_job
    def result(self) -> Outcome:
        """Waits for the reading, and compares. Call it on every rank, or on none: the next `check`
        of the model does the same. \\raises what `check` raises."""
        return self._outcome if self._behind is None else self._behind.conclude()


class Behind:
    """One reading in the background, of the model that was asked about."""

    def __init__(self, asked: Asked, turns: Turns, model, optimizer):
        self._turns = turns
        self._end = None  # an Outcome, or what was raised
        self._own, self._failed = None, None
        transport = Transport(asked.deadline)
        self._world_size = transport.world_size
        with _look.forgetting(transport):
            wanted = turns.window(transport) if asked.budget_s else lambda name: True
        try:
            self._own = asked.own(wanted)
            _heed_steps(self._own)
            self._own.reading.read(_is_small_buffer)
            # What is pending for a model does not keep that.
            asked = dataclasses.replace(asked, subject=_weakly(model, optimizer))
        except Exception as error:  # whatever it is, all ranks are told when it is compared
            self._failed = error
        self._asked = asked
        self._seconds = 0.0
        self.thread = threading.Thread(target=self._read, name="shardproof.check")
        self.thread.start()  # the interpreter waits for it when it ends, and it then stops

    def conclude(self) -> Outcome:
        """\\returns or raises the same whenever it is asked."""
        if self._turns.pending is self:
            self._turns.pending = None
        if self._end is None:
            try:
                self._end = self._concluded()
            except Exception as error:
                self._end = error
            self._own = None
        if isinstance(self._end, Exception):
            raise self._end
        return self._end

    def _read(self):
        begin = time.perf_counter()
        try:
            if self._failed is None:
                self._own.reading.read(goes_on=threading.main_thread().is_alive)
        except Exception as error:
            self._failed = error
        self._seconds = time.perf_counter() - begin

    def _concluded(self) -> Outcome:
        self.thread.join()
        transport = Transport(self._asked.deadline)
        if transport.world_size != self._world_size:
            raise RuntimeError("shardproof.check: the process group of what is pending has ended")
        with _look.forgetting(transport):
            messages, own = _look.sent(transport, self._what_was_read)
            verdict = _look.judged(transport, messages, own, self._seconds)
            if self._asked.budget_s:
                self._turns.took(verdict.slowest, self._asked.budget_s)
        if not verdict.folds:
            return Outcome(
                verdict.tensors, verdict.comparisons,
                conclude(verdict, self._asked.strict, transport, dict),
                *own.counts(),
            )  # fmt: skip
        return self._confirmed(verdict, transport)

    def _what_was_read(self):
        if self._failed is not None:
            raise self._failed
        return self._own

    def _confirmed(self, verdict, transport) -> Outcome:
        """What was found is looked at again, now that no rank computes: whether it still holds, and
        in which element. So no write that torch does not count makes a finding."""
        now = _look.look(dataclasses.replace(self._asked, budget_s=None), self._turns)
        first = min(one.findings[0].tensor for one in verdict.folds)
        verdict.uncompared = {GONE: (sum(one.names for one in verdict.folds), first)}
        verdict.folds, verdict.count = [], 0
        told = conclude(verdict, self._asked.strict, transport, dict)
        return dataclasses.replace(now, inconclusive=(*now.inconclusive, *told))


_heeded: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # parameters by reading
_hook = None


def _heed_steps(own):
    """Of a step that changes what is read the reading is told before it begins."""
    global _hook
    _heeded[own.reading] = {id(held.owner) for held in own.tensors.values()}
    if _hook is None:
        _hook = register_optimizer_step_pre_hook(_stepping)


def _stepping(optimizer, arguments, named):
    for reading, owners in list(_heeded.items()):
        if not reading.stepped:
            reading.stepped = any(
                id(each) in owners for group in optimizer.param_groups for each in group["params"]
            )


def _weakly(model, optimizer):
    """\\returns what returns both, and raises ReferenceError once one of them is gone."""
    refs = [(_Refs(each)) for each in (model, optimizer)]
    return lambda: tuple(each() for each in refs)


class _Refs:
    """A weak reference to an object, or to each in a list, which may have lists in it."""

    def __init__(self, what):
        self._many = isinstance(what, list | tuple)
        self._refs = [_ref(each) for each in (what if self._many else [what])]

    def __call__(self):
        found = [each() for each in self._refs]
        if any(one is None for one, ref in zip(found, self._refs) if ref is not _nothing):
            raise ReferenceError("the model or optimizer that was read is gone")
        return found if self._many else found[0]


def _nothing():
    return None


def _ref(what):
    if isinstance(what, list | tuple):
        return _Refs(what)
    return _nothing if what is None else weakref.ref(what)


def _is_small_buffer(held) -> bool:
    return held.kind == "buffer" and held.local.nbytes <= _AT_ONCE_BYTES
