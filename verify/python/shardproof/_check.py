"""`shardproof.check`: do all ranks of a running job hold the same model, whole, and finite?

Every rank digests what it holds, in place. What it says of each tensor travels to the rank that
judges the tensor's name, by a pure function; the verdicts travel back, so that all ranks come to
the same outcome. What a rank sends and keeps grows with its own tensors. Only where something
differs do block digests, and then a few bytes, travel too, to name the element.
"""

import dataclasses
import time
import warnings

from . import _against, _digest, _places
from ._finding import Finding, Fold, fold
from ._groups import Statement
from ._locate import locate
from ._own import records_of, tensors_of
from ._transport import Transport
from ._turns import Turns, refuse_nonsense
from ._verdict import of_share, settled, to_locate

_MESSAGE_FOLDS_MAX = 10


class Mismatch(AssertionError):
    """Raised on every rank alike. findings: list of Finding, the first ones; count: how many there
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


@_digest.on_host
def check(
    model, *, optimizer=None, ignore=(), finite=True, deadline=60.0,
    group=None, groups=None, mesh=None, layout=None, strict=False, every=1, budget_s=None,
    against=None, prefix=None,
) -> Outcome:  # fmt: skip
    """Compares the model of this rank with that of all others. Call it on every rank.

    model: an nn.Module, or the list of those that a stage of a pipeline has. Held against each
    other: names, dtypes, shapes, placements and ties; that nothing is on meta; that the shards of
    each tensor make it up exactly; that replicas are equal, bit for bit; that no value is NaN or
    Inf.

    Whose tensors are held against whose: a DTensor's over its own mesh, FSDP's and DDP's over their
    process group. Any other tensor is taken to be the same on all ranks, unless one of these says
    otherwise:
    group: a process group, or ranks, that have the same. groups: the same by pattern of names.
    mesh: the axes of the job, a DeviceMesh or {axis: the groups of ranks along it}. Along "pp"
    names differ; a name that two stages have is one tensor. layout: by pattern of names {axis:
    Shard(dim)}, or "local" for what each rank has of its own. What Megatron's layers say of their
    parameters is taken along the axis "tp". Of a list of models nothing is taken for granted.

    optimizer: one or a list; its state is checked too, under "optimizer.<FQN>.<key>". ignore:
    patterns of names that may differ from rank to rank. finite: False where values need not be
    finite, or {pattern: False}. deadline: seconds to wait for the slowest rank. strict: what could
    not be compared is a finding too. Without a process group: of this process alone.

    every: of the calls for this model the first one looks, and each every-th after it; the others
    return at once. budget_s: seconds that a rank may spend on what it has itself. A call looks at
    as many tensors as that allows, the same ones on all ranks, and the next one goes on there. Both
    are to be the same on all ranks.

    against: the path of a checkpoint, or of a seal, that must hold the same values, dtypes and
    shapes; prefix: of the model's names in it, if it is not the one under which most match.
    \\raises Mismatch on all ranks alike, naming rank, tensor and index.
    \\raises RuntimeError on all ranks alike if the model of one cannot be looked at.
    \\raises TimeoutError if a rank does not come.
    """
    refuse_nonsense(deadline, every, budget_s)
    turns = Turns.of(model)
    if not turns.is_due(every):
        return Outcome(0, 0, (), looked=False)
    transport = Transport(deadline)
    try:
        wanted = turns.window(transport) if budget_s else lambda name: True
        begin = time.perf_counter()
        messages, reading = _read(transport, lambda: _Own(
            # Of several chunks nobody said that other ranks have them too.
            Statement(group, groups, mesh, layout, claims=not isinstance(model, list | tuple)),
            model, optimizer, ignore, finite, wanted,
        ))  # fmt: skip
        verdict = _judged(transport, messages, reading, time.perf_counter() - begin)
        if budget_s:
            turns.took(verdict.slowest, budget_s)
        disk = _against.hold(against, reading.tensors, reading.records, transport, prefix)
        return _outcome(transport, verdict, reading, strict, disk)
    except Mismatch:
        raise
    except BaseException:
        transport.forget()
        raise


class _Own:
    """What this rank has."""

    def __init__(self, said, model, optimizer, ignore, finite, wanted):
        self.axes = said.axes
        self.tensors = tensors_of(model, optimizer, ignore, said)
        self.records = records_of(self.tensors, finite, wanted)
        self.unused = said.unused()


def _read(transport, read):
    """\\returns (messages, what this rank has), or (None, why it cannot be read): the other ranks
    wait to be told, whatever it is."""
    try:
        own = read()
        return transport.sender.messages(own.records, own.unused, len(own.tensors)), own
    except Exception as error:
        return None, error


def _judged(transport, messages, own, seconds):
    """\\returns the Verdict of all ranks."""
    received = transport.exchange(messages)
    if received is None:
        _fail(transport, "cannot read the model", own if messages is None else None)
    share, cause = None, None
    try:
        share = of_share(received, transport.receiver.read)
    except Exception as error:
        cause = error
    verdict = settled(share, transport, seconds)
    if verdict is None:
        _fail(transport, "cannot judge", cause)
    if verdict.unheard:
        raise RuntimeError(
            "shardproof.check: groups or layout: no tensor of any rank is named "
            f"{min(verdict.unheard)!r}"
        )
    return verdict


def conclude(verdict, strict, transport, places) -> tuple[str, ...]:
    """places: asked for where something is wrong. \\returns what could not be compared.

    \\raises Mismatch if something is wrong.
    """
    inconclusive = tuple(_lines(verdict.uncompared))
    if strict:
        verdict.count += len(verdict.uncompared)
        verdict.folds += fold(
            Finding("uncompared", name, (), f"it was not compared: {reason}")
            for reason, (_, name) in verdict.uncompared.items()
        )
    elif inconclusive and transport.rank == 0:
        warnings.warn("shardproof.check: not compared: " + "; ".join(inconclusive), stacklevel=5)
    if verdict.folds:
        raise Mismatch(verdict.folds, verdict.count, places())
    return inconclusive


def _outcome(transport, verdict, own, strict, disk) -> Outcome:
    for one in to_locate(verdict.folds):
        one.findings[0] = locate(one.findings[0], own.tensors, transport)
    disk.add_to(verdict)

    def places():
        own_place = _places.packed(_places.own_place(own.tensors.values(), own.axes))
        return dict(enumerate(map(_places.unpacked, transport.short(own_place))))

    inconclusive = conclude(verdict, strict, transport, places)
    return Outcome(
        verdict.tensors, verdict.comparisons, inconclusive, len(own.records), len(own.tensors),
        checkpoint=disk.said,
    )  # fmt: skip


def _fail(transport, what, cause):
    """On all ranks alike, for the first rank that says why."""
    reasons = transport.reasons(f"{type(cause).__name__}: {cause}" if cause else "")
    rank, reason = min(reasons.items())
    raise RuntimeError(f"shardproof.check: {what}: rank {rank}: {reason}") from cause


def _line(one: Fold, places) -> str:
    shared = _places.shared_by(one.ranks, places)
    return f"{one}" + (f" (these are the ranks of {shared})" if shared else "")


def _lines(uncompared):
    for reason, (number, name) in uncompared.items():
        rest = f" and {number - 1} more" if number > 1 else ""
        yield f"{name}{rest} ({reason})"
