"""Of a tensor that is not what was sealed: which stretches of it are wrong, on which ranks, and of
which older version they still are. The blocks that the manifest has digests of are looked at."""

import dataclasses
import math

from .._digests import _digest
from .._judging import _blocks
from .._judging._finding import Fold
from .._judging._judge import total
from .._stored._manifest import Manifest
from ._mapped import Mapped

_LOOKED_AT = 3  # findings


def explain(folds: list[Fold], own: Mapped, names, manifest, synced, transport):
    """Every rank calls it, with the same folds; their first findings are made more exact, in place.

    own: of this rank, by the checkpoint's names. names: which tensor of the manifest each is.
    manifest: what is no Manifest has no blocks. synced: with what the model was compared before.
    """
    if not isinstance(manifest, Manifest):
        return
    named = [each for each in folds if each.findings[0].kind == "disk" and each.findings[0].ranks]
    stored_as = names.stored_names([each.findings[0].tensor for each in named])
    looked_at, older = 0, synced.older(manifest)
    for one in named:
        finding = one.findings[0]
        theirs = stored_as.get(finding.tensor)
        if theirs not in manifest.blocks or looked_at == _LOOKED_AT:
            continue
        looked_at += 1
        held = None
        try:
            if finding.tensor in own.records:
                held = _held(finding.tensor, own, manifest, theirs)
        except Exception:  # it would have made an error more exact
            held = None
        everybody = transport.objects(held)
        wrong = _wrong(everybody, theirs, manifest)
        if not 0 < len(wrong) < len(manifest.blocks[theirs]):
            continue
        ranks = tuple(sorted(set().union(*wrong.values()) & {*finding.ranks}))
        if ranks:
            what = f"{_said(wrong, everybody, theirs, manifest, older)}: {finding.what}"
            one.findings[0] = dataclasses.replace(finding, ranks=ranks, what=what)
            others = (rank for each in one.findings[1:] for rank in each.ranks)
            one.ranks = tuple(sorted({*ranks, *others}))


def _held(name: str, own: Mapped, manifest: Manifest, theirs: str) -> _blocks.Held:
    """What this rank has of the tensor's blocks."""
    parts, held = own.parts.get(name), own.tensors[name]
    pieces = [(held.local, held.runs)] if parts is None else [
        (piece.data, piece.runs) for part in parts for piece in part.pieces
    ]  # fmt: skip
    found: _blocks.Held = {}
    for data, runs in pieces:
        if data is None or not runs:
            continue
        _, more = _blocks.summarised(data, runs, manifest.block_bytes, len(manifest.blocks[theirs]))
        for number, each in more.items():
            before = found.get(number, ((0, 0), (0, 0)))
            found[number] = tuple(_digest.add(*pair) for pair in zip(before, each, strict=True))
    return found


def _wrong(everybody, theirs: str, manifest: Manifest) -> dict[int, tuple[int, ...]]:
    """The ranks that hold something else of a block than they should; {} if that cannot be told of
    any block in which they do. Ranks that have the same part of it are replicas."""
    stored = manifest.tensors[theirs]
    size, found = stored.dtype.itemsize, {}
    for number, (expected, all_) in enumerate(_expected(theirs, manifest, stored, size)):
        by_part: dict[tuple[int, int], dict[tuple[int, int], list[int]]] = {}
        for rank, held in enumerate(everybody):
            if held and number in held:
                coverage, digest = held[number]
                by_part.setdefault(coverage, {}).setdefault(digest, []).append(rank)
        if total(by_part) != all_:
            return {}
        doubtful = [digests for digests in by_part.values() if len(digests) > 1]
        known = total(next(iter(each)) for each in by_part.values() if len(each) == 1)
        if len(doubtful) > 1 or (not doubtful and known != expected):
            found[number] = tuple(
                sorted(rank for each in doubtful or by_part.values()
                       for ranks in each.values() for rank in ranks)
            )  # fmt: skip
        elif doubtful:
            right = _digest.add(expected, (-known[0], -known[1]))
            odd = [r for digest, ranks in doubtful[0].items() if digest != right for r in ranks]
            found[number] = tuple(sorted(odd))
    return found


def _expected(theirs, manifest, stored, size):
    for number, lanes in enumerate(manifest.blocks[theirs].tolist()):
        run = _blocks.whole(number, stored.shape, size, manifest.block_bytes)
        yield _digest.add((0, 0), lanes), _digest.coverage([run], size)


def _said(wrong, everybody, theirs: str, manifest: Manifest, older: list[Manifest]) -> str:
    """Which stretches, and what they still are if all of them are of one older version."""
    stored, found = manifest.tensors[theirs], []
    for first, last in _stretches(sorted(wrong)):
        begin = _blocks.whole(first, stored.shape, stored.dtype.itemsize, manifest.block_bytes)
        end = _blocks.whole(last, stored.shape, stored.dtype.itemsize, manifest.block_bytes)
        found.append((begin.start, end.start + end.length))
    count = len(manifest.blocks[theirs])
    where = ", ".join(f"{begin} to {end - 1}" for begin, end in found)
    row = math.prod(stored.shape[1:])
    rows = ", ".join(f"{begin // row} to {(end - 1) // row}" for begin, end in found)
    of_rows = f" (rows {rows})" if len(stored.shape) > 1 else ""
    said = f"of its {count} blocks {len(wrong)}, elements {where}{of_rows}, " + (
        "are wrong" if len(wrong) > 1 else "is wrong"
    )
    return said + _version_of(wrong, everybody, theirs, manifest, older)


def _stretches(numbers):
    """(first, last) of those that follow each other."""
    found = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _version_of(wrong, everybody, theirs, manifest, older) -> str:
    """How many of the blocks are those of which older version; "" if that is not known."""
    found, stored = [], manifest.tensors[theirs]
    for number, old in enumerate(older):
        has_same_blocks = theirs in old.blocks and old.block_bytes == manifest.block_bytes
        if not has_same_blocks or (old.tensors[theirs].dtype, old.tensors[theirs].shape) != (
            stored.dtype,
            stored.shape,
        ):
            continue
        digests = [_digest.add((0, 0), each) for each in old.blocks[theirs].tolist()]
        count = sum(_is_old(everybody, at, ranks, digests[at]) for at, ranks in wrong.items())
        of = "an earlier sync" if old.version is None else f"version {old.version}"
        found.append((count, number, of))
    count, _, of = max(found, default=(0, 0, ""))
    if not count:
        return ""
    return f", still of {of}" if count == len(wrong) else f", {count} of them still of {of}"


def _is_old(everybody, number, ranks, digest) -> bool:
    """Whether what these ranks hold of a block, with what others do, adds up to that digest. Those
    of ranks that are replicas of each other are counted once."""
    parts = {}
    for rank, held in enumerate(everybody):
        if held and number in held and (rank in ranks or held[number][0] not in parts):
            parts[held[number][0]] = held[number][1]
    return total(parts.values()) == digest
