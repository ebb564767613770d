"""Reads from a checkpoint's files what a rank holds of a tensor, a piece of at most 16 MiB at once.

All runs are in bytes here, of the tensor's row-major image.
"""

import dataclasses
import os
from collections.abc import Iterator

import torch

from .._holdings import _layout
from .._holdings._layout import Run
from .._holdings._overlap import Pair, overlap
from ._checkpoint import Place, Stored, Unreadable, elements_of

_BUFFER_BYTES = 16 << 20
_GAP_BYTES = 4096  # what lies between two stretches is read along if it is no more

# A part of what was read: its bytes, the runs that say which of the tensor's they are, and the same
# runs in the memory of who asked.
Read = tuple[torch.Tensor, Run, Run]


def read_runs(stored: Stored, runs: list[Run], size: int) -> Iterator[Read]:
    """What a checkpoint has of the elements of `runs`; size: of an element.

    \\raises Unreadable if a file is not to be read or too short.
    """
    for piece in stored.pieces:
        ends = zip(piece.offsets, piece.sizes, strict=True)
        box = [[(low, low + length)] if length else [] for low, length in ends]
        pairs = overlap(runs, _layout.runs_of(stored.shape, box))
        if not pairs:
            continue
        place = piece.locate()
        own_and_filed = [(_in_bytes(own, size), _in_bytes(filed, size)) for own, filed in pairs]
        if place.strides is None:
            yield from _read(place, own_and_filed)
        else:
            image = _whole(place, piece.sizes, size)
            yield from ((image, filed, own) for own, filed in own_and_filed)


def _in_bytes(run: Run, size: int) -> Run:
    return Run(*(size * value if name != "count" else value
                 for name, value in dataclasses.asdict(run).items()))  # fmt: skip


def _read(place: Place, pairs: list[Pair]) -> Iterator[Read]:
    longest = max(max(filed.length, _span(filed)) for _, filed in pairs)
    memory = bytearray(min(_BUFFER_BYTES, longest))
    buffer = torch.frombuffer(memory, dtype=torch.uint8)
    try:
        file = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{place.path}: {error.strerror}") from error
    try:
        for pair in pairs:
            for own, filed in _parts(*pair, len(memory)):
                yield buffer, _fill(memory, file, place, filed), own
    finally:
        os.close(file)


def _span(run: Run) -> int:
    return (run.count - 1) * run.local_stride + run.length


def _is_dense(run: Run) -> bool:
    """Whether what lies between the stretches is read along."""
    return run.count == 1 or run.local_stride - run.length <= _GAP_BYTES


def _parts(own: Run, filed: Run, most: int) -> Iterator[Pair]:
    """Parts of a run that fit a buffer of `most` bytes."""
    if filed.length > most:
        for i in range(filed.count):
            for first in range(0, filed.length, most):
                length = min(most, filed.length - first)
                yield tuple(
                    Run(run.start + i * run.stride + first, length,
                        local_start=run.local_start + i * run.local_stride + first)
                    for run in (own, filed)
                )  # fmt: skip
        return
    rows = most // filed.length
    if filed.count > 1 and _is_dense(filed):
        rows = 1 + (most - filed.length) // max(filed.local_stride, 1)
    for first in range(0, filed.count, rows):
        count = min(rows, filed.count - first)
        yield tuple(
            dataclasses.replace(run, start=run.start + first * run.stride, count=count,
                                local_start=run.local_start + first * run.local_stride)
            for run in (own, filed)
        )  # fmt: skip


def _fill(memory, file, place: Place, filed: Run) -> Run:
    """Reads a run to the start of the memory. \\returns it as it lies there."""
    view = memoryview(memory)
    if _is_dense(filed):
        _read_into(view[: _span(filed)], file, place, filed.local_start)
        return dataclasses.replace(filed, local_start=0)
    for i in range(filed.count):
        to = view[i * filed.length : (i + 1) * filed.length]
        _read_into(to, file, place, filed.local_start + i * filed.local_stride)
    return dataclasses.replace(filed, local_start=0, local_stride=filed.length)


def _read_into(view, file, place: Place, start: int):
    done = 0
    while done < len(view):
        try:
            count = os.preadv(file, [view[done:]], place.offset + start + done)
        except OSError as error:
            raise Unreadable(f"{place.path}: {error.strerror}") from error
        if count == 0:
            end = place.offset + start + done
            raise Unreadable(f"{place.path}: it ends at byte {end}: it is cut short")
        done += count


def _whole(place: Place, sizes, size: int) -> torch.Tensor:
    """A piece whose elements do not lie in row-major order, in that order: all of it at once."""
    spans = zip(sizes, place.strides, strict=True)
    length = (1 + sum((n - 1) * step for n, step in spans)) * size if elements_of(sizes) else 0
    memory = bytearray(length)
    file = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _read_into(memoryview(memory), file, place, 0)
    finally:
        os.close(file)
    strides = [step * size for step in place.strides]
    data = torch.frombuffer(memory, dtype=torch.uint8)
    return torch.as_strided(data, (*sizes, size), (*strides, 1)).reshape(-1)
