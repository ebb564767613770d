"""Judges what all ranks hold: a pure function of everybody's records, the same on every rank."""

import collections
import dataclasses

import torch

from . import _digest, _layout
from ._groups import Groups


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


@dataclasses.dataclass(frozen=True)
class Record:
    """One tensor on one rank, as it travels."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    placements: tuple
    groups: Groups | None  # None: nobody said which ranks hold it
    meta: bool
    unreadable: str
    aliases: str  # the first name that shares its memory
    unique: bool = False  # the name means this tensor on all ranks, beyond its groups too
    numbers: bool = True  # its values are numbers of the model, not codes in a container
    misfit: str = ""  # how its memory contradicts its placement
    coverage: tuple[int, int] = (0, 0)
    digest: tuple[int, int] = (0, 0)
    nan: int = 0
    inf: int = 0
    first_non_finite: int | None = None

    @property
    def element_bytes(self) -> int:
        return getattr(torch, self.dtype.removeprefix("torch.")).itemsize


@dataclasses.dataclass
class Judgement:
    """comparisons: how many were made. uncompared: what could not be, by reason: the names."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    comparisons: int = 0
    uncompared: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def leave(self, name: str, reason: str):
        names = self.uncompared.setdefault(reason, [])
        if name not in names:
            names.append(name)


def judge(records: list[dict[str, Record]]) -> Judgement:
    """records: of every rank, by name."""
    judgement = Judgement()
    for name in sorted({name for own in records for name in own}):
        held = {rank: own[name] for rank, own in enumerate(records) if name in own}
        unstated = {rank: record for rank, record in held.items() if record.groups is None}
        stated = {rank: record for rank, record in held.items() if record.groups is not None}
        if unstated:
            judgement.leave(name, "its group of ranks was not stated")
            _judge_numbers(name, unstated, judgement)
            _judge_meta(name, unstated, judgement)
            _judge_misfit(name, unstated, judgement)
        wholes = [
            _judge_component(name, component, records, judgement)
            for component in _components(stated)
        ]
        _judge_unique(name, held, [whole for whole in wholes if whole], judgement)
    return judgement


def _components(held) -> list[tuple[int, ...]]:
    """The ranks that hold one tensor, as far as the groups of the holders lead; absent ones too."""
    component_of: dict[int, set[int]] = {}
    for record in held.values():
        joined = set(record.groups.members)
        for rank in list(joined):
            joined |= component_of.get(rank, set())
        for rank in joined:
            component_of[rank] = joined
    return sorted({tuple(sorted(ranks)) for ranks in component_of.values()})


def _judge_component(name, component, records, judgement):
    """\\returns (ranks, dtype, shape, digest) of the tensor if it was found whole, else None."""
    held = {rank: records[rank][name] for rank in component if name in records[rank]}
    held = {rank: record for rank, record in held.items() if record.groups is not None}
    absent = tuple(
        rank for rank in component
        if rank not in held and not _needs_no_state(name, records[rank])
    )  # fmt: skip
    judgement.comparisons += len(component)
    findings = judgement.findings
    if absent:
        findings.append(Finding("absent", name, absent, "there is no such tensor"))
        return None
    unlike = _unlike(held, lambda record: (record.kind, record.dtype, record.shape,
                                           record.placements))  # fmt: skip
    if unlike:
        ranks, seen, common = unlike
        what = f"it is {_text(seen)}, on the other ranks {_text(common)}"
        findings.append(Finding("unlike", name, ranks, what))
        return None
    if contradiction := _contradiction(held):
        findings.append(Finding("groups", name, *contradiction))
        return None
    tied = {rank: record for rank, record in held.items() if record.aliases}
    unlike = _unlike(tied, lambda record: record.aliases) if tied else None
    if unlike:
        ranks, seen, common = unlike
        what = f"it shares memory with {seen}, on the other ranks with {common}"
        findings.append(Finding("untied", name, ranks, what))
    if _judge_meta(name, held, judgement):
        return None
    if _judge_misfit(name, held, judgement):
        return None
    unreadable = sorted({record.unreadable for record in held.values() if record.unreadable})
    if unreadable:
        judgement.leave(name, ", ".join(unreadable))
        return None
    digest = _judge_values(name, held, judgement)
    _judge_numbers(name, held, judgement)
    first = next(iter(held.values()))
    return digest and (component, first.dtype, first.shape, digest)


def _needs_no_state(name: str, own: dict[str, Record]) -> bool:
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


def _contradiction(held):
    """(ranks, what) where two holders say otherwise who is in one group; else None."""
    for rank, record in held.items():
        for what in ("whole", "alike"):
            own = getattr(record.groups, what)
            for other in own:
                theirs = held.get(other)
                if theirs is not None and getattr(theirs.groups, what) != own:
                    said = {"whole": "make it up", "alike": "hold the same of it"}[what]
                    return (rank, other), (
                        f"rank {rank} says that ranks {list(own)} {said}, rank {other} says ranks "
                        f"{list(getattr(theirs.groups, what))}"
                    )
    return None


