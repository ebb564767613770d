"""Where the elements that a rank holds lie in the whole tensor.

The arithmetic is our own: from a tensor's global shape, its mesh and its placements, as the
documentation of `torch.distributed.tensor` defines them, never from what a framework computed.
"""

import dataclasses
import itertools
import math

Interval = tuple[int, int]  # [begin, end), indices of one tensor dim


@dataclasses.dataclass(frozen=True)
class Run:
    """`count` stretches of `length` elements, `stride` apart in the global row-major order.

    In the local memory they begin at element `local_start`, `local_stride` apart.
    """

    start: int
    length: int
    count: int = 1
    stride: int = 0
    local_start: int = 0
    local_stride: int = 0


def of_pairs(run: Run) -> Run:
    """The same where each element is a pair."""
    return Run(
        2 * run.start, 2 * run.length, run.count, 2 * run.stride,
        2 * run.local_start, 2 * run.local_stride,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Placement:
    """How a tensor lies on one mesh axis: "replicate", "shard", "partial", "strided_shard",
    "flat_shard" or "uneven_shard".

    A flat shard is a stretch of the flattened tensor.
    """

    kind: str
    dim: int = 0
    split_factor: int = 1


def _take(intervals: list[Interval], begin: int, end: int) -> list[Interval]:
    """Elements [begin, end) of the concatenation of `intervals`."""
    taken, offset = [], 0
    for low, high in intervals:
        first, last = max(begin - offset, 0), min(end - offset, high - low)
        if first < last:
            taken.append((low + first, low + last))
        offset += high - low
    return taken


def _chunk(intervals: list[Interval], parts: int, index: int) -> list[Interval]:
    """The `index`-th of `parts` chunks, as torch.chunk cuts: ceil(n / parts) each, the rest
    less."""
    size = sum(high - low for low, high in intervals)
    step = -(-size // parts)
    return _take(intervals, index * step, (index + 1) * step)


def owned_indices(shape, placements, mesh_shape, coordinates) -> list[list[Interval]]:
    """For each tensor dim the indices that a rank owns, in local order.

    Placements act from the first mesh axis to the last. A strided shard cuts the dim into
    `split_factor` pieces and takes its chunk of each.
    """
    owned = [[(0, size)] if size else [] for size in shape]
    for placement, parts, index in zip(placements, mesh_shape, coordinates, strict=True):
        if placement.kind == "shard":
            owned[placement.dim] = _chunk(owned[placement.dim], parts, index)
        elif placement.kind == "strided_shard":
            pieces = [
                _chunk(owned[placement.dim], placement.split_factor, piece)
                for piece in range(placement.split_factor)
            ]
            owned[placement.dim] = _joined(
                interval for piece in pieces for interval in _chunk(piece, parts, index)
            )
    return owned


def _joined(intervals) -> list[Interval]:
    """The same indices in the same order, neighbours that touch as one."""
    joined: list[Interval] = []
    for low, high in intervals:
        if joined and joined[-1][1] == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined


def runs_of(shape, owned: list[list[Interval]]) -> list[Run]:
    """The runs of a block of indices. \\returns [] if nothing is owned."""
    sizes = [sum(high - low for low, high in intervals) for intervals in owned]
    elements = math.prod(sizes)
    if elements == 0:
        return []
    dims = len(shape)
    inner_dim = dims  # dims from here on are whole
    while inner_dim > 0 and owned[inner_dim - 1] == [(0, shape[inner_dim - 1])]:
        inner_dim -= 1
    if inner_dim == 0:
        return [Run(0, elements)]
    cut = inner_dim - 1  # the last dim of which only a part is owned
    inner = math.prod(shape[inner_dim:])
    local_row = sizes[cut] * inner
    # Whole dims just before the cut repeat the stretch at one stride.
    repeat_dim = cut
    while repeat_dim > 0 and owned[repeat_dim - 1] == [(0, shape[repeat_dim - 1])]:
        repeat_dim -= 1
    repeats = [range(math.prod(shape[repeat_dim:cut]))]
    stride = shape[cut] * inner
    if repeat_dim == cut and cut > 0:  # the dim before is cut too: its intervals repeat
        repeat_dim = cut - 1
        repeats = [range(low, high) for low, high in owned[repeat_dim]]
    outer_strides = [math.prod(shape[dim + 1 :]) for dim in range(dims)]
    runs = []
    local = 0
    outer = [
        [index for low, high in owned[dim] for index in range(low, high)]
        for dim in range(repeat_dim)
    ]
    for indices in itertools.product(*outer):
        base = sum(index * outer_strides[dim] for dim, index in enumerate(indices))
        for repeat in repeats:
            times = len(repeat)
            first = base + repeat.start * stride
            within = 0
            for low, high in owned[cut]:
                length = (high - low) * inner
                runs.append(
                    Run(
                        first + low * inner,
                        length,
                        times,
                        stride if times > 1 else 0,
                        local + within,
                        local_row if times > 1 else 0,
                    )
                )
                within += length
            local += local_row * times
    return runs


def local_runs(shape, placements=(), mesh_shape=(), coordinates=()) -> list[Run]:
    """What a rank at `coordinates` of a mesh owns of a tensor of `shape`; elements.

    Without placements: all of it.
    """
    if not placements:
        return flat_runs(0, math.prod(shape))
    return runs_of(shape, owned_indices(shape, placements, mesh_shape, coordinates))


def chunk_runs(shape, chunks) -> list[Run]:
    """Of blocks, each (offsets, sizes), one after the other in the local memory; elements."""
    runs, before = [], 0
    for offsets, sizes in chunks:
        owned = [[(low, low + size)] if size else [] for low, size in zip(offsets, sizes)]
        for run in runs_of(shape, owned):
            runs.append(dataclasses.replace(run, local_start=run.local_start + before))
        before += math.prod(sizes)
    return runs


def element_count(runs: list[Run]) -> int:
    if len(runs) == 1:  # as of nearly all tensors
        return runs[0].length * runs[0].count
    return sum(run.length * run.count for run in runs)


def flat_runs(begin: int, end: int) -> list[Run]:
    """A slice [begin, end) of the flattened tensor."""
    return [Run(begin, end - begin)] if end > begin else []
