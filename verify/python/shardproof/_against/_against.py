"""What a live model holds, against what a checkpoint of it has on disk.

Each rank reads the bytes that it holds itself, and digests them as it did its memory. The ranks
then tell each other what they found, so that all come to the same outcome. Of replicas one reads:
that they are equal is what the rest of `check` is about.
"""

import dataclasses
import os
import zlib

import torch

from .._digests import _digest
from .._holdings import _layout
from .._holdings._holding import Holding
from .._holdings._layout import Run
from .._holdings._record import Record, judge_of
from .._judging import _whole
from .._judging._finding import Finding, fold
from .._judging._judge import Judgement
from .._judging._verdict import Verdict, settled
from .._stored import _checkpoint, _key_names
from .._stored._checkpoint import Checkpoint, Stored, Unreadable
from .._stored._manifest import Manifest
from .._stored._read import read_runs
from .._syncs import _synced
from . import _map_plan, _mapped, _misplaced, _ranges
from ._paired import STATE_PREFIX, Names

_REASONS_MAX = 3  # why nothing was compared
_LOCATED_MAX = 3  # of a rank's tensors that differ: whose bytes are read again
EXTRA = "in the checkpoint, and not in what was given"


@dataclasses.dataclass
class Held:
    """What all ranks found. said: what was compared with what, a line. compared: with a
    manifest."""

    verdict: Verdict = dataclasses.field(default_factory=Verdict)
    said: str = ""
    compared: "Compared | None" = None


@dataclasses.dataclass
class Compared:
    """own: what this rank has of a manifest's tensors. held: of each rank the records of the names
    that this one judges; parts: those that were held against the manifest, which has them under
    `names`. absent: names of the manifest of which no rank has anything, and that are equal to one
    that a rank has."""

    own: _mapped.Mapped
    held: list[dict[str, Record]]
    parts: dict[str, dict[int, _whole.Part]]
    names: Names
    absent: list[str]


@dataclasses.dataclass
class _Report:
    """What one rank found. findings: (ranks, what, index) by name; left: reasons by name; padding:
    findings that say nothing of the values that are compared."""

    compared: int = 0
    findings: dict[str, list[tuple]] = dataclasses.field(default_factory=dict)
    left: dict[str, str] = dataclasses.field(default_factory=dict)
    padding: dict[str, list[tuple]] = dataclasses.field(default_factory=dict)

    def by_name(self) -> dict[str, tuple]:
        names = {*self.findings, *self.left, *self.padding}
        return {
            name: (self.findings.get(name, []), self.left.get(name), self.padding.get(name, []))
            for name in names
        }


@dataclasses.dataclass
class Source:
    """What a model is held against: a path, or a manifest; None: nothing. prefix: of the model's
    names in it; None: the one under which most match. map, config: how its tensors become those of
    the model, and where sizes in that come from. synced: what the model was compared with before.
    in_turns: each call looks at some of the tensors, so that of others nothing is said.
    """

    path: object = None
    prefix: str | None = None
    map: object = None
    config: object = None
    synced: _synced.Synced = dataclasses.field(default_factory=_synced.Synced)
    in_turns: bool = False

    @property
    def kind(self) -> str:
        return "manifest" if isinstance(self.path, Manifest) else "checkpoint"


@dataclasses.dataclass
class Opened:
    """The checkpoint of a Source, and how its tensors become the model's, if a map says so."""

    checkpoint: Checkpoint
    plan: _map_plan.Plan | None = None

    def left_names(self, prefix) -> set[str]:
        """Names of the checkpoint of which the map compares nothing."""
        return {prefix + name for name in self.plan.left_names()}

    def followed(self, tensors: dict[str, Holding]) -> list[str]:
        """Of which no digest of their own is needed: all that is in them is held against a seal."""
        sealed = all(each.digest is not None for each in self.checkpoint.tensors.values())
        if self.plan is None or not sealed:
            return []
        return [name for name, held in tensors.items() if self.plan.follows(name, held.shape)]


