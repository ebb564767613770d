"""The partition-invariant digest (src/digest/SPECIFICATION.md) of a tensor's local memory.

`torch.ops.shardproof.digest` does the work where it is built; else the same bits come from plain
PyTorch operations, more slowly. Either way a digest is a pair of integers modulo 2^64 that adds up
over any disjoint cover of the tensor, and nothing of the tensor's size is allocated.
"""

import array
import ctypes
import dataclasses
import functools
import math

import torch

from .._holdings._layout import Run, element_count, flat_runs
from . import _gpu, _load_op

MASK = (1 << 64) - 1
_BLOCK_WORDS = 1024
_BLOCK_BYTES = 4096
_CHUNK_BYTES = 1 << 20  # how much of a tensor is looked at at once without the built op
_COPY_BYTES = 1 << 24  # how much is copied to the host at once

# As sp_float_format in src/digest/digest.h; a complex number is two.
FLOAT_FORMATS = {
    torch.complex32: 1,
    torch.complex64: 3,
    torch.complex128: 4,
    torch.float16: 1,
    torch.bfloat16: 2,
    torch.float32: 3,
    torch.float64: 4,
    torch.float8_e4m3fn: 5,
    torch.float8_e5m2: 6,
}
# Dtypes of one byte that have no Inf and one NaN: its bits.
ONE_NAN = {
    torch.float8_e8m0fnu: 0xFF,
    torch.float8_e4m3fnuz: 0x80,
    torch.float8_e5m2fnuz: 0x80,
}
_HAVE_NAN = FLOAT_FORMATS.keys() | ONE_NAN.keys()


@dataclasses.dataclass
class Summary:
    """What one pass over some runs yields; `blocks`: [n, 2] int64, the digests of the blocks;
    `coverage`: of the runs, where the pass yields it too."""

    blocks: torch.Tensor
    digest: tuple[int, int] = (0, 0)
    nan_count: int = 0
    inf_count: int = 0
    coverage: tuple[int, int] | None = None

    def hex(self) -> str:
        return hex_of(self.digest)


def hex_of(digest) -> str:
    return f"{digest[0] & MASK:016x}{digest[1] & MASK:016x}"


def hex_of_blocks(blocks: torch.Tensor) -> str:
    """The digests of blocks, [n, 2] int64, one behind the other."""
    high_first = blocks.contiguous().view(torch.uint8).view(-1, 8).flip(1)
    return ctypes.string_at(high_first.data_ptr(), high_first.numel()).hex()


def digests_of(lanes) -> torch.Tensor:
    """int64 [n, 2], a copy of lanes or their bytes."""
    if not len(lanes):
        return no_blocks(0)
    return torch.frombuffer(bytearray(lanes), dtype=torch.int64).view(-1, 2)


_has_op: bool | None = None


def has_op() -> bool:
    """Whether the built op computes the digests."""
    global _has_op
    if _has_op is None:
        _has_op = _load_op.load_op()
    return _has_op


def digest_runs(local: torch.Tensor, runs: list[Run], block_bytes=0, first_block=0, block_count=0):
    """Digest, NaN and Inf count of what a rank holds of one tensor.

    local: the memory, any strides and dtype; `runs` count its elements in row-major order. Blocks
    [first_block, first_block + block_count) of `block_bytes` of the global byte image are digested
    apart besides. \\returns Summary. \\raises ValueError if runs and memory do not fit.
    """
    if checked_count(local, runs) == 0:
        return Summary(no_blocks(block_count))
    local = local.detach()
    if is_on_gpu(local):
        try:
            pieces = _contiguous_parts(local, runs)
            return _pass_over(pieces, block_bytes, first_block, block_count)
        except RuntimeError as error:
            _gpu.give_up(local.device, error)
    pieces = _contiguous_parts if local.device.type == "cpu" else _copied_parts
    return _pass_over(pieces(local, runs), block_bytes, first_block, block_count)


def is_on_gpu(local: torch.Tensor) -> bool:
    """Whether the kernel for GPUs digests the tensor where it lies; else a tensor on a GPU is
    copied to the host, a piece at a time."""
    return local.device.type == "cuda" and has_op() and _gpu.takes(local)


def checked_count(local, runs) -> int:
    held = element_count(runs)
    if held != local.numel():
        raise ValueError(f"{held} elements are owned, the local tensor has {local.numel()}")
    return held


def no_blocks(count) -> torch.Tensor:
    return torch.zeros(count, 2, dtype=torch.int64, device="cpu")


def _pass_over(pieces, block_bytes, first_block, block_count) -> Summary:
    summary = Summary(no_blocks(block_count))
    for part, part_runs in pieces:
        _add(summary, part, part_runs, block_bytes, first_block, block_count)
    return summary


