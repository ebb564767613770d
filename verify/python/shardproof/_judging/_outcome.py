"""What a check comes to: an outcome, or the error that all ranks raise alike."""

import dataclasses
import sys
import warnings

from .._package import is_ours
from .._printable import printable
from . import _places
from ._finding import Finding, Fold, fold

_MESSAGE_FOLDS_MAX = 10


class Mismatch(AssertionError):
    """Raised on every rank alike. findings: the first Findings, as a list; count: how many there
    are. folds: those of one cause together."""

    def __init__(self, folds: list[Fold], count=None, places=None, what="check"):
        self.folds, self._places, self._what = folds, places or {}, what
        self.findings = sorted(
            (finding for one in folds for finding in one.findings), key=lambda each: each.tensor
        )
        self.count = sum(one.count for one in folds) if count is None else count
        lines = [_line(one, self._places) for one in folds[:_MESSAGE_FOLDS_MAX]]
        if rest := self.count - sum(one.count for one in folds[:_MESSAGE_FOLDS_MAX]):
            lines.append(f"and {rest} more")
        named = sorted({rank for one in folds[:_MESSAGE_FOLDS_MAX] for rank in one.ranks})
        if where := _places.told(named, self._places):
            lines.append(where)
        super().__init__(f"shardproof.{what}: " + "\n  ".join(lines))

    def __reduce__(self):
        return Mismatch, (self.folds, self.count, self._places, self._what)


Mismatch.__module__ = "shardproof"  # which has it for its callers; tracebacks show this name


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check that found nothing has compared, and what it could not: a line a reason.

    tensors: of the job, that were looked at. looked_at: those of them that this rank has, of the
    `held` that it has: fewer with a budget. looked: False where `every` passed over this call.
    checkpoint: with what on disk, and under which names there, if with any.
    """

    tensors: int
    comparisons: int
    inconclusive: tuple[str, ...]
    looked_at: int = 0
    held: int = 0
    looked: bool = True
    checkpoint: str = ""


def conclude(verdict, strict, transport, places) -> tuple[str, ...]:
    """places: asked for where something is wrong. \\returns what could not be compared.

    \\raises Mismatch if something is wrong.
    """
    inconclusive, mismatch = tuple(_lines(verdict.uncompared)), None
    if strict:
        verdict.count += len(verdict.uncompared)
        verdict.folds += fold(
            Finding("uncompared", name, (), f"it was not compared: {reason}")
            for reason, (_, name) in verdict.uncompared.items()
        )
    if verdict.folds:  # the other ranks wait in places(): nothing may be raised before
        mismatch = Mismatch(verdict.folds, verdict.count, places())
    if inconclusive and not strict and transport.rank == 0:
        text = "shardproof.check: not compared: " + "; ".join(inconclusive)
        try:
            warnings.warn(text, stacklevel=_depth_of_caller())
        except Warning:  # where warnings are errors
            if mismatch is None:
                raise
    if mismatch is not None:
        raise mismatch
    return inconclusive


def _depth_of_caller() -> int:
    """For warnings.warn: how far above is the line that called us."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back and is_ours(frame.f_code.co_filename):
        frame, depth = frame.f_back, depth + 1
    return depth


def _line(one: Fold, places) -> str:
    shared = _places.shared_by(one.ranks, places)
    return f"{one}" + (f" (these are the ranks of {shared})" if shared else "")


def _lines(uncompared):
    for reason, (number, name) in uncompared.items():
        rest = f" and {number - 1} more" if number > 1 else ""
        yield printable(f"{name}{rest} ({reason})")
