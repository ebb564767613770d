"""`shardproof.digests`: what a model is now, to be held against its checkpoint once that is
written."""

import dataclasses

from .._against import _against
from .._digests import _called
from .._holdings._groups import Statement
from .._judging import _outcome, _own
from .._judging._transport import Transport
from .._judging._verdict import Verdict


class Digests:
    """One rank's digests of what it held; none of the memory. Made by `digests`."""

    def __init__(self, tensors, records, error):
        owners: dict[int, object] = {}
        self._tensors = {
            name: dataclasses.replace(
                held, local=None, owner=owners.setdefault(id(held.owner), object())
            )
            for name, held in tensors.items()
        }
        self._records = records
        self._error = error

    @_called.by_job
    def check(self, against, *, prefix=None, strict=False, deadline=60.0) -> "_outcome.Outcome":
        """Holds them against a checkpoint that is complete by now. Call it on every rank.

        As `check(..., against=...)`, but that ranks are not held against each other, and that the
        element that differs cannot be named.
        """
        transport = Transport(deadline)
        if failed := transport.reasons(self._error):
            rank, why = min(failed.items())
            raise RuntimeError(f"shardproof.check: cannot read the model: rank {rank}: {why}")
        held = _against.hold(
            _against.Source(against, prefix), self._tensors, self._records, transport
        )
        verdict = Verdict(len(self._tensors))
        verdict.join(held.verdict)
        inconclusive = _outcome.conclude(verdict, strict, transport, dict)
        return _outcome.Outcome(
            verdict.tensors, verdict.comparisons, inconclusive, checkpoint=held.said
        )


@_called.by_job
def digests(
    model, *, optimizer=None, ignore=(), group=None, groups=None, mesh=None, layout=None
) -> Digests:
    """Digests what this rank holds, for a save that begins now and ends later. Makes no collective.

    model, optimizer, ignore, group, groups, mesh, layout: as of `check`. What is wrong with them is
    told by `Digests.check`, on all ranks alike.
    """
    try:
        said = Statement(group, groups, mesh, layout, claims=not isinstance(model, list | tuple))
        tensors = _own.tensors_of(model, optimizer, ignore, said)
        return Digests(tensors, _own.records_of(tensors, False), "")
    except Exception as error:  # whatever it is, the other ranks wait to be told
        return Digests({}, {}, f"{type(error).__name__}: {error}")
