"""Blocks: stretches of large tensors that are digested apart, so that what is wrong within a tensor
can be told. They are cut in the whole tensor, so that they do not depend on how ranks cut it."""

import math

import torch

from .._digests import _digest
from .._holdings._holding import Holding
from .._holdings._layout import Run
from .._holdings._overlap import clip

_BYTES_MIN = 1 << 22
_BLOCKS_MAX = 2048  # of all tensors that a rank has a part of, but for those that are not full

# What a rank has of a tensor's blocks: {number of the block: (coverage, digest)}.
Held = dict[int, tuple[tuple[int, int], tuple[int, int]]]


def bytes_for(nbytes: int) -> int:
    """The size of the blocks of tensors that have so many bytes together: a power of two."""
    size = _BYTES_MIN
    while size * _BLOCKS_MAX < nbytes:
        size *= 2
    return size


def count_of(shape, element_bytes: int, block_bytes: int) -> int:
    """0 of a tensor that is one block or less."""
    count = -(-math.prod(shape) * element_bytes // block_bytes) if block_bytes else 0
    return count if count > 1 else 0


def count_in(held: Holding, block_bytes: int, dtype: torch.dtype | None = None) -> int:
    """Of memory that the op reads where it lies: blocks of any other are not digested apart.
    dtype: that its values are cast to before, if they are."""
    local, dtype = held.local, dtype or held.local.dtype
    if not local.is_contiguous() or dtype in _digest.ONE_NAN or not local.numel():
        return 0
    is_read = _digest.is_on_gpu(local) or (local.device.type == "cpu" and _digest.has_op())
    return count_of(held.shape, dtype.itemsize, block_bytes) if is_read else 0


def whole(number: int, shape, element_bytes: int, block_bytes: int) -> Run:
    """All elements of a block."""
    size = block_bytes // element_bytes
    begin = number * size
    return Run(begin, min(size, math.prod(shape) - begin))


def cut(runs: list[Run], element_bytes: int, block_bytes: int) -> dict[int, list[Run]]:
    """The runs of each block, by its number."""
    size, found = block_bytes // element_bytes, {}
    for run in runs:
        last = run.start + (run.count - 1) * run.stride + run.length - 1
        for number in range(run.start // size, last // size + 1):
            found.setdefault(number, []).extend(clip(run, number * size, (number + 1) * size))
    return {number: each for number, each in sorted(found.items()) if each}


def summarised(local, runs: list[Run], block_bytes: int, count: int):
    """Of memory in one pass: \\returns (Summary, Held)."""
    size = local.element_size()
    summary = _digest.digest_runs(local, runs, block_bytes, 0, count)
    digests = summary.blocks.tolist()
    held = {
        number: (_digest.coverage(each, size), _digest.add((0, 0), digests[number]))
        for number, each in cut(runs, size, block_bytes).items()
    }
    return summary, held