def open_source(source: Source, tensors: dict[str, Holding], transport) -> Opened:
    """Every rank calls it. \\raises RuntimeError on all ranks alike."""
    checkpoint, cause = None, None
    try:
        checkpoint = _checkpoint.open_stored(source.path)
        if transport.rank == 0:
            checkpoint.check_complete()
    except Exception as error:  # whatever it is, the other ranks wait to be told
        cause = _told(error, source.path)
    _raise_first(transport, cause, source)
    _refuse_other_manifest(source, transport)
    if source.map is None:
        return Opened(checkpoint)
    described = {
        name: (str(held.dtype), tuple(held.shape)) for name, held in tensors.items()
        if not name.startswith(STATE_PREFIX)
    }  # fmt: skip
    plan = _map_plan.plan_of(
        source.map, source.config, checkpoint, source.prefix or "", described, transport
    )
    return Opened(checkpoint, plan)


def hold(
    source: Source, tensors: dict[str, Holding], records: dict[str, Record], transport, opened=None,
    heard=None,
) -> Held:  # fmt: skip
    """Every rank calls it. tensors, records: of this rank, by name; what has no record is not held
    against the checkpoint. opened: what `open_source` returned, if that was called before. heard:
    each rank's records of the names that this one judges, if they were sent already.

    What a rank finds of a name travels to the rank that judges the name, and the verdicts travel
    back, as those of `check` do.
    \\raises RuntimeError on all ranks alike if one cannot read the checkpoint, or nothing of it
    could be compared.
    """
    path, prefix, cause = source.path, source.prefix, None
    if path is None:
        return Held()
    tensors = {name: tensors[name] for name in records if not tensors[name].is_counter}
    is_heard = _is_heard(heard, source, len(tensors) == len(records), transport)
    records = {name: records[name] for name in tensors}
    opened = opened or open_source(source, tensors, transport)
    checkpoint = opened.checkpoint
    found = _mapped.Mapped(tensors, records)
    of_model = tensors
    if opened.plan is not None:
        prefix = prefix or ""
        found = _under_map(opened, prefix, found, transport)
        tensors, records = found.tensors, found.records
    held = heard if is_heard else transport.records_to_judges(records)
    try:
        names = Names(checkpoint, tensors, prefix, held, transport)
    except _key_names.Ambiguous as error:  # of all ranks' names, so that all are told it
        raise RuntimeError(f"shardproof.check: cannot read the {source.kind}: {error}") from error
    report = share = None
    try:
        report = _look(source, checkpoint, tensors, records, names.pairs, transport.rank)
        report.findings |= found.findings
        report.left |= found.left
        report.padding = found.padding
    except Exception as error:
        cause = _told(error, path)
    received = transport.to_judges(report and report.by_name())
    if received is None:
        _raise_first(transport, cause, source)
    try:
        parts = _parts(held, received, names)
        left = opened.left_names(prefix) if opened.plan is not None else set()
        share = _judged(received, parts, names, source, transport, left)
        share.comparisons += report.compared
    except Exception as error:
        cause = error
    verdict = settled(share, transport)
    if verdict is None:
        transport.fail("cannot judge", cause)
    if verdict.folds:
        shapes = {name.removeprefix(prefix or ""): each.shape
                  for name, each in checkpoint.tensors.items()}  # fmt: skip
        _misplaced.explain(
            verdict.folds, names.digests_of(verdict.folds), of_model, records, opened.plan, shapes,
            transport,
        )  # fmt: skip
        _ranges.explain(verdict.folds, found, names, path, source.synced, transport)
    _refuse_nothing(verdict, source)
    if source.kind == "manifest":
        source.synced.add(path, {name: _digests(each) for name, each in parts.items()})
        excused = sorted({*names.extra} - {*names.absent()} - left)
        compared = Compared(found, held, parts, names, excused)
        return Held(verdict, f"a {checkpoint.format}{names.said}", compared)
    if names.extra:
        verdict.uncompared[EXTRA] = (len(names.extra), names.extra[0])
    return Held(verdict, f"{os.fspath(path)} ({checkpoint.format}){names.said}")