def _contiguous_parts(local, runs):
    """The memory in row-major order where it lies: as it is if it lies so, else piece by piece."""
    if local.is_contiguous():
        yield local, runs
        return
    while local.shape[0] == 1:  # it is cut along the first dim that has more
        local = local[0]
    order = sorted(runs, key=lambda run: run.local_start)
    row = local.numel() // local.shape[0]
    most = _CHUNK_BYTES if local.device.type == "cpu" else _COPY_BYTES
    step = max(1, most // max(1, local.element_size() * row))
    for first in range(0, local.shape[0], step):
        part = local[first : first + step].contiguous()
        yield part, _cut(order, first * row, first * row + part.numel())


def _copied_parts(local, runs):
    """Of another device: through a host copy of a piece at a time."""
    step = _COPY_BYTES // local.element_size()
    for part, part_runs in _contiguous_parts(local, runs):
        flat = part.reshape(-1)
        order = sorted(part_runs, key=lambda run: run.local_start)
        for first in range(0, flat.numel(), step):
            piece = flat[first : first + step].cpu()
            yield piece, _cut(order, first, first + piece.numel())


def _cut(runs, begin, end):
    """The runs of local elements [begin, end), counted from `begin`."""
    kept = []
    for run in runs:
        step = run.local_stride
        first, last = 0, run.count - 1
        if run.count > 1:  # the stretches that are whole stay one run
            first = max(0, -(-(begin - run.local_start) // step))
            last = min(last, (end - run.length - run.local_start) // step)
        for i in {*range(max(0, first - 1), first), *range(max(first, last + 1), last + 2)}:
            if i < run.count:
                _add_cut(kept, run, i, begin, end)
        if run.count == 1 or last == first:
            _add_cut(kept, run, first, begin, end)
        elif last > first:
            kept.append(Run(run.start + first * run.stride, run.length, last - first + 1,
                            run.stride, run.local_start + first * step - begin, step))  # fmt: skip
    return kept


def _add_cut(kept, run, i, begin, end):
    """What of the run's i-th stretch is in [begin, end)."""
    low = run.local_start + i * run.local_stride
    first, last = max(begin, low), min(end, low + run.length)
    if first < last:
        kept.append(Run(run.start + i * run.stride + first - low, last - first,
                        local_start=first - begin))  # fmt: skip


def _add(summary, local, runs, block_bytes, first_block, block_count):
    size = local.element_size()
    flat = local.reshape(-1).view(torch.uint8)
    table = _table(runs, size)
    float_format = FLOAT_FORMATS.get(local.dtype, 0)
    if has_op():
        found = torch.ops.shardproof.digest(
            flat, table, float_format, block_bytes, first_block, block_count
        ).cpu()
        *lanes, nan, inf = found[:4].tolist()
        if local.dtype in ONE_NAN:
            nan, inf = _count_non_finite(local)
        blocks = found[4:].view(-1, 2)
    else:
        pairs = _Grid(block_bytes, first_block, block_count)
        for row in table.tolist():
            pairs.add(flat, *row)
        lanes, blocks = pairs.total, pairs.blocks.T
        nan, inf = _count_non_finite(local)
    summary.digest = add(summary.digest, lanes)
    summary.nan_count += nan
    summary.inf_count += inf
    summary.blocks += blocks  # int64 wraps as uint64 does


def digest_bytes(data: torch.Tensor, runs: list[Run]) -> tuple[int, int]:
    """Of bytes that were read: data is 1-D uint8 on the CPU, and may hold more than the runs, which
    count bytes."""
    if has_op():
        found = torch.ops.shardproof.digest(data, _table(runs, 1), 0, 0, 0, 0)
        return add((0, 0), found[:2].tolist())
    grid = _Grid(0, 0, 0)
    for row in _table(runs, 1).tolist():
        grid.add(data, *row)
    return add((0, 0), grid.total)


def _table(runs, size) -> torch.Tensor:
    """As `add_runs` adds them, [n, 6]."""
    numbers = array.array("q")
    add_runs(numbers, runs, size)
    return table_of(numbers, 6)


def add_runs(numbers: array.array, runs, size):
    """Each in bytes: start, length, count, stride, local start, local stride."""
    for run in runs:
        numbers.extend((run.start * size, run.length * size, run.count, run.stride * size,
                        run.local_start * size, run.local_stride * size))  # fmt: skip


def table_of(numbers: array.array, width: int) -> torch.Tensor:
    """int64 [n, width], over the same memory."""
    if not numbers:
        return torch.zeros(0, width, dtype=torch.int64, device="cpu")
    return torch.frombuffer(numbers, dtype=torch.int64).view(-1, width)


def add(a, b):
    """The digest of the union of two disjoint sets of bytes."""
    return (a[0] + b[0]) & MASK, (a[1] + b[1]) & MASK


def coverage(runs: list[Run], element_bytes: int) -> tuple[int, int]:
    """The digest of the runs of an image whose bytes are all 1: shows gaps and overlaps."""
    return _coverage(tuple(runs), element_bytes)


@functools.lru_cache(maxsize=1 << 12)  # layers are cut alike, and are cut so in the next step
def _coverage(runs, element_bytes):
    total = (0, 0)
    if runs and has_op():
        lanes = torch.ops.shardproof.coverage(_table(runs, element_bytes)).tolist()
        return add(total, lanes)
    for run in runs:
        first = run.start * element_bytes
        begins = first + torch.arange(run.count, device="cpu") * (run.stride * element_bytes)
        total = add(total, _ones(begins, run.length * element_bytes))
    return total


@functools.lru_cache(maxsize=1 << 12)
def coverage_of_all(shape, element_bytes: int) -> tuple[int, int]:
    """Of all elements of a tensor."""
    return coverage(flat_runs(0, math.prod(shape)), element_bytes)


# ---- The same bits by plain PyTorch --------------------------------------------------------------


def _mix(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser on int64, whose arithmetic wraps as that of uint64."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _make_keys() -> torch.Tensor:
    """[2, 1024] int64: key(lane, word)."""
    words = torch.arange(2 * _BLOCK_WORDS, device="cpu")
    return (_shift(_mix(words + 0x5368617264000000), 32) | 1).view(2, _BLOCK_WORDS)


def _factors(first: int, count: int) -> torch.Tensor:
    """[2, count] int64: factor(lane, block) of the blocks from `first` on."""
    return _factors_of(torch.arange(first, first + count, device="cpu"))


def _factors_of(blocks: torch.Tensor) -> torch.Tensor:
    """[2, n] int64 of the n blocks."""
    lanes = torch.stack([blocks, blocks + _signed(1 << 63)])
    return _mix(lanes + 0x70726F6F66000000) | 1


_keys: torch.Tensor | None = None


def _key_table() -> torch.Tensor:
    global _keys
    if _keys is None:
        _keys = _make_keys()
    return _keys


class _Grid:
    """Adds runs up in total and on a grid of blocks."""

    def __init__(self, block_bytes, first_block, block_count):
        self.total = (0, 0)
        self.blocks = torch.zeros(2, block_count, dtype=torch.int64, device="cpu")
        self._block_bytes = block_bytes
        self._first = first_block

    def add(self, flat, start, length, count, stride, local_start, local_stride):
        """One run; all figures in bytes. `flat`: uint8, 1-D."""
        if count > 1 and length < _BLOCK_BYTES:
            return self._add_short(flat, start, length, count, stride, local_start, local_stride)
        for i in range(count):
            at = local_start + i * local_stride
            self._add_stretch(flat[at : at + length], start + i * stride)
        return None

    def _add_stretch(self, data, start):
        """Consecutive bytes, a chunk of whole 4 KiB blocks at a time."""
        end = start + data.numel()
        chunk_begin = start // _BLOCK_BYTES * _BLOCK_BYTES
        while chunk_begin < end:
            chunk_end = chunk_begin + _CHUNK_BYTES
            low, high = max(start, chunk_begin), min(end, chunk_end)
            blocks = -(-(high - chunk_begin) // _BLOCK_BYTES)
            padded = torch.zeros(blocks * _BLOCK_BYTES, dtype=torch.uint8, device="cpu")
            padded[low - chunk_begin : high - chunk_begin] = data[low - start : high - start]
            words = (padded.view(torch.int32).to(torch.int64) & 0xFFFFFFFF).view(blocks, -1)
            first = chunk_begin // _BLOCK_BYTES
            sums = torch.stack([(words * lane).sum(1) for lane in _key_table()])
            self._add_blocks(sums * _factors(first, blocks), first)
            chunk_begin = chunk_end

    def _add_short(self, flat, start, length, count, stride, local_start, local_stride):
        """Many short stretches, byte by byte, as many at once as the chunk allows."""
        step = max(1, _CHUNK_BYTES // 16 // length)
        within = torch.arange(length, device="cpu")
        for i in range(0, count, step):
            rows = torch.arange(i, min(count, i + step), device="cpu")
            positions = (start + rows * stride).unsqueeze(1) + within
            at = flat.storage_offset() + local_start + i * local_stride
            data = torch.as_strided(flat, (len(rows), length), (local_stride, 1), at)
            words = data.to(torch.int64) << (8 * (positions % 4))
            blocks = positions // _BLOCK_BYTES
            first = int(blocks.min())
            number = int(blocks.max()) - first + 1
            index = positions // 4 % _BLOCK_WORDS
            sums = torch.zeros(2, number, dtype=torch.int64, device="cpu")
            for lane, keys in zip(sums, _key_table(), strict=True):
                lane.index_add_(0, (blocks - first).reshape(-1), (words * keys[index]).reshape(-1))
            self._add_blocks(sums * _factors(first, number), first)

    def _add_blocks(self, sums, first):
        """sums: [2, n], the digests of the 4 KiB blocks from `first` on."""
        self.total = add(self.total, sums.sum(1).tolist())
        count, number = self.blocks.shape[1], sums.shape[1]
        if not count:
            return
        per_block = self._block_bytes // _BLOCK_BYTES
        index = torch.arange(first, first + number, device="cpu") // per_block - self._first
        inside = (index >= 0) & (index < count)
        self.blocks.index_add_(1, index[inside], sums[:, inside])


_prefixes: torch.Tensor | None = None


def _prefix_table() -> torch.Tensor:
    """[2, 4097] int64: the coverage of the first n bytes of a block, before its factor."""
    global _prefixes
    if _prefixes is None:
        shifts = 8 * torch.arange(4, device="cpu")
        per_byte = (_key_table().unsqueeze(2) << shifts).reshape(2, _BLOCK_BYTES)
        _prefixes = torch.nn.functional.pad(per_byte.cumsum(1), (1, 0))
    return _prefixes


def _ones(begins: torch.Tensor, length: int) -> tuple[int, int]:
    """Coverage of the stretches [begin, begin + length), all begins int64."""
    if length == 0 or begins.numel() == 0:
        return 0, 0
    ends = begins + length
    first, last = begins // _BLOCK_BYTES, (ends - 1) // _BLOCK_BYTES
    low, high = begins - first * _BLOCK_BYTES, ends - last * _BLOCK_BYTES
    prefixes = _prefix_table()
    same = first == last
    head_end = torch.where(same, high, _BLOCK_BYTES)
    sums = (prefixes[:, head_end] - prefixes[:, low]) * _factors_of(first)
    tails = prefixes[:, high] * _factors_of(last)
    sums = sums + torch.where(same, 0, tails)
    total = tuple(sums.sum(1).tolist())
    whole = prefixes[:, _BLOCK_BYTES]
    if length > _BLOCK_BYTES:  # whole blocks between
        for a, b in zip(first.tolist(), last.tolist(), strict=True):
            for block in range(a + 1, b, 1 << 16):
                factors = _factors(block, min(1 << 16, b - block)).sum(1)
                total = add(total, (whole * factors).tolist())
    return total[0] & MASK, total[1] & MASK


def _count_non_finite(local: torch.Tensor) -> tuple[int, int]:
    if local.dtype not in _HAVE_NAN:
        return 0, 0
    nan = inf = 0
    flat = local.reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    for at in range(0, flat.numel(), _CHUNK_BYTES):
        part = flat[at : at + _CHUNK_BYTES]
        if part.dtype in ONE_NAN:
            nan += int((part.view(torch.uint8) == ONE_NAN[part.dtype]).sum())
            continue
        if part.dtype == torch.float8_e4m3fn:
            nan += int(((part.view(torch.uint8) & 0x7F) == 0x7F).sum())
            continue
        if part.dtype == torch.float8_e5m2:
            part = part.to(torch.float32)
        nan += int(torch.isnan(part).sum())
        inf += int(torch.isinf(part).sum())
    return nan, inf


def first_non_finite(local: torch.Tensor, runs: list[Run]) -> int | None:
    """Global element index of the first NaN or Inf that the rank holds."""
    if local.dtype not in _HAVE_NAN:
        return None
    found = []
    for part, part_runs in _contiguous_parts(local.detach().cpu(), runs):
        flat = part.reshape(-1)
        for run in part_runs:
            first = _first_in_run(flat, run)
            if first is not None:
                found.append(first)
    return min(found, default=None)


def _first_in_run(flat, run):
    step = max(1, _CHUNK_BYTES // run.length)
    for i in range(0, run.count, step):
        rows = min(step, run.count - i)
        for k in range(0, run.length, _CHUNK_BYTES):
            size = (rows, min(_CHUNK_BYTES, run.length - k))
            at = run.local_start + i * run.local_stride + k
            part = torch.as_strided(flat, size, (run.local_stride, 1), flat.storage_offset() + at)
            if part.element_size() == 1:
                part = part.to(torch.float32)
            bad = (~torch.isfinite(part)).nonzero()
            if len(bad):
                row, column = bad[0].tolist()
                return run.start + (i + row) * run.stride + k + column
    return None
