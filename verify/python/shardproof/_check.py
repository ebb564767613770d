"""`shardproof.check`: do all ranks of a running job hold the same model, whole, and finite?

Every rank digests what it holds, in place; the digests travel in one batched gather through a
process group of our own; then every rank judges the same records by a pure function, so that all
come to the same outcome. Only where something differs do block digests, and then a few bytes,
travel too, to name the element.
"""

import collections
import contextlib
import dataclasses
import datetime
import fnmatch
import math
import warnings
import weakref

import torch
import torch.distributed as dist
from torch import nn

from . import _digest, _layout, _model

_BYTES_MAX = 1 << 16  # how little is left when bytes are fetched
_BLOCKS = 256
_LOCATED_MAX = 3
_MESSAGE_FINDINGS_MAX = 10


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong. ranks: those that differ from the majority."""

    kind: str
    tensor: str
    ranks: tuple[int, ...]
    what: str
    index: int | None = None

    def __str__(self):
        ranks = ", ".join(map(str, self.ranks))
        return f"{self.tensor} on rank{'s' if len(self.ranks) > 1 else ''} {ranks}: {self.what}"


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
    """What a check that found nothing has compared, and what it could not."""

    tensors: int
    comparisons: int
    inconclusive: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Record:
    """One tensor on one rank, as it travels."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    placements: tuple
    replica: tuple  # ranks with the same hold parts of one replica
    meta: bool
    unreadable: str
    aliases: str  # the first name that shares its memory
    misfit: str = ""  # how its memory contradicts its placement
    coverage: tuple[int, int] = (0, 0)
    digest: tuple[int, int] = (0, 0)
    nan: int = 0
    inf: int = 0
    first_non_finite: int | None = None


@_digest.on_host
def check(model: nn.Module, *, optimizer=None, ignore=(), finite=True, deadline=60.0) -> Outcome:
    """Compares the model of this rank with that of all others. Call it on every rank.

    Held against each other: names, dtypes, shapes, placements and ties; that nothing is on meta;
    that the shards of each tensor make it up exactly; that replicas are equal, bit for bit; that no
    value is NaN or Inf (unless finite=False).

    optimizer: its state is checked too, under "optimizer.<FQN>.<key>". ignore: patterns of names
    that may differ from rank to rank. deadline: seconds to wait for the slowest rank. Without a
    process group: of this process alone.
    \\raises Mismatch on all ranks alike, naming rank, tensor and index.
    \\raises RuntimeError on all ranks alike if the model of one cannot be looked at.
    \\raises TimeoutError if a rank does not come.
    """
    if not isinstance(deadline, int | float) or not 0 < deadline < math.inf:
        raise ValueError(f"shardproof.check: deadline is {deadline!r}: expected seconds above 0")
    gather = _Gather(deadline)
    tensors, cause = {}, None
    try:
        tensors = _tensors(model, optimizer, ignore)
        own = _records(tensors)
    except Exception as error:  # whatever it is, the other ranks wait to be told
        own, cause = f"{type(error).__name__}: {error}", error
    records = gather(own)
    failed = [f"rank {rank}: {record}" for rank, record in enumerate(records)
              if isinstance(record, str)]  # fmt: skip
    if failed:
        raise RuntimeError(f"shardproof.check: cannot read the model: {failed[0]}") from cause
    findings, comparisons, inconclusive = judge(records, finite)
    located = []
    for number, finding in enumerate(findings):
        if finding.kind == "differs" and number < _LOCATED_MAX:
            finding = _locate(finding, records, tensors, gather)
        located.append(finding)
    if inconclusive and gather.rank == 0:
        warnings.warn("shardproof.check: not compared: " + "; ".join(inconclusive), stacklevel=2)
    if located:
        raise Mismatch(located)
    names = {name for own in records for name in own}
    return Outcome(len(names), comparisons, tuple(inconclusive))


def _tensors(model, optimizer, ignore) -> dict[str, _model.Held]:
    of_model = _model.tensors_of(model)
    return {
        held.name: held
        for held in [*of_model, *_optimizer_tensors(of_model, optimizer)]
        if not any(fnmatch.fnmatchcase(held.name, pattern) for pattern in ignore)
    }


def _records(tensors) -> dict[str, _Record]:
    groups = _model.alias_groups(list(tensors.values()))
    first_of = {number: name for name, number in reversed(groups.items())}
    return {
        name: _record(held, first_of.get(groups.get(name), "")) for name, held in tensors.items()
    }


def _optimizer_tensors(of_model, optimizer):
    tensors = _model.optimizer_tensors(of_model, optimizer)
    return [dataclasses.replace(held, name=f"optimizer.{held.name}") for held in tensors]


