"""Which elements two cuts of one tensor have in common, and where each has them in its memory."""

import bisect
import itertools
from collections.abc import Iterator

from ._layout import Run

Pair = tuple[Run, Run]  # the same elements: in the memory of the one, and of the other


def overlap(one: list[Run], other: list[Run]) -> list[Pair]:
    """The elements that both runs have. \\returns pairs that have start, length, count and stride
    in common; `one` and `other` may be in any order and overlap nothing of their own."""
    other = sorted(other, key=lambda run: run.start)
    starts = [run.start for run in other]
    reached = list(itertools.accumulate(map(_end, other), max))  # no run before ends later
    found = []
    for run in one:
        first, last = bisect.bisect_right(reached, run.start), bisect.bisect_left(starts, _end(run))
        for candidate in other[first:last]:
            found += _common(run, candidate)
    return found


def _end(run: Run) -> int:
    return run.start + (run.count - 1) * run.stride + run.length


def _common(a: Run, b: Run) -> Iterator[Pair]:
    if a.start >= _end(b) or b.start >= _end(a):
        return
    if a.count == 1:
        for part in clip(b, a.start, _end(a)):
            yield _within(a, part), part
    elif b.count == 1:
        for part in clip(a, b.start, _end(b)):
            yield part, _within(b, part)
    elif a.stride == b.stride and _in_one_row(a) and _in_one_row(b):
        yield from _common_columns(a, b)
    elif a.count <= b.count:
        for stretch in _stretches(a):
            yield from _common(stretch, b)
    else:
        for stretch in _stretches(b):
            yield from _common(a, stretch)


def _in_one_row(run: Run) -> bool:
    """Whether each stretch lies in one of the rows of `stride` elements that begin at 0."""
    return run.start % run.stride + run.length <= run.stride


def _common_columns(a: Run, b: Run) -> Iterator[Pair]:
    """Of two that are columns of the same rows."""
    row = [run.start // run.stride for run in (a, b)]
    column = [run.start % run.stride for run in (a, b)]
    low = max(column)
    length = min(column[0] + a.length, column[1] + b.length) - low
    first = max(row)
    count = min(row[0] + a.count, row[1] + b.count) - first
    if length <= 0 or count <= 0:
        return
    start = first * a.stride + low
    parts = [
        Run(start, length, count, a.stride,
            run.local_start + (first - row[i]) * run.local_stride + low - column[i],
            run.local_stride)
        for i, run in enumerate((a, b))
    ]  # fmt: skip
    yield parts[0], parts[1]


def _stretches(run: Run) -> Iterator[Run]:
    for i in range(run.count):
        at = run.local_start + i * run.local_stride
        yield Run(run.start + i * run.stride, run.length, local_start=at)


def _within(whole: Run, part: Run) -> Run:
    """The elements of `part`, all of which are in the one stretch of `whole`."""
    at = whole.local_start + part.start - whole.start
    return Run(part.start, part.length, part.count, part.stride, at, part.stride)


def clip(run: Run, low: int, high: int) -> Iterator[Run]:
    """What a run has of the elements [low, high): its first and last stretch may be cut."""
    stride = run.stride or run.length
    first = min(max((low - run.start) // stride, 0), run.count - 1)
    last = min(max((high - 1 - run.start) // stride, 0), run.count - 1)
    whole = first, last + 1  # the stretches that are not cut
    for i in sorted({first, last}):
        start = run.start + i * run.stride
        begin, end = max(start, low), min(start + run.length, high)
        if end - begin == run.length:
            continue
        whole = (whole[0] + (i == first), whole[1] - (i == last))
        if begin < end:
            at = run.local_start + i * run.local_stride + begin - start
            yield Run(begin, end - begin, local_start=at)
    count = whole[1] - whole[0]
    if count > 0:
        yield Run(
            run.start + whole[0] * run.stride, run.length, count, run.stride if count > 1 else 0,
            run.local_start + whole[0] * run.local_stride, run.local_stride if count > 1 else 0,
        )  # fmt: skip