def _is_heard(heard, source: Source, all_: bool, transport) -> bool:
    """Whether what `check` judged is what is compared, on every rank. Numbers of Python's are in no
    checkpoint, and under a map other tensors are compared. all_: whether it is, but for maps."""
    is_heard = heard is not None and source.map is None and all_
    return all(same for (same,) in transport.everybody([int(is_heard)]))


def _refuse_nothing(verdict: Verdict, source: Source):
    if verdict.comparisons:
        return
    absent = _absent_from(source.kind)
    reasons = [f"{name} ({why})" for why, (_, name) in verdict.uncompared.items() if why != absent]
    said = "; ".join(reasons[:_REASONS_MAX]) or "no tensor of the model is in it"
    raise RuntimeError(f"shardproof.check: nothing was compared with {source.path}: {said}")


def _absent_from(kind: str) -> str:
    return f"not in the {kind}"


def _refuse_other_manifest(source: Source, transport):
    """All ranks are to be given the same manifest, and none that is older than the last one."""
    cause, number = None, -1
    if isinstance(source.path, Manifest):
        number = int(source.path.digest[:15], 16)
        newest = source.synced.newest_version()
        version = source.path.version
        if newest is not None and version is not None and version < newest:
            cause = Unreadable(
                f"its version is {version}, and the model was compared with version {newest} before"
            )
    said = transport.everybody([number])
    if cause is None and any(other != said[0] for other in said):
        cause = Unreadable(f"it is not the manifest that rank 0 was given: {source.path!r}")
        cause = cause if [number] != said[0] else None
    _raise_first(transport, cause, source, "use")


def _under_map(opened: Opened, prefix, own: _mapped.Mapped, transport) -> _mapped.Mapped:
    """The tensors of the checkpoint as this rank holds them. Names that the map makes for tensors
    that the model has twice become the checkpoint's."""
    checkpoint, plan = opened.checkpoint, opened.plan
    shapes = {
        name.removeprefix(prefix): each.shape
        for name, each in checkpoint.tensors.items()
        if name.startswith(prefix)
    }
    for name, theirs in _mapped.aliases(plan, shapes).items():
        checkpoint.tensors[prefix + name] = checkpoint.tensors[prefix + theirs]
        shapes[name] = shapes[theirs]
    cause = None
    try:
        found = _mapped.mapped(plan, shapes, own.tensors, own.records, transport.rank)
    except Exception as error:  # whatever it is, the other ranks wait to be told
        cause = error
    transport.agree("cannot use the map", cause)
    return found


def _told(error: Exception, path) -> Exception:
    """An error whose text is the line to tell."""
    if isinstance(error, Unreadable | _key_names.Ambiguous):
        return error
    told = Unreadable(f"{path}: {type(error).__name__}: {error}")
    told.__cause__ = error
    return told


def _raise_first(transport, cause, source: Source, verb="read"):
    """On all ranks alike, if any has a cause."""
    reasons = transport.reasons(str(cause) if cause else "")
    if reasons:
        rank, reason = min(reasons.items())
        text = f"shardproof.check: rank {rank} cannot {verb} the {source.kind}: {reason}"
        raise RuntimeError(text) from cause


def _look(source: Source, checkpoint: Checkpoint, tensors, records, pairs, rank) -> _Report:
    report, kind = _Report(), source.kind
    tied = _tied_to_compared(tensors, records, pairs)
    for name, held in tensors.items():
        if name not in pairs and held.persistent and name not in tied:
            report.left[name] = _absent_from(kind)
    located = 0
    for name, theirs in pairs.items():
        held, stored = tensors[name], checkpoint.tensors[theirs]
        if not _is_comparable(held, stored, records[name], report, rank, kind):
            continue
        ranks = _readers(held, rank)
        if stored.digest is not None:
            report.compared += 1
        elif ranks[zlib.crc32(name.encode()) % len(ranks)] == rank:
            report.compared += 1
            locate = located < _LOCATED_MAX
            located += _compare(held, records[name], stored, report, ranks, locate)
    return report


