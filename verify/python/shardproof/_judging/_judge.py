"""Judges what all ranks hold of some names: a pure function of what all of them say of these.

Its cost grows with the ranks of a name, not with their square: equal groups are looked at once.
"""

import collections
import dataclasses

from .._digests import _digest
from .._holdings._options import TOLD
from .._holdings._record import Record, parameter_of
from ._finding import Finding, Sides, bracketed

APART = (
    "several groups of ranks have a copy of their own, and nothing says whether the "
    "copies must be equal: mesh= with all axes of the job compares them"
)


_OF_EACH_RANK = {
    "batches": "statistics of each rank's own batches, which differ",
    "own": "each rank's own, such as a state of its random numbers",
    "number": "a number that each rank's optimizer keeps, such as its loss: it differs",
}


@dataclasses.dataclass
class Judgement:
    """comparisons: how many were made. uncompared: what could not be, by reason: the names."""

    findings: list[Finding] = dataclasses.field(default_factory=list)
    comparisons: int = 0
    uncompared: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def leave(self, name: str, reason: str):
        names = self.uncompared.setdefault(reason, [])
        if not names or names[-1] != name:  # names come one after the other
            names.append(name)

    def counted(self) -> dict[str, tuple[int, str]]:
        """By reason: how many names, and the first one."""
        return {why: (len(names), names[0]) for why, names in self.uncompared.items()}


def judge(records: list[dict[str, Record]]) -> Judgement:
    """records: of every rank, by name; those of an optimizer's state with those of its
    parameter."""
    judgement = Judgement()
    for name in sorted({name for own in records for name in own}):
        held = {rank: own[name] for rank, own in enumerate(records) if name in own}
        if all(record.kind in TOLD for record in held.values()):
            _judge_told(name, held, judgement)
            continue
        unstated = {rank: record for rank, record in held.items() if record.groups is None}
        stated = {rank: record for rank, record in held.items() if record.groups is not None}
        if unstated:
            judgement.leave(name, "nothing says which ranks hold the same")
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
    groups = _distinct(record.groups.members for record in held.values())
    if len(groups) == 1:
        return [tuple(sorted(groups[0]))]
    component_of: dict[int, set[int]] = {}
    for members in groups:
        joined = set(members)
        for other in _distinct(component_of.get(rank, joined) for rank in members):
            joined |= other
        for rank in joined:
            component_of[rank] = joined
    return sorted(tuple(sorted(ranks)) for ranks in _distinct(component_of.values()))


def _distinct(objects) -> list:
    """By identity: equal groups that came from other ranks are one object."""
    return list({id(each): each for each in objects}.values())


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
    if absent and _is_owned(name, held, absent, records):
        judgement.leave(name, "only some ranks have it, since the optimizer divides the parameters")
        absent = ()
    if absent:
        findings.append(Finding("absent", name, absent, "there is no such tensor"))
        return None
    if _is_of_uneven_parts(held):
        _judge_uneven_parts(name, held, judgement)
        return None
    if _are_caches(held):
        return _judge_caches(name, held, judgement)
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
        seen, common = ("no other" if of == name else of for of in (seen, common))
        what = f"it shares memory with {seen}, on the other ranks with {common}"
        findings.append(Finding("untied", name, ranks, what))
    if unlike := _unlike(held, lambda record: record.frozen):
        what = ("it needs no gradient, but on the other ranks it does" if unlike[1]
                else "it needs a gradient, but on the other ranks it does not")  # fmt: skip
        findings.append(Finding("unlike", name, unlike[0], what))
    if _judge_meta(name, held, judgement):
        return None
    if _judge_misfit(name, held, judgement):
        return None
    unreadable = sorted({record.unreadable for record in held.values() if record.unreadable})
    if unreadable:
        judgement.leave(name, ", ".join(unreadable))
        return None
    if any(record.followed for record in held.values()):
        return None
    digest = _judge_values(name, held, judgement)
    _judge_numbers(name, held, judgement)
    first = next(iter(held.values()))
    return digest and (component, first.dtype, first.shape, digest)


def _judge_told(name, held, judgement):
    """What optimizers were told, or how far they have come: of the ranks of a group that say it."""
    groups = collections.defaultdict(dict)
    for rank, record in held.items():
        if record.groups is not None:
            groups[record.groups.members][rank] = record.digest
    for digests in groups.values():
        judgement.comparisons += len(digests) - 1
        if odd := _minority(digests):
            what = "it is not what it is on the other ranks"
            judgement.findings.append(Finding("option", name, tuple(sorted(odd)), what))


def _are_caches(held) -> bool:
    """Whether these are buffers that are not saved, of unlike sizes: each rank has computed them as
    its own batches asked for."""
    alike = {(record.kind, record.dtype, len(record.shape)) for record in held.values()}
    return (
        all(record.cached and not record.placements for record in held.values())
        and len(alike) == 1
        and len({record.shape for record in held.values()}) > 1
    )


