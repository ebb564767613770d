"""Names the first element that differs between two ranks, by digests of ever smaller blocks."""

import dataclasses
import math

from . import _digest
from ._holding import bytes_of
from ._judge import Finding, peers_of

_BYTES_MAX = 1 << 16  # how little is left when bytes are fetched
_BLOCKS = 256


def locate(finding: Finding, records, tensors, gather) -> Finding:
    """Every rank takes part in what is gathered, one that does not hold the tensor too; only the
    two sides read theirs. gather: a Gather."""
    odd = finding.ranks[0]
    peers = peers_of(odd, finding, records)
    if not peers[1]:
        return finding
    held = tensors[finding.tensor] if gather.rank in [*peers[0], *peers[1]] else None
    own = records[odd][finding.tensor]
    # Of two that differ neither is the odd one.
    others = "the other ranks" if len(own.groups.alike) > 2 else f"rank {peers[1][0]}"
    size = own.element_bytes
    begin, end = 0, math.prod(own.shape) * size
    while end - begin > _BYTES_MAX:
        side = -(-(end - begin) // _BLOCKS // 4096) * 4096
        low = begin // side
        count = -(-end // side) - low
        blocks = _digest.digest_runs(held.local, held.runs, side, low, count).blocks if held else 0
        everybody = gather(blocks)
        one, other = (sum(everybody[rank] for rank in ranks) for ranks in peers)
        differing = (one != other).any(1).nonzero()
        if not len(differing):
            return finding
        block = int(differing[0])
        begin, end = max(begin, (low + block) * side), min(end, (low + block + 1) * side)
    everybody = gather(bytes_of(held, begin, end) if held else [])
    sides = [_bytes_of(everybody, ranks) for ranks in peers]
    for at in range(begin, end):
        if sides[0].get(at) != sides[1].get(at):
            index = at // size
            seen, expected = (
                bytes(side.get(index * size + i, 0) for i in range(size))[::-1].hex()
                for side in sides
            )
            what = f"element {index} is 0x{seen}, on {others} 0x{expected}"
            return dataclasses.replace(finding, what=what, index=index)
    return finding


def _bytes_of(everybody, ranks) -> dict[int, int]:
    return {
        start + i: byte
        for rank in ranks
        for start, data in everybody[rank]
        for i, byte in enumerate(data)
    }