def _tied_to_compared(tensors, records, pairs) -> set[str]:
    """Names without a partner that share their memory with one that has: a checkpoint may keep one
    name of a tied tensor."""
    found = {_memory_of(tensors[name], records[name]) for name in tensors if name in pairs}
    owners = {id(tensors[name].owner) for name in tensors if name in pairs}
    return {
        name
        for name, held in tensors.items()
        if id(held.owner) in owners or _memory_of(held, records[name]) in found
    }


def _memory_of(held: Holding, record: Record):
    return record.aliases or held.name, tuple(held.shape)


def _is_comparable(held, stored: Stored, record: Record, report: _Report, rank, kind) -> bool:
    if record.meta or record.misfit:
        return False  # a finding already
    if record.unreadable or (held.runs and record.coverage == (0, 0)):
        report.left[held.name] = record.unreadable or "there is nothing of it here"
        return False
    if stored.dtype is None:
        report.left[held.name] = f"the {kind}'s dtype {stored.dtype_name} is not known"
        return False
    if held.dtype == stored.dtype and tuple(held.shape) == stored.shape:
        return True
    if held.groups is None and held.dtype == stored.dtype:
        report.left[held.name] = "nothing says which ranks hold the same"
        return False
    what = (
        f"it is a {held.dtype} {list(held.shape)}, in the {kind} a {stored.dtype_name} "
        f"{list(stored.shape)}"
    )
    report.compared += 1
    report.findings[held.name] = [((rank,), what, None)]
    return False


def _readers(held: Holding, rank: int) -> tuple[int, ...]:
    """The ranks that have the same part as this one, if they surely do: one of them reads it."""
    if held.groups is None:
        return (rank,)
    cut = bool(held.placements) and all(
        placement.kind in ("shard", "replicate", "strided_shard") for placement in held.placements
    )
    whole = not held.placements and held.kind != "optimizer" and held.groups.whole == (rank,)
    return held.groups.alike if cut or whole else (rank,)


def _compare(held, record: Record, stored: Stored, report: _Report, ranks, locate: bool) -> bool:
    """ranks: those that have the same. \\returns whether its values differ."""
    size = held.dtype.itemsize
    digest, count = (0, 0), 0
    for data, filed, _ in read_runs(stored, held.runs, size):
        digest = _digest.add(digest, _digest.digest_bytes(data, [filed]))
        count += filed.length * filed.count // size
    owned = _layout.element_count(held.runs)
    if count != owned:
        what = f"its chunks in the checkpoint have {count} of {owned} elements of this rank"
        report.findings[held.name] = [(ranks, what, None)]
        return False
    if digest == record.digest:
        return False
    what, index = "its values differ from those in the checkpoint", None
    if locate and held.local is not None:
        what, index = _first_difference(held, stored)
    report.findings[held.name] = [(ranks, what, index)]
    return True


def _first_difference(held: Holding, stored: Stored) -> tuple[str, int | None]:
    """Reads the same again, beside the memory."""
    size = held.dtype.itemsize
    flat = held.local.detach().contiguous().reshape(-1).view(torch.uint8)
    first, count = None, 0
    for data, filed, own in read_runs(stored, held.runs, size):
        seen, theirs = _bytes(flat, own), _bytes(data, filed)
        differs = (seen != theirs).view(filed.count, -1, size).any(-1)
        rows = differs.nonzero()
        count += len(rows)
        if not len(rows):
            continue
        row, column = rows[0].tolist()
        index = (filed.start + row * filed.stride) // size + column
        if first is None or index < first[0]:
            at = slice(column * size, column * size + size)
            first = index, seen[row, at].clone(), theirs[row, at].clone()
    if first is None:
        return "its values differed from those in the checkpoint, and no longer do: it is being " \
               "written", None  # fmt: skip
    index, *values = first
    one, other = (_value_text(value, held.dtype) for value in values)
    of = _layout.element_count(held.runs)
    what = f"element {index} is {one}, in the checkpoint {other}; {count} of {of} differ"
    return what, index


