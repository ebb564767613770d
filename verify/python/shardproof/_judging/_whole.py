"""The digests of whole tensors, as the sums of what ranks have of them."""

import dataclasses
import itertools
import math

import torch

from .._digests import _digest
from .._holdings._groups import Groups
from .._holdings._record import Record, bytes_of
from . import _blocks
from ._judge import total

_CHOICES_MAX = 4096  # of parts that differ from rank to rank


@dataclasses.dataclass(frozen=True)
class Part:
    """What a rank has of one tensor; travels."""

    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...] | None  # the ranks whose parts make it up; None: nobody said
    coverage: tuple[int, int]
    digest: tuple[int, int]
    kind: str = ""
    pieced: bool = False  # made of other tensors, which may have groups of their own
    members: tuple[int, ...] = ()  # the ranks that are said to have it, or a part of it
    named: bool = False  # other ranks have the same tensor under its name
    blocks: _blocks.Held = dataclasses.field(default_factory=dict, hash=False)

    @property
    def element_bytes(self) -> int:
        return bytes_of(self.dtype)


@dataclasses.dataclass(frozen=True)
class Whole:
    """One tensor. ranks: those that made it up. blocks: the digests of all of its blocks, or of
    none."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    digest: tuple[int, int]
    ranks: tuple[int, ...]
    kind: str = ""
    blocks: tuple[tuple[int, int], ...] = ()


def part_of(record: Record, blocks: _blocks.Held | None = None) -> Part:
    groups: Groups | None = record.groups
    whole = groups.whole if groups else None
    return Part(
        record.dtype, record.shape, whole, record.coverage, record.digest, record.kind,
        record.pieced, groups.members if groups else (), bool(groups and groups.named),
        blocks or {},
    )  # fmt: skip


def wholes(everybody: list[dict[str, Part]], block_bytes=0) -> dict[str, Whole | str]:
    """everybody: the parts of every rank, by name. \\returns each tensor, or why it is not whole:
    its parts have gaps or overlap, or replicas of it differ."""
    return {
        name: _whole(name, everybody, block_bytes)
        for name in sorted({n for own in everybody for n in own})
    }


def groups_of(by_rank: dict[int, Part]) -> list[list[int]]:
    """The ranks that said that their parts make up one tensor; who said nothing is alone."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, part in sorted(by_rank.items()):
        groups.setdefault((rank,) if part.whole is None else part.whole, []).append(rank)
    return list(groups.values())


def _coverage_of(part: Part) -> tuple[int, int]:
    """Of the whole tensor."""
    return _digest.coverage_of_all(tuple(part.shape), part.element_bytes)


def _whole(name: str, everybody, block_bytes) -> Whole | str:
    by_rank = {rank: own[name] for rank, own in enumerate(everybody) if name in own}
    found: list[Whole] = []
    for ranks in groups_of(by_rank):
        parts = [by_rank[rank] for rank in ranks]
        first = parts[0]
        if len({(part.dtype, part.shape) for part in parts}) > 1:
            return f"ranks {ranks} do not agree on its dtype and shape"
        if total(part.coverage for part in parts) != _coverage_of(first):
            return f"the parts of ranks {ranks} do not form the whole tensor"
        dtype = getattr(torch, first.dtype.removeprefix("torch."))
        digest = total(part.digest for part in parts)
        blocks = () if found else _blocks_of(parts, block_bytes)
        found.append(Whole(dtype, tuple(first.shape), digest, tuple(ranks), first.kind, blocks))
    tags = {(whole.dtype, whole.shape, whole.digest) for whole in found}
    if len(tags) > 1:
        return f"ranks {list(found[0].ranks)} and others hold different tensors of this name"
    return found[0]


def _blocks_of(parts: list[Part], block_bytes) -> tuple[tuple[int, int], ...]:
    first, found = parts[0], []
    for number in range(_blocks.count_of(first.shape, first.element_bytes, block_bytes)):
        held = [part.blocks[number] for part in parts if number in part.blocks]
        all_ = _blocks.whole(number, first.shape, first.element_bytes, block_bytes)
        if total(each for each, _ in held) != _digest.coverage([all_], first.element_bytes):
            return ()  # a rank's memory is not one stretch, of which it said nothing
        found.append(total(digest for _, digest in held))
    return tuple(found)


# ---- Against a digest that is known --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Wrong:
    """Ranks that together hold another tensor than they should; digest: of that tensor, if they
    hold all of it."""

    ranks: tuple[int, ...]
    digest: tuple[int, int] | None