def _judge_caches(name, held, judgement):
    _judge_meta(name, held, judgement)
    _judge_numbers(name, held, judgement)
    judgement.leave(name, "a buffer that is not saved and differs in size between ranks")


def _is_of_uneven_parts(held) -> bool:
    """Whether these are parts, as the caller told, whose sizes along the one dim that was cut are
    not one."""
    if not all(record.computed for record in held.values()):
        return False
    first = next(iter(held.values()))
    (dim, *others) = {placement.dim for placement in first.placements}
    for record in held.values():
        if others or (record.kind, record.dtype, record.placements) != (
            first.kind, first.dtype, first.placements,
        ):  # fmt: skip
            return False
        if len(record.shape) != len(first.shape) or any(
            one != other for at, (one, other) in enumerate(zip(record.shape, first.shape))
            if at != dim
        ):  # fmt: skip
            return False
    return len({record.shape for record in held.values()}) > 1


def _are_of_one_cut(sizes) -> bool:
    """As torch.chunk or torch.tensor_split cuts, or with what is left over in the last part."""
    size, parts = sum(sizes), len(sizes)
    step, low, left = -(-size // parts), size // parts, size % parts
    cuts = (
        [min(step, max(0, size - step * at)) for at in range(parts)],
        [low + (at < left) for at in range(parts)],
        [low] * (parts - 1) + [low + left],
    )
    return sorted(sizes) in map(sorted, cuts)


def _judge_uneven_parts(name, held, judgement):
    """Where they begin in the whole nobody said: those that are the same part are compared."""
    _judge_meta(name, held, judgement)
    _judge_misfit(name, held, judgement)
    _judge_numbers(name, held, judgement)
    alike = collections.defaultdict(list)
    for rank, record in held.items():
        if not (record.meta or record.misfit or record.unreadable):
            alike[record.groups.alike].append(rank)
    odd: set[int] = set()
    for ranks in alike.values():
        judgement.comparisons += len(ranks) - 1
        odd |= _minority({rank: (held[rank].shape, held[rank].digest) for rank in ranks})
    if odd:
        what = "this part differs from that of ranks which have the same one"
        judgement.findings.append(Finding("part", name, tuple(sorted(odd)), what))
        return
    (dim,) = {placement.dim for record in held.values() for placement in record.placements}
    for group in {record.groups.whole for record in held.values()}:
        sizes = [held[rank].shape[dim] // len(group) for rank in group if rank in held]
        if not _are_of_one_cut(sizes):
            what = (
                f"the sizes of these parts along dim {dim} are {sizes}, which no way of "
                "sharding gives"
            )
            judgement.findings.append(Finding("part", name, group, what))
            return
    judgement.leave(
        name,
        "its parts differ in size: each was compared only with the same part on other replicas",
    )


def _needs_no_state(name: str, own: dict[str, Record]) -> bool:
    """Whether this is optimizer state of a parameter of which the rank holds no element."""
    parameter = own.get(parameter_of(name))
    return name.startswith("optimizer.") and parameter is not None and parameter.coverage == (0, 0)


def _is_owned(name: str, held: dict[int, Record], absent, records) -> bool:
    """Whether this is state of a parameter that an optimizer leaves to one rank, or one of each
    replica: as others are left to the ranks that lack this, and their state is not here."""
    owners = [record for record in held.values() if record.partly]
    others = [records[rank].get(parameter_of(name)) for rank in absent]
    return (
        name.startswith("optimizer.") and len(owners) == len(held) <= len(absent)
        and all(len(owner.groups.whole) == 1 for owner in owners)
        and all(other is not None and other.partly for other in others)
    )  # fmt: skip


def _unlike(held, key):
    """(ranks that differ from the majority, the first one's key, the majority's) or None."""
    if len(held) == 1:
        return None
    keys = [key(record) for record in held.values()]
    if len(set(keys)) == 1:
        return None
    common = collections.Counter(keys).most_common(1)[0][0]
    ranks = tuple(rank for rank, record in held.items() if key(record) != common)
    return ranks, key(held[ranks[0]]), common


def _contradiction(held):
    """(ranks, what) where two holders say otherwise who is in one group; else None."""
    if len(held) == 1:
        return None
    for what, said in (("whole", "make it up"), ("alike", "hold the same part of it")):
        groups = {rank: getattr(record.groups, what) for rank, record in held.items()}
        first_of: dict[int, int] = {}
        for rank, own in groups.items():
            first_of.setdefault(id(own), rank)
        for rank in first_of.values():  # of each group that is said the first that says it
            own = groups[rank]
            for other in own:
                theirs = groups.get(other, own)
                if theirs is not own and theirs != own:
                    return tuple(sorted((rank, other))), (
                        f"rank {rank} says that ranks {bracketed(own)} {said}, rank {other} says "
                        f"ranks {bracketed(theirs)}"
                    )
    return None


def _text(key) -> str:
    kind, dtype, shape, placements = key
    where = ", ".join(
        placement.kind + (f"({placement.dim})" if placement.kind == "shard" else "")
        for placement in placements
    )
    of = "an optimizer's" if kind == "optimizer" else f"a {kind}"
    return f"{of} {dtype} {list(shape)}" + (f" [{where}]" if where else "")


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
        if record.meta or record.unreadable or record.followed or not record.numbers:
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
    whole = _digest.coverage_of_all(tuple(first.shape), first.element_bytes)
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
    is_split = False  # what most of them hold is not known
    for ranks in alike.values():
        if len({held[rank].coverage for rank in ranks}) > 1:  # cut otherwise in one replica
            continue
        judgement.comparisons += len(ranks) - 1
        digests = {rank: held[rank].digest for rank in ranks}
        odd |= _minority(digests)
        if len(set(digests.values())) > 1:
            is_split |= 2 * max(collections.Counter(digests.values()).values()) <= len(ranks)
    if not odd and len(totals) > 1:
        judgement.comparisons += len(totals) - 1
        odd = {rank for group in _minority(totals) for rank in wholes[group]}
    if odd and all(record.drifts for record in held.values()):
        judgement.leave(name, _OF_EACH_RANK[max(record.drifts for record in held.values())])
        return None
    if is_split and all(record.drifts or record.accumulates for record in held.values()):
        judgement.leave(name, "it differs, and each rank writes it itself, like running statistics")
        return None
    if odd:
        what = "its values differ from those on the other ranks"
        judgement.findings.append(Finding("differs", name, tuple(sorted(odd)), what))
        return None
    return next(iter(totals.values()), None)


def _minority(values: dict) -> set:
    """The keys whose value is not the commonest one."""
    if len(set(values.values())) == 1:
        return set()
    common = collections.Counter(values.values()).most_common(1)[0][0]
    return {key for key, value in values.items() if value != common}


def _judge_unique(name, held, wholes, judgement):
    """A name that means one tensor everywhere is the same in groups that do not meet."""
    if len(wholes) < 2 or not all(record.unique for record in held.values()):
        if len(wholes) > 1 and any(each.groups and each.groups.shown for each in held.values()):
            judgement.leave(name, APART)
        return
    judgement.comparisons += len(wholes) - 1
    ranks, *expected = wholes[0]
    for others, *seen in wholes[1:]:
        if seen != expected:
            what = (
                f"this name is a different tensor than on ranks {bracketed(ranks)}: "
                f"{seen[0]} {list(seen[1])}"
            )
            judgement.findings.append(Finding("ambiguous", name, others, what))


def total(pairs) -> tuple[int, int]:
    summed = (0, 0)
    for pair in pairs:
        summed = _digest.add(summed, pair)
    return summed


def with_sides(finding: Finding, records) -> Finding:
    """With what is to be looked at for the first element that differs: on the odd one's side, and
    on a sound one's."""
    odd = finding.ranks[0]
    own = records[odd][finding.tensor]
    one, other = _peers_of(odd, finding, records)
    if finding.kind == "part" and (
        len(other) != 1 or records[other[0]][finding.tensor].shape != own.shape
    ):
        return finding  # it is of another size than that of any other rank
    # Of two that differ neither is the odd one.
    is_one = finding.kind == "ambiguous" or len(own.groups.alike) <= 2
    others = f"rank {other[0]}" if is_one and other else "the other ranks"
    moved = _moved(odd, finding, records) if finding.kind == "part" else None
    sides = Sides(one, other, own.shape, own.element_bytes, others, moved)
    return dataclasses.replace(finding, sides=sides)


def _moved(odd, finding, records):
    """Where the part of a rank lies in the whole, as the sizes of all parts say."""
    own = records[odd][finding.tensor]
    dim, parts = own.placements[0].dim, len(own.groups.whole)
    held = [records[rank].get(finding.tensor) for rank in own.groups.whole]
    if None in held or any(each.kind != "shard" for each in own.placements):
        return None
    at = own.groups.whole.index(odd)
    sizes = [record.shape[dim] // parts for record in held]
    whole = (*own.shape[:dim], sum(sizes), *own.shape[dim + 1 :])
    return dim, at * sizes[at], sum(sizes[:at]), whole


def _peers_of(odd, finding, records) -> tuple[tuple[int, ...], tuple[int, ...]]:
    own = records[odd][finding.tensor]
    for rank in own.groups.alike:
        other = records[rank].get(finding.tensor)
        if rank not in finding.ranks and other is not None and other.coverage == own.coverage:
            return (odd,), (rank,)
    for rank in own.groups.members:
        other = records[rank].get(finding.tensor)
        if rank not in finding.ranks and other is not None:
            return own.groups.whole, other.groups.whole
    if finding.kind == "ambiguous":
        for held in records:
            other = held.get(finding.tensor)
            if other is not None and _is_of_another_group(other, own):
                return own.groups.whole, other.groups.whole
    return (odd,), ()


def _is_of_another_group(other, own) -> bool:
    """With elements that can be compared one by one."""
    alike = (other.dtype, other.shape) == (own.dtype, own.shape)
    return alike and other.groups is not None and other.groups.members != own.groups.members
