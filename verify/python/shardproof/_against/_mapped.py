"""A live model under a map: what each rank has of the checkpoint's tensors, which the model keeps
in tensors of other names and layouts. Nothing is copied: the parts are views of the model's memory.
"""

import dataclasses
import functools
import itertools
import math

import torch

from .._digests import _digest, _together
from .._holdings import _layout
from .._holdings._groups import Groups
from .._holdings._holding import Holding
from .._holdings._layout import Run
from .._holdings._record import Record
from .._judging import _own
from .._judging._judge import total
from ._map_plan import Box, Fill, Pair, Plan

_BOXES = ("shard", "strided_shard", "replicate")
_RUNS_MAX = 1 << 20
_KEPT_RUNS_MAX = 64  # of what a rank has of one tensor: where they lie is kept
_STRIP_BYTES = 1 << 20
_CHUNK = 1 << 20  # elements whose places are computed at once


@dataclasses.dataclass
class Mapped:
    """tensors, records: of this rank, by the checkpoint's names, and those of `aliases`. findings,
    left: as those of a comparison, by the model's or the checkpoint's names. padding: findings of
    what is beside the checkpoint's elements, by the model's names; padded: what is as it should be
    there. parts: of tensors that are in pieces."""

    tensors: dict[str, Holding] = dataclasses.field(default_factory=dict)
    records: dict[str, Record] = dataclasses.field(default_factory=dict)
    findings: dict[str, list[tuple]] = dataclasses.field(default_factory=dict)
    left: dict[str, str] = dataclasses.field(default_factory=dict)
    padding: dict[str, list[tuple]] = dataclasses.field(default_factory=dict)
    parts: dict[str, list["Part"]] = dataclasses.field(default_factory=dict)
    padded: list[tuple[Holding, torch.Tensor]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Piece:
    """A view of the model's memory, and where its elements lie in the checkpoint's tensor."""

    data: torch.Tensor
    runs: list[Run]


@dataclasses.dataclass
class Part:
    """What a rank has of one tensor of the checkpoint in one of the model."""

    held: Holding
    record: Record
    pieces: list[Piece]
    summaries: list[_digest.Summary] = dataclasses.field(default_factory=list)
    changed: bool = False  # while it was read


class _Unmappable(Exception):
    """Why what a rank holds of a tensor cannot be followed through the map: one line."""


def mapped(plan: Plan, shapes, tensors: dict[str, Holding], records, rank: int) -> Mapped:
    """shapes: of the checkpoint's tensors and their aliases, by name. What no rule names stays."""
    found = Mapped()
    parts: dict[str, list[Part]] = {}
    lost = set()
    misfits = {name: misfit for misfit in plan.misfits for name in misfit.own}
    for name, held in tensors.items():
        record = records[name]
        if name in misfits:
            what = misfits[name].what
            found.findings |= {each: [((rank,), what, None)] for each in misfits[name].theirs}
            continue
        if name not in plan.pairs and name not in plan.fills:
            found.tensors[name], found.records[name] = held, record
            continue
        for fill in plan.fills.get(name, ()):
            _hold_to_value(fill, held, record, found, rank)
        for number, pair in enumerate(plan.pairs.get(name, ())):
            theirs = _name_of(pair, plan, shapes)
            if theirs is None:
                found.left[pair.theirs.name] = "some of its rows also stand elsewhere in the model"
                continue
            if _is_whole(pair, held, shapes) and not record.followed:
                found.tensors[theirs] = dataclasses.replace(held, name=theirs)
                found.records[theirs] = record
                continue
            try:
                lacks = record.meta or record.unreadable or record.misfit or held.local is None
                pieces = [] if lacks else _pieces(plan, number, pair, held, shapes[theirs])
            except _Unmappable as error:
                found.left[theirs] = str(error)
                lost.add(theirs)
                continue
            parts.setdefault(theirs, []).append(Part(held, record, pieces))
    for theirs in lost & parts.keys():
        del parts[theirs]
    _read([part for each in parts.values() for part in each])
    found.parts = parts
    for theirs, each in parts.items():
        found.tensors[theirs], found.records[theirs] = _joined(theirs, shapes[theirs], each)
        if bad := _non_finite(each):
            found.findings[theirs] = [((rank,), *bad)]
    if rank == 0:
        for names, why in plan.left:
            found.left |= dict.fromkeys(names, why)
    return found


def aliases(plan: Plan, shapes) -> dict[str, str]:
    """{name made for it: the checkpoint's} of what the model has under several names; the same on
    all ranks."""
    again = [pair for pairs in plan.pairs.values() for pair in pairs if pair.again]
    named = {_name_of(pair, plan, shapes): pair.theirs.name for pair in again}
    return {name: theirs for name, theirs in named.items() if name not in (None, theirs)}


def _name_of(pair: Pair, plan: Plan, shapes) -> str | None:
    """Under which name the model's box is held against the checkpoint's; None: it cannot be."""
    theirs = pair.theirs.name
    # Within one tensor they are replicas, as key heads are that several ranks have.
    if not pair.again or plan.has_once(pair):
        return theirs
    is_all = pair.theirs.sizes == tuple(shapes[theirs])
    return f"{theirs} (as {pair.own.name})" if is_all else None


def _is_whole(pair: Pair, held: Holding, shapes) -> bool:
    return (
        not pair.steps
        and pair.own.sizes == tuple(held.shape)
        and pair.theirs.sizes == tuple(shapes[pair.theirs.name])
    )


def _read(parts: list[Part]):
    """Digests all pieces, many at once."""
    versions = [_own.version_of(part.held) if part.pieces else 0 for part in parts]
    pieces = [piece for part in parts for piece in part.pieces]
    summaries = iter(_together.digest_all([(piece.data, piece.runs) for piece in pieces]))
    for part, version in zip(parts, versions, strict=True):
        part.summaries = list(itertools.islice(summaries, len(part.pieces)))
        part.changed = bool(part.pieces) and _own.version_of(part.held) != version


def _joined(name, shape, parts: list[Part]) -> tuple[Holding, Record]:
    """What a rank has of one tensor of the checkpoint, from all tensors of the model that it is
    in."""
    held, record = parts[0].held, parts[0].record
    pieces = [piece for part in parts for piece in part.pieces]
    dtypes = {str(piece.data.dtype) for piece in pieces} or {str(held.dtype)}
    misfit = record.misfit
    if len(dtypes) > 1:
        misfit = f"its parts in the model have the dtypes {', '.join(sorted(dtypes))}"
    coverage = total(
        _digest.coverage(piece.runs, piece.data.element_size()) for piece in pieces
    )  # fmt: skip
    dtype = pieces[0].data.dtype if pieces else held.dtype
    reasons = [part.record.unreadable or (_own.CHANGED if part.changed else "") for part in parts]
    mapped_held = dataclasses.replace(
        held, name=name, dtype=dtype, shape=tuple(shape), placements=[], groups=_groups_of(parts),
        local=pieces[0].data if len(pieces) == 1 else None,
        runs=[run for piece in pieces for run in piece.runs],
    )  # fmt: skip
    mapped_record = dataclasses.replace(
        record, dtype=str(dtype), shape=tuple(shape), placements=(), groups=mapped_held.groups,
        misfit=misfit, coverage=coverage, pieced=True, unreadable=next(filter(None, reasons), ""),
        digest=total(each.digest for part in parts for each in part.summaries),
        meta=any(part.record.meta for part in parts),
    )  # fmt: skip
    return mapped_held, mapped_record


def _non_finite(parts: list[Part]):
    """(what, index) of values that are to be finite and were looked at nowhere else; None if all
    are."""
    nan = inf = 0
    first = None
    for part in parts:
        if not (part.record.followed and part.record.numbers):
            continue
        has_inf = any(each.inf_count for each in part.summaries)
        may_have = has_inf and part.held.may_be_infinite()
        for piece, summary in zip(part.pieces, part.summaries, strict=True):
            own_inf = 0 if may_have else summary.inf_count
            nan, inf = nan + summary.nan_count, inf + own_inf
            if summary.nan_count + own_inf and first is None:
                first = _digest.first_non_finite(piece.data, piece.runs)
    if not nan + inf:
        return None
    return f"{nan} NaN and {inf} Inf, the first at element {first}", first


def _groups_of(parts) -> Groups | None:
    """Of a tensor that lies in several, as far as they are held by the same ranks."""
    groups = {part.held.groups for part in parts}
    return groups.pop() if len(groups) == 1 else None


# ---- Which elements a rank has -------------------------------------------------------------------


def _pieces(plan: Plan, number: int, pair: Pair, held: Holding, shape) -> list[Piece]:
    """As `pieces_of`. In the next sync they lie where they lay in this one, so that is kept."""
    local, key = held.local, (held.name, number)
    cut = held.placements, held.mesh_shape, held.coordinates
    laid = (local.shape, local.stride(), local.dtype, shape, held.runs, cut)
    kept, places = plan.lies.get(key, (None, ()))
    begin = local.storage_offset()
    if kept == laid:
        return [
            Piece(local.as_strided(size, stride, begin + at), runs)
            for size, stride, at, runs in places
        ]
    pieces = pieces_of(pair, held, shape)
    if all(_is_view(piece.data, local) for piece in pieces) and (
        sum(len(piece.runs) for piece in pieces) <= _KEPT_RUNS_MAX
    ):
        plan.lies[key] = (
            laid,
            [
                (each.data.shape, each.data.stride(), each.data.storage_offset() - begin, each.runs)
                for each in pieces
            ],
        )
    return pieces


def _is_view(data: torch.Tensor, local: torch.Tensor) -> bool:
    return data.dtype == local.dtype and (
        data.untyped_storage().data_ptr() == local.untyped_storage().data_ptr()
    )


def pieces_of(pair: Pair, held: Holding, shape) -> list[Piece]:
    """What this rank has of the model's box, as parts of the checkpoint's tensor of this shape."""
    blocks = _blocks(held)
    if blocks is None:
        return _pieces_by_element(pair, held, shape)
    pieces = []
    for shared, data in _inside(blocks, pair.own):
        box = [(low - at, high - at) for (low, high), at in zip(shared, pair.own.offsets)]
        followed = _follow(pair, box, data)
        if followed is None:
            return _pieces_by_element(pair, held, shape)
        data, box = followed
        box = [(low + at, high + at) for (low, high), at in zip(box, pair.theirs.offsets)]
        for own, strip in _strips(data, box):
            pieces.append(Piece(strip, _layout.runs_of(shape, [[each] for each in own])))
    return pieces


def _strips(data, box):
    """A transposed matrix in strips of columns, each of which is a stretch of memory: torch turns
    such ones round at many times the speed of rows."""
    turned = data.dim() == 2 and data.stride() == (1, data.shape[0]) and data.shape[0] > 1
    columns = max(1, _STRIP_BYTES // max(1, data.shape[0] * data.element_size())) if turned else 0
    if not turned or columns >= data.shape[1]:
        yield box, data
        return
    rows, (low, high) = box
    for at in range(low, high, columns):
        end = min(high, at + columns)
        yield [rows, (at, end)], data[:, at - low : end - low]


def _blocks(held: Holding):
    """(box, view of the local memory) of what is held in rows and columns; None: it is not."""
    if any(placement.kind not in _BOXES for placement in held.placements):
        return None
    owned = _owned(held)
    if owned is None:
        return None
    sizes = [sum(high - low for low, high in intervals) for intervals in owned]
    if tuple(sizes) != tuple(held.local.shape):
        return None
    found = []
    starts = [_starts(intervals) for intervals in owned]
    for box in itertools.product(*(zip(each, at) for each, at in zip(owned, starts))):
        data = held.local.detach()
        for dim, ((low, high), at) in enumerate(box):
            data = data.narrow(dim, at, high - low)
        found.append(([interval for interval, _ in box], data))
    return found


def _owned(held: Holding):
    """The indices of each dim; None if they do not follow from what the tensor says."""
    if held.placements:
        if len(held.placements) != len(held.mesh_shape):
            return None
        return _layout.owned_indices(held.shape, held.placements, held.mesh_shape, held.coordinates)
    whole = [Run(0, math.prod(held.shape))] if math.prod(held.shape) else []
    if held.runs != whole:
        return None
    return [[(0, size)] if size else [] for size in held.shape]


def _starts(intervals):
    sizes = [high - low for low, high in intervals]
    return [0, *itertools.accumulate(sizes)][: len(sizes)]


def _inside(blocks, box: Box):
    """(part of a block that is in the box, [low, high) per dim; view of the local memory)."""
    for block, data in blocks:
        shared = [
            (max(low, start), min(high, start + size))
            for (low, high), start, size in zip(block, box.offsets, box.sizes, strict=True)
        ]
        if any(low >= high for low, high in shared):
            continue
        for dim, (low, high) in enumerate(shared):
            data = data.narrow(dim, low - block[dim][0], high - low)
        yield shared, data


def _follow(pair: Pair, box, data):
    """A part of the model's box, after the steps; None if it is no box then."""
    shape = pair.own.sizes
    for kind, value in pair.steps:
        if kind == "bits":
            data = data.view(value)
        elif kind == "permute":
            shape = tuple(shape[dim] for dim in value)
            box, data = [box[dim] for dim in value], data.permute(value)
        else:
            box = _reshaped(box, shape, value)
            if box is None:
                return None
            shape = value
            data = data.reshape([high - low for low, high in box])
    return data, box


def _reshaped(box, shape, to):
    """A box after a reshape; None if it is none. Dims that stay as they are may be cut, others must
    be whole, and of those that a dim is cut into the first."""
    found = []
    for ours, theirs in _dim_groups(shape, to):
        whole = all(box[dim] == (0, shape[dim]) for dim in ours)
        cut = [dim for dim in ours if shape[dim] > 1]
        longer = [dim for dim in theirs if to[dim] > 1]
        if whole:
            found += [(0, to[dim]) for dim in theirs]
        elif len(cut) == 1 and len(longer) == 1:
            found += [box[cut[0]] if dim == longer[0] else (0, 1) for dim in theirs]
        else:
            leading = _leading(box, shape, ours, to, theirs)
            if leading is None:
                return None
            found += leading
    return found


def _leading(box, shape, ours, to, theirs):
    """Whole rows of a dim that is cut into several, or of several that are joined."""
    rest = math.prod(shape[dim] for dim in ours[1:])
    if any(box[dim] != (0, shape[dim]) for dim in ours[1:]):
        return None
    row = math.prod(to[dim] for dim in theirs[1:])
    low, high = (each * rest for each in box[ours[0]])
    if low % row or high % row:
        return None
    return [(low // row, high // row), *((0, to[dim]) for dim in theirs[1:])]


def _dim_groups(shape, to):
    """The dims of both shapes in the smallest groups that have as many elements."""
    i = j = 0
    while i < len(shape) or j < len(to):
        ours, theirs, here, there = [], [], 1, 1
        while not (ours or theirs) or here != there:
            if here <= there and i < len(shape) or j == len(to):
                ours.append(i)
                here, i = here * shape[i], i + 1
            else:
                theirs.append(j)
                there, j = there * to[j], j + 1
        while i < len(shape) and shape[i] == 1:
            ours.append(i)
            i += 1
        while j < len(to) and to[j] == 1:
            theirs.append(j)
            j += 1
        yield ours, theirs


# ---- Any runs, element by element ----------------------------------------------------------------


def _pieces_by_element(pair: Pair, held: Holding, shape) -> list[Piece]:
    """Of parts that are no boxes, as those of flat parameters: where each element comes to lie.
    What lies on together becomes a run."""
    flat = held.local.detach().contiguous().reshape(-1)
    for kind, value in pair.steps:
        flat = flat.view(value) if kind == "bits" else flat
    runs: list[Run] = []
    for own, at in _elements(held):
        inside, places = _places(pair, held.shape, own, shape)
        runs += _stretches(places, at[inside])
        if len(runs) > _RUNS_MAX:
            raise _Unmappable("the map cuts this rank's part of it into too many pieces")
    pieces = []
    for run in runs:  # each is a piece of its own, so that the others' memory is left out
        data = flat[run.local_start : run.local_start + run.length]
        pieces.append(Piece(data, [dataclasses.replace(run, local_start=0)]))
    return pieces


def _elements(held: Holding):
    """(indices in the whole tensor, in the local memory) of what is held, a chunk at a time."""
    for run in held.runs:
        rows = max(1, _CHUNK // run.length)
        for first in range(0, run.count, rows):
            row = torch.arange(first, min(run.count, first + rows)).unsqueeze(1)
            for low in range(0, run.length, _CHUNK):
                column = torch.arange(low, min(run.length, low + _CHUNK))
                own = run.start + row * run.stride + column
                at = run.local_start + row * run.local_stride + column
                yield own.reshape(-1), at.reshape(-1)


def _places(pair: Pair, own_shape, indices, shape):
    """\\returns (which of these elements are in the model's box, their indices in the checkpoint's
    tensor)."""
    coordinates = torch.unravel_index(indices, own_shape) if own_shape else ()
    inside = torch.ones(len(indices), dtype=torch.bool)
    for each, start, size in zip(coordinates, pair.own.offsets, pair.own.sizes):
        inside &= (each >= start) & (each < start + size)
    within = [each[inside] - start for each, start in zip(coordinates, pair.own.offsets)]
    none = torch.zeros(int(inside.sum()), dtype=torch.int64)
    sizes = pair.own.sizes
    for kind, value in pair.steps:
        if kind == "permute":
            within, sizes = [within[dim] for dim in value], tuple(sizes[dim] for dim in value)
        elif kind == "reshape":
            number = _ravelled(within, sizes, none)
            within, sizes = list(torch.unravel_index(number, value)) if value else [], value
    moved = [each + start for each, start in zip(within, pair.theirs.offsets)]
    return inside, _ravelled(moved, shape, none)


def _ravelled(coordinates, shape, none):
    """Row-major indices of elements, tensors or numbers. none: the zero of which they are."""
    return functools.reduce(
        lambda number, each: number * each[1] + each[0], zip(coordinates, shape), none
    )


def _stretches(places, at) -> list[Run]:
    """Runs of what lies one after the other in both."""
    if not len(places):
        return []
    breaks = ((places.diff() != 1) | (at.diff() != 1)).nonzero().reshape(-1) + 1
    begins = torch.cat([breaks.new_zeros(1), breaks])
    ends = torch.cat([breaks, breaks.new_tensor([len(places)])])
    return [
        Run(start, length, local_start=local)
        for start, length, local in zip(
            places[begins].tolist(), (ends - begins).tolist(), at[begins].tolist(), strict=True
        )
    ]


# ---- Padding -------------------------------------------------------------------------------------


def _hold_to_value(fill: Fill, held: Holding, record: Record, found: Mapped, rank: int):
    """What is padded must hold the value that the map says."""
    if record.meta or record.unreadable or record.misfit or held.local is None:
        return
    blocks = _blocks(held)
    if blocks is None:
        found.left[held.name] = "padding of a tensor that is not cut by rows or columns"
        return
    if len(fill.value) != held.dtype.itemsize:
        return  # it is of another dtype, which is found where its values are compared
    for shared, data in _inside(blocks, fill.own):
        expected = torch.frombuffer(bytearray(fill.value), dtype=data.dtype).to(data.device)
        # By bits: -0 is no 0, and NaN equals itself.
        size = data.element_size()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
        differs = (data.view(bits) != expected.view(bits)).nonzero()
        if len(differs):
            at = [int(each) + low for each, (low, _) in zip(differs[0], shared)]
            index = _ravelled(at, held.shape, 0)
            value, count = data[tuple(differs[0].tolist())].item(), len(differs)
            are = "element of its padding is" if count == 1 else "elements of its padding are"
            says = f"not {expected.item()}, as the map says"
            what = f"{count} {are} {says}; the first of them is {value}"
            found.padding[held.name] = [((rank,), what, index)]
            return
        found.padded.append((held, data))
