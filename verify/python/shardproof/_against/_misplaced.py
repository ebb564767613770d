"""Of a tensor that is not what was sealed: whether a rank holds the part that another one should.

A digest depends on where an element lies in the whole. Each rank digests what it has as if it were
at the places of the others; that tells whose part it is.
"""

import dataclasses
import itertools

from .._digests import _digest
from .._holdings import _layout
from .._holdings._holding import Holding
from .._judging._finding import Fold
from . import _mapped
from ._map_plan import Plan

_LOOKED_AT = 3  # findings
_PLACES_MAX = 64  # of others, at which a rank digests what it has


@dataclasses.dataclass(frozen=True)
class _Said:
    """Of one rank: where it is along the axes that cut the tensor, its digest there, and what it
    would be elsewhere."""

    at: tuple[int, ...]
    own: tuple[int, int]
    elsewhere: dict[tuple[int, ...], tuple[int, int]]


def explain(folds: list[Fold], expected, tensors, records, plan: Plan | None, shapes, transport):
    """Every rank calls it, with the same folds; their first findings are made more exact, in place.

    expected: {name: digest} of the seal. tensors: this rank's, by the model's names; records: by
    the checkpoint's. plan, shapes: of a map, if there is one.
    """
    looked_at = 0
    for one in folds:
        finding = one.findings[0]
        if finding.tensor not in expected or len(finding.ranks) < 2 or looked_at == _LOOKED_AT:
            continue
        looked_at += 1
        said = None
        if transport.rank in finding.ranks and finding.tensor in records:
            try:
                own = records[finding.tensor].digest
                said = _said(finding.tensor, own, tensors, plan, shapes)
            except Exception:  # it would have made an error more exact
                said = None
        everybody = transport.objects(said)
        known = {rank: everybody[rank] for rank in finding.ranks if everybody[rank] is not None}
        if found := _found(known, expected[finding.tensor]):
            ranks, what = found
            one.findings[0] = dataclasses.replace(
                finding, ranks=ranks, what=f"{what}: {finding.what}"
            )
            one.ranks = tuple(
                sorted({*ranks, *(r for each in one.findings[1:] for r in each.ranks)})
            )


def _said(name: str, own, tensors: dict[str, Holding], plan, shapes) -> _Said | None:
    """None if nothing else can be said of this rank's part."""
    if plan is None:
        parts = [(tensors[name], None)]
    elif plan.shares(name):
        return None  # ranks that have the same part may have it by right
    else:
        parts = [
            (tensors[pair.own.name], pair)
            for pairs in plan.pairs.values()
            for pair in pairs
            if pair.theirs.name == name and not pair.again and pair.own.name in tensors
        ]
    cuts = {_cut_axes(held) for held, _ in parts}
    if len(cuts) != 1 or not (axes := cuts.pop()):
        return None
    held = parts[0][0]
    places = list(itertools.product(*(range(held.mesh_shape[axis]) for axis in axes)))
    here = tuple(held.coordinates[axis] for axis in axes)
    if not 1 < len(places) <= _PLACES_MAX:
        return None
    elsewhere = {}
    for place in places:
        digest = _digest_at(parts, axes, place, shapes and shapes[name])
        if digest is not None and place != here:
            elsewhere[place] = digest
    return _Said(here, own, elsewhere)


def _cut_axes(held: Holding) -> tuple[int, ...]:
    """The axes of the mesh along which ranks have other parts of the tensor."""
    return tuple(
        axis
        for axis, placement in enumerate(held.placements)
        if placement.kind in ("shard", "strided_shard")
    )


def _digest_at(parts, axes, place, shape):
    """Of what this rank has, were it at the place; None if as much does not belong there."""
    found = (0, 0)
    for held, pair in parts:
        coordinates = list(held.coordinates)
        for axis, at in zip(axes, place, strict=True):
            coordinates[axis] = at
        runs = _layout.local_runs(held.shape, held.placements, held.mesh_shape, coordinates)
        if _layout.element_count(runs) != held.local.numel():
            return None
        moved = dataclasses.replace(held, coordinates=tuple(coordinates), runs=runs)
        whole = _mapped.Piece(held.local, runs)
        for piece in [whole] if pair is None else _mapped.pieces_of(pair, moved, shape):
            found = _digest.add(found, _digest.digest_runs(piece.data, piece.runs).digest)
    return found


def _found(said: dict[int, _Said], expected):
    """(ranks, what) if parts are at the wrong ranks; else None."""
    first_of: dict[tuple, int] = {}  # of ranks that have the same at the same place
    for rank, each in sorted(said.items()):
        first_of.setdefault((each.at, each.own), rank)
    found = _found_once({rank: said[rank] for rank in first_of.values()}, expected)
    if found is None:
        return None
    alike = {(said[rank].at, said[rank].own) for rank in found[0]}
    return tuple(r for r, each in sorted(said.items()) if (each.at, each.own) in alike), found[1]


def _found_once(said: dict[int, _Said], expected):
    rank_at = {each.at: rank for rank, each in said.items()}
    for rank, each in said.items():
        for place, digest in each.elsewhere.items():
            other = rank_at.get(place)
            if other is not None and digest == said[other].own != (0, 0):
                # Which of the two it belongs to cannot be told.
                ranks = tuple(sorted((rank, other)))
                return ranks, f"ranks {ranks[0]} and {ranks[1]} hold the same part"
    whole = (0, 0)
    for each in said.values():
        whole = _digest.add(whole, each.own)
    for one, other in itertools.combinations(said, 2):
        a, b = said[one], said[other]
        if b.at not in a.elsewhere or a.at not in b.elsewhere:
            continue
        changed = _digest.add(a.elsewhere[b.at], b.elsewhere[a.at])
        rest = _digest.add(whole, (-a.own[0] - b.own[0], -a.own[1] - b.own[1]))
        if _digest.add(rest, changed) == expected:
            return (one, other), f"ranks {one} and {other} hold each other's parts"
    return None
