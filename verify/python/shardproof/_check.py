"""`shardproof.check`: do all ranks of a running job hold the same model, whole, and finite?

Every rank digests what it holds, in place; the digests travel in one batched gather through a
process group of our own; then every rank judges the same records by a pure function, so that all
come to the same outcome. Only where something differs do block digests, and then a few bytes,
travel too, to name the element.
"""

import dataclasses
import fnmatch
import math
import warnings

from . import _digest, _layout, _model, _optimizer
from ._gather import Gather
from ._groups import Groups, Statement
from ._holding import Holding, alias_groups
from ._judge import Finding, Record, judge
from ._locate import locate

_LOCATED_MAX = 3
_MESSAGE_FINDINGS_MAX = 10


class Mismatch(AssertionError):
    """Raised on every rank alike. findings: list of Finding."""

    def __init__(self, findings):
        self.findings = findings
        lines = [str(finding) for finding in findings[:_MESSAGE_FINDINGS_MAX]]
        if len(findings) > len(lines):
            lines.append(f"and {len(findings) - len(lines)} more")
        super().__init__("shardproof.check: " + "\n  ".join(lines))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check that found nothing has compared, and what it could not: a line a reason."""

    tensors: int
    comparisons: int
    inconclusive: tuple[str, ...]


@_digest.on_host
def check(
    model, *, optimizer=None, ignore=(), finite=True, deadline=60.0,
    group=None, groups=None, mesh=None, layout=None, strict=False,
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
    \\raises Mismatch on all ranks alike, naming rank, tensor and index.
    \\raises RuntimeError on all ranks alike if the model of one cannot be looked at.
    \\raises TimeoutError if a rank does not come.
    """
    if not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
        raise ValueError(f"shardproof.check: deadline is {deadline!r}: expected seconds above 0")
    gather = Gather(deadline)
    tensors, cause = {}, None
    try:
        # Of several chunks nobody said that other ranks have them too.
        said = Statement(group, groups, mesh, layout, claims=not isinstance(model, list | tuple))
        tensors = _tensors(model, optimizer, ignore, said)
        own = _records(tensors, finite), said.unused()
    except Exception as error:  # whatever it is, the other ranks wait to be told
        own, cause = f"{type(error).__name__}: {error}", error
    everybody = gather(own)
    failed = [f"rank {rank}: {own}" for rank, own in enumerate(everybody) if isinstance(own, str)]
    if failed:
        raise RuntimeError(f"shardproof.check: cannot read the model: {failed[0]}") from cause
    records = [own for own, _ in everybody]
    unused = set.intersection(*(set(unused) for _, unused in everybody))
    if unused:
        raise RuntimeError(
            f"shardproof.check: groups or layout: no tensor of any rank is named {min(unused)!r}"
        )
    judgement = judge(records)
    inconclusive = tuple(_lines(judgement.uncompared))
    findings = judgement.findings
    located = [
        locate(finding, records, tensors, gather)
        if finding.kind == "differs" and number < _LOCATED_MAX
        else finding
        for number, finding in enumerate(findings)
    ]
    if strict:
        located += [
            Finding("uncompared", names[0], (), f"it was not compared: {reason}")
            for reason, names in judgement.uncompared.items()
        ]
    elif inconclusive and gather.rank == 0:
        warnings.warn("shardproof.check: not compared: " + "; ".join(inconclusive), stacklevel=2)
    if located:
        raise Mismatch(located)
    names = {name for own in records for name in own}
    return Outcome(len(names), judgement.comparisons, inconclusive)


def _lines(uncompared):
    for reason, names in uncompared.items():
        rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{rest} ({reason})"


def _tensors(model, optimizer, ignore, said) -> dict[str, Holding]:
    read = _model.read(model, said)
    of_optimizer = _optimizer.optimizer_tensors(read, optimizer, said.rank)
    state = [dataclasses.replace(held, name=f"optimizer.{held.name}") for held in of_optimizer]
    return {
        held.name: held
        for held in [*read.tensors, *state]
        if not any(fnmatch.fnmatchcase(held.name, pattern) for pattern in ignore)
    }


def _records(tensors, finite) -> dict[str, Record]:
    groups = alias_groups(list(tensors.values()))
    first_of = {number: name for name, number in reversed(groups.items())}
    # One object for the same groups: they travel once, not with every tensor.
    known: dict[Groups | None, Groups | None] = {}
    for held in tensors.values():
        held.groups = known.setdefault(held.groups, held.groups)
    return {
        name: _record(held, first_of.get(groups.get(name), ""), finite)
        for name, held in tensors.items()
    }


def _record(held: Holding, shared_with: str, finite) -> Record:
    common = dict(
        kind=held.kind, dtype=str(held.dtype), shape=tuple(held.shape),
        placements=tuple(held.placements), groups=held.groups, meta=held.is_meta,
        unreadable=held.unreadable or ("partial values" if held.partial else ""),
        aliases=shared_with, unique=held.unique,
        numbers=held.is_of_numbers(finite), misfit=held.misfit,
    )  # fmt: skip
    if held.is_meta or held.local is None or common["unreadable"]:
        return Record(**common)
    owned = _layout.element_count(held.runs)
    if owned != held.local.numel():
        what = f"its placement assigns it {owned} elements, but it holds {held.local.numel()}"
        return Record(**{**common, "misfit": common["misfit"] or what})
    summary = _digest.digest_runs(held.local, held.runs)
    bad = common["numbers"] and summary.nan_count + summary.inf_count
    return Record(
        **common,
        coverage=_digest.coverage(held.runs, held.local.element_size()),
        digest=summary.digest,
        nan=summary.nan_count,
        inf=summary.inf_count,
        first_non_finite=_digest.first_non_finite(held.local, held.runs) if bad else None,
    )
