"""How a check looks at the ranks: each reads what it has, what it says of it travels to the ranks
that judge, and the verdicts travel back."""

import contextlib
import dataclasses
import time
from collections.abc import Callable

from .._against import _against
from .._holdings._groups import Statement
from .._holdings._options import count_of
from .._judging import _places
from .._judging._locate import locate
from .._judging._outcome import Mismatch, Outcome, conclude
from .._judging._own import Reading, tensors_of
from .._judging._transport import Transport
from .._judging._verdict import of_share, settled, to_locate
from .._stored._manifest import Manifest
from . import _again
from ._turns import Turns

_ASKED = (
    ("against=", ("not given", "a checkpoint", "a manifest")),
    ("map=", ("not given", "given")),
    ("budget_s=", ("not given", "given")),
)


@dataclasses.dataclass
class Asked:
    """What `check` was called with. subject: returns model and optimizer. said: group, groups, mesh
    and layout."""

    subject: Callable[[], tuple]
    ignore: object
    finite: object
    deadline: float
    strict: bool
    budget_s: float | None
    against: _against.Source
    said: tuple

    def own(self, wanted) -> "Own":
        model, optimizer = self.subject()
        # Of several chunks nobody said that other ranks have them too.
        statement = Statement(*self.said, claims=not isinstance(model, list | tuple))
        return Own(statement, model, optimizer, self.ignore, self.finite, wanted)


def look(asked: Asked, turns: Turns) -> Outcome:
    """All of a check, within the call. turns: of the model."""

    transport = Transport(asked.deadline)
    source = asked.against
    source.synced, source.in_turns = turns.synced, asked.budget_s is not None
    with forgetting(transport):
        _refuse_unlike(asked, transport)
        if (outcome := _again.outcome_of(asked, turns, transport)) is not None:
            return outcome
        wanted = turns.window(transport) if asked.budget_s else lambda name: True
        begin = time.perf_counter()
        own = _own(asked, wanted, transport) if source.map is not None else None
        opened = own and _against.open_source(source, own.tensors, transport)

        def read():
            found = own or asked.own(wanted)
            if opened:
                found.reading.leave(opened.followed(found.tensors))
            found.reading.read()
            return found

        messages, own = sent(transport, read)
        heard: list[dict] | None = None if source.path is None else []
        verdict = judged(transport, messages, own, time.perf_counter() - begin, heard)
        if asked.budget_s:
            turns.took(verdict.slowest, asked.budget_s)
        disk = _against.hold(source, own.tensors, own.records, transport, opened, heard)
        outcome = _outcome(transport, verdict, own, asked.strict, disk)
        _again.keep(asked, turns, transport, own, heard, outcome, verdict, disk)
        return outcome


def _refuse_unlike(asked: Asked, transport):
    """Ranks that were asked for other things would wait for each other.

    \\raises RuntimeError on all ranks alike.
    """
    source = asked.against
    kind = 0 if source.path is None else 2 if isinstance(source.path, Manifest) else 1
    own = [kind, int(source.map is not None), int(asked.budget_s is not None)]
    first, *others = transport.everybody(own)
    for rank, each in enumerate(others, 1):
        for (option, words), here, there in zip(_ASKED, each, first, strict=True):
            if here != there:
                raise RuntimeError(
                    f"shardproof.check: {option} is {words[here]} on rank {rank} and {words[there]}"
                    " on rank 0: pass the same on all ranks"
                )


def _own(asked: Asked, wanted, transport) -> "Own":
    """What this rank has, its values unread. \\raises RuntimeError on all ranks alike."""
    own, cause = None, None
    try:
        own = asked.own(wanted)
    except Exception as error:  # whatever it is, the other ranks wait to be told
        cause = error
    transport.agree("cannot read the model", cause)
    return own


@contextlib.contextmanager
def forgetting(transport):
    """What it has told the others may not have come, if anything but a verdict ends the check."""
    try:
        yield
    except Mismatch:
        raise
    except BaseException:
        transport.forget()
        raise


class Own:
    """What this rank has; its values are still to be read."""

    def __init__(self, said, model, optimizer, ignore, finite, wanted):
        self.tensors = tensors_of(model, optimizer, ignore, said, counters=True)
        self.axes = said.axes  # those that a framework knows, too: they are asked for meanwhile
        self.reading = Reading(self.tensors, finite, wanted)
        self.records = self.reading.records
        self.unused = said.unused()

    def counts(self) -> tuple[int, int]:
        """How many tensors were looked at, of how many that there are."""
        return count_of(self.records.values()), count_of(self.tensors.values())


def sent(transport, read):
    """\\returns (messages, what this rank has), or (None, why it cannot be read): the other ranks
    wait to be told, whatever it is."""
    try:
        own = read()
        return transport.sender.messages(own.records, own.unused, len(own.tensors)), own
    except Exception as error:
        return None, error


def judged(transport, messages, own, seconds, heard=None):
    """heard: a list, to which each rank's records of what this one judges are added. \\returns the
    Verdict of all ranks."""
    received = transport.exchange(messages)
    if received is None:
        transport.fail("cannot read the model", own if messages is None else None)
    share, cause = None, None
    try:
        share = of_share(received, transport.receiver.read, heard)
    except Exception as error:
        cause = error
    verdict = settled(share, transport, seconds)
    if verdict is None:
        transport.fail("cannot judge", cause)
    if verdict.unheard:
        raise RuntimeError(
            "shardproof.check: groups or layout: no tensor of any rank is named "
            f"{min(verdict.unheard)!r}"
        )
    return verdict


def _outcome(transport, verdict, own, strict, disk) -> Outcome:
    for one in to_locate(verdict.folds):
        one.findings[0] = locate(one.findings[0], own.tensors, transport)
    verdict.join(disk.verdict)

    def places():
        own_place = _places.packed(_places.own_place(own.tensors.values(), own.axes))
        return dict(enumerate(map(_places.unpacked, transport.short(own_place))))

    inconclusive = conclude(verdict, strict, transport, places)
    return Outcome(
        verdict.tensors, verdict.comparisons, inconclusive, *own.counts(), checkpoint=disk.said,
    )  # fmt: skip