class _Gather:
    """Everybody's objects to everybody, through a Gloo group that is made once.

    torch alone keeps the group: dist.destroy_process_group then ends its threads. One that ran on
    would take the interpreter down now and then, by letting go of a tensor while that finalises.
    """

    _groups: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # of a world's: by deadline

    def __init__(self, deadline):
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self._group = self._made(deadline) if self.world_size > 1 else None

    def __call__(self, own):
        if self._group is None:
            return [own]
        gathered = [None] * self.world_size
        with self._deadline_named():
            dist.all_gather_object(gathered, own, group=self._group)
        return gathered

    def _made(self, deadline):
        made = self._groups.setdefault(dist.group.WORLD, weakref.WeakValueDictionary())
        group = made.get(deadline)
        if group is None:
            timeout = datetime.timedelta(seconds=deadline)
            with self._deadline_named():
                group = made[deadline] = dist.new_group(backend="gloo", timeout=timeout)
        return group

    @contextlib.contextmanager
    def _deadline_named(self):
        try:
            yield
        except RuntimeError as error:
            raise TimeoutError(
                f"shardproof.check: rank {self.rank}: not every rank called check in time: {error}"
            ) from error


def _record(held: _model.Held, shared_with: str) -> _Record:
    common = dict(
        kind=held.kind, dtype=str(held.dtype), shape=tuple(held.shape),
        placements=tuple(held.placements), replica=_replica(held), meta=held.is_meta,
        unreadable=held.unreadable or ("partial values" if held.partial else ""),
        aliases=shared_with,
    )  # fmt: skip
    owned = _layout.element_count(held.runs)
    if held.is_meta or held.local is None or common["unreadable"]:
        return _Record(**common)
    if owned != held.local.numel():
        what = f"its placement assigns it {owned} elements, but it holds {held.local.numel()}"
        return _Record(**common, misfit=what)
    summary = _digest.digest_runs(held.local, held.runs)
    bad = summary.nan_count + summary.inf_count
    return _Record(
        **common,
        coverage=_digest.coverage(held.runs, held.local.element_size()),
        digest=summary.digest,
        nan=summary.nan_count,
        inf=summary.inf_count,
        first_non_finite=_digest.first_non_finite(held.local, held.runs) if bad else None,
    )


def _replica(held: _model.Held) -> tuple:
    """Coordinates on the mesh axes that do not cut the tensor; () if it is not distributed."""
    return tuple(
        coordinate
        for placement, coordinate in zip(held.placements, held.coordinates, strict=True)
        if not placement.kind.endswith("shard")
    )


def judge(records: list[dict[str, _Record]], finite: bool):
    """The same on every rank: a pure function of everybody's records.

    \\returns findings, number of comparisons, and what could not be compared.
    """
    findings: list[Finding] = []
    inconclusive: list[str] = []
    comparisons = 0
    for name in sorted({name for own in records for name in own}):
        held = {rank: own[name] for rank, own in enumerate(records) if name in own}
        absent = tuple(
            rank for rank, own in enumerate(records)
            if rank not in held and not _needs_no_state(name, own)
        )  # fmt: skip
        comparisons += len(records)
        if absent:
            findings.append(Finding("absent", name, absent, "there is no such tensor"))
            continue
        unlike = _unlike(held, lambda record: (record.kind, record.dtype, record.shape,
                                               record.placements))  # fmt: skip
        if unlike:
            ranks, seen, common = unlike
            what = f"it is {_text(seen)}, on the other ranks {_text(common)}"
            findings.append(Finding("unlike", name, ranks, what))
            continue
        tied = {rank: record for rank, record in held.items() if record.aliases}
        unlike = _unlike(tied, lambda record: record.aliases) if tied else None
        if unlike:
            ranks, seen, common = unlike
            what = f"it shares memory with {seen}, on the other ranks with {common}"
            findings.append(Finding("untied", name, ranks, what))
        meta = tuple(rank for rank, record in held.items() if record.meta)
        if meta:
            findings.append(Finding("meta", name, meta, "it is still on the meta device"))
            continue
        misfits = [rank for rank, record in held.items() if record.misfit]
        if misfits:
            what = held[misfits[0]].misfit
            findings.append(Finding("misfit", name, tuple(misfits), what))
            continue
        unreadable = sorted({record.unreadable for record in held.values() if record.unreadable})
        if unreadable:
            inconclusive.append(f"{name} ({', '.join(unreadable)})")
            continue
        found, made = _judge_values(name, held, finite)
        findings += found
        comparisons += made
    return findings, comparisons, inconclusive


def _needs_no_state(name: str, own: dict[str, _Record]) -> bool:
    """Whether this is optimizer state of a parameter of which the rank holds no element."""
    parameter = own.get(name.removeprefix("optimizer.").rpartition(".")[0])
    return name.startswith("optimizer.") and parameter is not None and parameter.coverage == (0, 0)