def _text(key) -> str:
    kind, dtype, shape, placements = key
    where = ", ".join(
        placement.kind + (f"({placement.dim})" if placement.kind == "shard" else "")
        for placement in placements
    )
    return f"a {kind} {dtype} {list(shape)}" + (f" [{where}]" if where else "")


def _judge_meta(name, held, judgement) -> bool:
    meta = tuple(rank for rank, record in held.items() if record.meta)
    if meta:
        judgement.findings.append(Finding("meta", name, meta, "it is still on the meta device"))
    return bool(meta)


def _judge_misfit(name, held, judgement) -> bool:
    misfits = tuple(rank for rank, record in held.items() if record.misfit)
    if misfits:
        judgement.findings.append(Finding("misfit", name, misfits, held[misfits[0]].misfit))
    return bool(misfits)


def _judge_numbers(name, held, judgement):
    for rank, record in held.items():
        if record.meta or record.unreadable or not record.numbers:
            continue
        judgement.comparisons += 1
        if record.nan or record.inf:
            what = f"{record.nan} NaN and {record.inf} Inf, the first at element " \
                   f"{record.first_non_finite}"  # fmt: skip
            judgement.findings.append(
                Finding("non-finite", name, (rank,), what, record.first_non_finite)
            )


def _judge_values(name, held, judgement):
    """Whether the parts make up the whole, and those that are the same part are equal.

    \\returns the digest of the whole tensor, or None if it is not to be had.
    """
    first = next(iter(held.values()))
    whole = whole_coverage(first)
    wholes = collections.defaultdict(list)
    alike = collections.defaultdict(list)
    for rank, record in held.items():
        wholes[record.groups.whole].append(rank)
        alike[record.groups.alike].append(rank)
    totals = {}
    for group, ranks in wholes.items():
        judgement.comparisons += 1
        if total(held[rank].coverage for rank in ranks) == whole:
            totals[group] = total(held[rank].digest for rank in ranks)
            continue
        what = "the shards of these ranks do not tile the tensor: there is a gap or an overlap"
        judgement.findings.append(Finding("incomplete", name, tuple(ranks), what))
    odd: set[int] = set()
    for ranks in alike.values():
        if len({held[rank].coverage for rank in ranks}) > 1:  # cut otherwise in one replica
            continue
        judgement.comparisons += len(ranks) - 1
        odd |= _minority({rank: held[rank].digest for rank in ranks})
    if not odd and len(totals) > 1:
        judgement.comparisons += len(totals) - 1
        odd = {rank for group in _minority(totals) for rank in wholes[group]}
    if odd:
        what = "its values differ from those on the other ranks"
        judgement.findings.append(Finding("differs", name, tuple(sorted(odd)), what))
        return None
    return next(iter(totals.values()), None)


def _minority(values: dict) -> set:
    """The keys whose value is not the commonest one."""
    common = collections.Counter(values.values()).most_common(1)[0][0]
    return {key for key, value in values.items() if value != common}


def _judge_unique(name, held, wholes, judgement):
    """A name that means one tensor everywhere is the same in groups that do not meet."""
    if len(wholes) < 2 or not all(record.unique for record in held.values()):
        if len(wholes) > 1 and any(record.placements for record in held.values()):
            judgement.leave(name, "meshes that do not meet have it, each its own")
        return
    judgement.comparisons += len(wholes) - 1
    ranks, *expected = wholes[0]
    for others, *seen in wholes[1:]:
        if seen != expected:
            what = (
                f"the name stands for another tensor than on ranks {list(ranks)}: "
                f"{seen[0]} {list(seen[1])}"
            )
            judgement.findings.append(Finding("ambiguous", name, others, what))


def whole_coverage(record: Record) -> tuple[int, int]:
    return _digest.coverage(_layout.local_runs(record.shape), record.element_bytes)


def total(pairs) -> tuple[int, int]:
    summed = (0, 0)
    for pair in pairs:
        summed = _digest.add(summed, pair)
    return summed


def peers_of(odd: int, finding: Finding, records) -> tuple[list[int], list[int]]:
    """The ranks to look at for the first element that differs: those of the odd one's side, and
    those of a sound one's."""
    own = records[odd][finding.tensor]
    coverage = own.coverage
    for rank in own.groups.alike:
        other = records[rank].get(finding.tensor)
        if rank not in finding.ranks and other is not None and other.coverage == coverage:
            return [odd], [rank]
    for rank in own.groups.members:
        other = records[rank].get(finding.tensor)
        if rank not in finding.ranks and other is not None:
            return list(own.groups.whole), list(other.groups.whole)
    return [odd], []