def _bytes(memory: torch.Tensor, run: Run) -> torch.Tensor:
    """[count, length], on the CPU."""
    strides = (run.local_stride if run.count > 1 else run.length, 1)
    at = memory.storage_offset() + run.local_start  # memory may be a slice of more
    return torch.as_strided(memory, (run.count, run.length), strides, at).cpu()


def _value_text(data: torch.Tensor, dtype) -> str:
    """The bits, and the number."""
    bits = bytes(data.tolist())
    number = torch.frombuffer(bytearray(bits), dtype=torch.uint8).view(dtype)[0].item()
    return f"0x{bits[::-1].hex()} ({number})"


def _parts(held, received, names: Names) -> dict[str, dict[int, _whole.Part]]:
    """Of the names that this rank judges, and that a seal has: what each rank has of it, but for
    ranks that said why theirs is not compared."""
    found: dict[str, dict[int, _whole.Part]] = {}
    for name, sealed in names.sealed.items():
        of_name = {
            rank: _whole.part_of(own[name])
            for rank, own in enumerate(held)
            if name in own and not any(received[rank].get(name, ())[:2])
            and not (own[name].meta or own[name].misfit)
        }  # fmt: skip
        if of_name and sealed is not None:
            found[name] = of_name
    return found


def _digests(parts: dict[int, _whole.Part]) -> dict[int, tuple[int, int]]:
    return {rank: part.digest for rank, part in parts.items() if part.coverage != (0, 0)}


def _judged(received, parts, names: Names, source: Source, transport, left_out) -> Verdict:
    """received: what each rank says of the names that this one judges, of which it has `parts`.
    left_out: names of the checkpoint that a map does not compare."""
    findings, left = [], Judgement()
    for name in sorted(set().union(*received)):
        said = [of_rank[name] for of_rank in received if name in of_rank]
        for reason in dict.fromkeys(reason for _, reason, _ in said if reason):
            left.leave(name, reason)
        values = [each for of_rank, _, _ in said for each in of_rank]
        padding = [each for _, _, of_rank in said for each in of_rank]
        for found in filter(None, (values, padding)):
            ranks = tuple(sorted({rank for of_part, _, _ in found for rank in of_part}))
            # The element that comes first, if a rank has looked for it.
            _, what, index = min(found, key=lambda one: (one[2] is None, one[2] or 0, one[0]))
            findings.append(Finding("disk", name, ranks, what, index))
    for name, of_name in sorted(parts.items()):
        has_all = isinstance(source.path, Manifest)
        wrong, why = _whole.held_against(of_name, names.sealed[name], has_all)
        if why:
            left.leave(name, why)
        findings += [_of_wrong(name, each, of_name, names, source) for each in wrong]
    if isinstance(source.path, Manifest) and not source.in_turns:
        # What misfits under a map is held otherwise.
        named = {each.tensor for each in findings} | left_out
        findings += [
            Finding("disk", name, (), "it was sent, and no rank of the model holds it")
            for name in names.absent()
            if judge_of(name, transport.world_size) == transport.rank and name not in named
        ]
    return Verdict(count=len(findings), folds=fold(findings), uncompared=left.counted())


def _of_wrong(name, wrong: _whole.Wrong, parts, names: Names, source: Source) -> Finding:
    """What the ranks hold in place of what they should, as far as that is known."""
    manifest = source.path if isinstance(source.path, Manifest) else None
    before = source.synced.older(manifest)
    what = "its values are not those that were sealed"
    if wrong.digest is not None:
        what = _synced.differs(wrong.digest, names.sealed[name], names.kind)
        theirs = names.stored_as[name]
        said = _synced.explanation(
            theirs, wrong.digest, names.stored[theirs], names.first_of, before
        )
        what = f"{said}: {what}" if said else what
    ranks = wrong.ranks
    digests = {rank: parts[rank].digest for rank in ranks}
    old = source.synced.unchanged(name, digests, manifest)
    if old and len(old) < len(ranks) and before:
        # The others' parts are new: those that are not are what is stale.
        since = before[-1].version
        since = "the sync before" if since is None else f"version {since}"
        what, ranks = f"what it holds of it has not changed since {since}: {what}", old
    return Finding("disk", name, ranks, what)