def what_holds(parts: dict[int, Part], expected):
    """As `held_against`, where nothing is wrong. \\returns ([ranks that together hold the tensor],
    [ranks that hold the same part of it]): if these are so again, nothing is wrong again."""
    whole, groups = _coverage_of(next(iter(parts.values()))), groups_of(parts)
    made, alike = _made(parts, groups, whole), {}
    if len(made) < len(groups) and any(part.pieced for part in parts.values()):
        for rank, part in sorted(parts.items()):
            alike.setdefault((part.coverage, part.digest), []).append(rank)
        made = _made(parts, [[ranks[0] for ranks in alike.values()]], whole)
    return [group for group, digest in made.items() if digest == expected], [*alike.values()]


def _made(parts, groups, whole) -> dict[tuple[int, ...], tuple[int, int]]:
    """Of each group of ranks that together hold all of a tensor what its digest is there."""
    return {
        tuple(group): total(parts[rank].digest for rank in group)
        for group in groups
        if total(parts[rank].coverage for rank in group) == whole
    }


def held_against(parts: dict[int, Part], expected, has_all=False) -> tuple[list[Wrong], str]:
    """parts: of one tensor, by rank. has_all: whether what they are held against has every tensor
    of the model, by its names. \\returns (who holds another one, why it is not compared)."""
    if len({(part.dtype, part.shape) for part in parts.values()}) > 1:
        return [], f"ranks {sorted(parts)} do not agree on its dtype and shape"
    whole, groups = _coverage_of(next(iter(parts.values()))), groups_of(parts)
    made = _made(parts, groups, whole)
    if len(made) == len(groups):
        return _of_groups(made, parts, expected, has_all)
    if any(part.pieced for part in parts.values()):
        return _of_parts(parts, expected, whole)
    lacking = next(group for group in groups if tuple(group) not in made)
    return [], f"the parts of ranks {lacking} do not form the whole tensor"


def _of_groups(made, parts, expected, has_all):
    """Each group holds all of a tensor."""
    wrong = {group: digest for group, digest in made.items() if digest != expected}
    right = {rank for group in made if group not in wrong for rank in group}
    named = [
        group for group in wrong if has_all and all(parts[rank].named for rank in group)
    ]  # fmt: skip
    if not right and len(set(made.values())) > 1 and len(named) < len(wrong):
        return [], f"ranks {sorted(parts)} hold different tensors of this name"
    # Ranks that were not said to have the same may well have another tensor of the name.
    others = [
        group for group in wrong
        if right and group not in named
        and not any(right & {*parts[rank].members} for rank in group)
    ]  # fmt: skip
    sound = {parts[rank].coverage: parts[rank].digest for rank in sorted(right)}
    by_digest: dict[tuple[int, int], list[int]] = {}
    for group, digest in wrong.items():
        if group not in others:
            having = [rank for rank in group if parts[rank].coverage != (0, 0)]
            having = [
                rank for rank in having
                if sound.get(parts[rank].coverage, parts[rank].digest) != parts[rank].digest
            ] or having  # fmt: skip
            by_digest.setdefault(digest, []).extend(having or group)
    found = [Wrong(tuple(sorted(ranks)), digest) for digest, ranks in by_digest.items()]
    why = f"ranks {sorted(sum(others, ()))} hold another tensor of this name" if others else ""
    return found, why


def _of_parts(parts, expected, whole):
    """Ranks hold parts of it, and nobody said which make it up: equal parts are replicas."""
    by_part: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = {}
    for rank, part in sorted(parts.items()):
        if part.coverage != (0, 0):
            by_part.setdefault(part.coverage, {}).setdefault(part.digest, []).append(rank)
    ranks = tuple(rank for rank in sorted(parts) if parts[rank].coverage != (0, 0))
    if total(by_part) != whole:
        return [], f"the parts of ranks {list(ranks)} do not form the whole tensor"
    doubtful = [digests for digests in by_part.values() if len(digests) > 1]
    known = total(next(iter(digests)) for digests in by_part.values() if len(digests) == 1)
    if not doubtful:
        return ([] if known == expected else [Wrong(ranks, known)]), ""
    lacking = _digest.add(expected, (-known[0], -known[1]))
    right = _chosen(doubtful, lacking) if len(doubtful) > 1 else (lacking,)
    if right is None:
        return [], f"ranks {list(ranks)} hold different values of several parts of it"
    odd = [
        rank for digests, chosen in zip(doubtful, right, strict=True)
        for digest, own in digests.items() if digest != chosen for rank in own
    ]  # fmt: skip
    return [Wrong(tuple(sorted(odd)), None)], ""


def _chosen(doubtful, lacking):
    """Of each part the digest with which all of them make up what is lacking; None if none do."""
    if math.prod(map(len, doubtful)) > _CHOICES_MAX:
        return None
    return next((each for each in itertools.product(*doubtful) if total(each) == lacking), None)