def _unlike(held, key):
    """(ranks that differ from the majority, the first one's key, the majority's) or None."""
    counted = collections.Counter(key(record) for record in held.values())
    if len(counted) == 1:
        return None
    common = counted.most_common(1)[0][0]
    ranks = tuple(rank for rank, record in held.items() if key(record) != common)
    return ranks, key(held[ranks[0]]), common


def _text(key) -> str:
    kind, dtype, shape, placements = key
    where = ", ".join(
        placement.kind + (f"({placement.dim})" if placement.kind == "shard" else "")
        for placement in placements
    )
    return f"a {kind} {dtype} {list(shape)}" + (f" [{where}]" if where else "")


def _judge_values(name, held, finite):
    findings = []
    comparisons = 0
    first = next(iter(held.values()))
    element_bytes = getattr(torch, first.dtype.removeprefix("torch.")).itemsize
    whole = _digest.coverage(_layout.local_runs(first.shape), element_bytes)
    replicas = collections.defaultdict(list)
    cut = any(placement.kind.endswith("shard") for placement in first.placements)
    for rank, record in held.items():
        replicas[record.replica if cut else rank].append(rank)
    digests = {}
    for replica, ranks in replicas.items():
        comparisons += 1
        if _total(held[rank].coverage for rank in ranks) != whole:
            what = "the shards of these ranks do not tile the tensor: there is a gap or an overlap"
            findings.append(Finding("incomplete", name, tuple(ranks), what))
        else:
            digests[replica] = _total(held[rank].digest for rank in ranks)
    if len(digests) > 1:
        comparisons += len(digests) - 1
        common = collections.Counter(digests.values()).most_common(1)[0][0]
        odd = tuple(
            rank for replica, digest in digests.items() if digest != common
            for rank in replicas[replica]
        )  # fmt: skip
        if odd:
            findings.append(
                Finding("differs", name, odd, "its values differ from those on the other ranks")
            )
    if finite:
        comparisons += len(held)
        for rank, record in held.items():
            if record.nan or record.inf:
                what = f"{record.nan} NaN and {record.inf} Inf, the first at element " \
                       f"{record.first_non_finite}"  # fmt: skip
                findings.append(Finding("non-finite", name, (rank,), what, record.first_non_finite))
    return findings, comparisons


def _total(pairs):
    total = (0, 0)
    for pair in pairs:
        total = _digest.add(total, pair)
    return total


def _locate(finding, records, tensors, gather) -> Finding:
    """Names the first element that differs: every rank takes part."""
    held = tensors[finding.tensor]
    first = records[0][finding.tensor]
    size = held.local.element_size()
    begin, end = 0, math.prod(first.shape) * size
    odd = finding.ranks[0]
    peers = _replicas_of(odd, finding, records)
    while end - begin > _BYTES_MAX:
        side = -(-(end - begin) // _BLOCKS // 4096) * 4096
        low = begin // side
        count = -(-end // side) - low
        summary = _digest.digest_runs(held.local, held.runs, side, low, count)
        everybody = gather(summary.blocks)
        one, other = (sum(everybody[rank] for rank in ranks) for ranks in peers)
        differing = (one != other).any(1).nonzero()
        if not len(differing):
            return finding
        block = int(differing[0])
        begin, end = max(begin, (low + block) * side), min(end, (low + block + 1) * side)
    everybody = gather(_model.bytes_of(held, begin, end))
    sides = [_bytes_of(everybody, ranks) for ranks in peers]
    for at in range(begin, end):
        if sides[0].get(at) != sides[1].get(at):
            index = at // size
            seen, expected = (
                bytes(side.get(index * size + i, 0) for i in range(size))[::-1].hex()
                for side in sides
            )
            what = f"element {index} is 0x{seen}, on the other ranks 0x{expected}"
            return dataclasses.replace(finding, what=what, index=index)
    return finding


def _replicas_of(odd, finding, records):
    """The ranks of the replica of `odd`, and those of one that is not in the finding."""
    own = records[odd][finding.tensor]
    cut = any(placement.kind.endswith("shard") for placement in own.placements)
    if not cut:
        other = next(rank for rank in range(len(records)) if rank not in finding.ranks)
        return [odd], [other]
    by_replica = collections.defaultdict(list)
    for rank, record in enumerate(records):
        by_replica[record[finding.tensor].replica].append(rank)
    other = next(ranks for ranks in by_replica.values() if ranks[0] not in finding.ranks)
    return by_replica[own.replica], other


def _bytes_of(everybody, ranks) -> dict[int, int]:
    return {
        start + i: byte
        for rank in ranks
        for start, data in everybody[rank]
        for i, byte in enumerate(data)
    }
