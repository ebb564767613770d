"""Names the first element that differs between two ranks, by digests of ever smaller blocks."""

import dataclasses
import math
import struct

import torch

from .._digests import _digest
from .._holdings import _options
from .._holdings._holding import bytes_of
from ._finding import Finding

_BYTES_MAX = 1 << 16  # how little is left when bytes are fetched
_BLOCKS = 256


def locate(finding: Finding, tensors, transport) -> Finding:
    """Every rank takes part in what is added up, one that does not hold the tensor too; only the
    two sides read theirs, and what travels does not grow with the ranks."""
    sides = finding.sides
    if sides is None or not sides.other:
        return finding
    pair = _Pair(sides, tensors.get(finding.tensor), transport)
    size = sides.element_bytes
    begin, end = 0, math.prod(sides.shape) * size
    while end - begin > _BYTES_MAX:
        side = -(-(end - begin) // _BLOCKS // 4096) * 4096
        low = begin // side
        block = pair.first_block(side, low, -(-end // side) - low)
        if block is None:
            return finding
        begin, end = max(begin, (low + block) * side), min(end, (low + block + 1) * side)
    seen, expected = pair.data(begin, end) or (b"", b"")
    for at in range(begin, begin + len(seen)):
        if seen[at - begin] != expected[at - begin]:
            index = at // size
            first = index * size - begin
            one, other = (data[first : first + size][::-1].hex() for data in (seen, expected))
            if finding.kind == "option":
                return _of_option(finding, index, seen, expected, first, size)
            index = _in_whole(index, sides)
            what = f"element {index} is 0x{one}, on {sides.others} 0x{other}"
            if finding.kind == "ambiguous":
                what = f"{finding.what}; {what}"
            return dataclasses.replace(finding, what=what, index=index)
    return finding


def _of_option(finding, index, seen, expected, first, size) -> Finding:
    """In words: the element is an option of an optimizer, or how many steps it has taken."""
    is_count = finding.tensor.endswith(".steps")
    one, other = (struct.unpack("<q" if is_count else "<d", data[first : first + size])[0]
                  for data in (seen, expected))  # fmt: skip
    if is_count:
        what = f"its count of steps is {one}, on {finding.sides.others} {other}"
    else:
        name = _options.name_of(finding.tensor, index)
        what = f"its {name} is {one:g}, on {finding.sides.others} {other:g}"
    return dataclasses.replace(finding, what=what)


def _in_whole(index, sides) -> int:
    """An element that is counted as if all parts were of the size of this one."""
    if sides.moved is None:
        return index
    dim, seems, begins, whole = sides.moved
    inner = math.prod(sides.shape[dim + 1 :])
    outer, rest = divmod(index, sides.shape[dim] * inner)
    return outer * whole[dim] * inner + rest + (begins - seems) * inner


class _Pair:
    """The two sides: each byte of a side is one rank's, so that adding up puts it together."""

    def __init__(self, sides, held, transport):
        rank = transport.rank
        self._side = 0 if rank in sides.one else 1 if rank in sides.other else None
        self._held = held if self._side is not None else None
        self._transport = transport

    def first_block(self, block_bytes, low, count) -> int | None:
        """The first of the blocks that differ; None if none does, or a rank can no longer read."""

        def digests(held):
            return _digest.digest_runs(held.local, held.runs, block_bytes, low, count).blocks

        both = self._added(torch.zeros(2, count, 2, dtype=torch.int64), digests)
        differing = [] if both is None else (both[0] != both[1]).any(1).nonzero()
        return int(differing[0]) if len(differing) else None

    def data(self, begin, end) -> list[bytes] | None:
        """Of both sides; None if a rank can no longer read."""

        def own(held):
            data = bytearray(end - begin)
            for start, part in bytes_of(held, begin, end):
                data[start - begin : start - begin + len(part)] = part
            return torch.frombuffer(data, dtype=torch.uint8)

        both = self._added(torch.zeros(2, end - begin, dtype=torch.uint8), own)
        return None if both is None else [bytes(side.tolist()) for side in both]

    def _added(self, both, read):
        failed = torch.zeros(1, dtype=torch.int64)
        if self._held is not None:
            try:
                both[self._side] = read(self._held)
            except Exception:  # it was freed meanwhile: the others wait for this rank's part
                failed += 1
        self._transport.add_up(both)
        self._transport.add_up(failed)
        return None if failed.item() else both
