"""Whether a call is like one before, on all ranks."""

import os
from collections.abc import Mapping

import torch
import torch.distributed as dist

from .._holdings import _dtensor
from .._holdings._groups import DeviceMesh, ranks_of
from .._holdings._unchanged import Unplain

_NUMBER_BYTES = 7
_VALUES = (bool, int, float, str, range, torch.dtype)  # that cannot be changed in place
if DeviceMesh is not None:
    _VALUES += (DeviceMesh,)


def numbered(kept, transport):
    """Every rank calls it. kept: what a rank keeps of a call, whose `number` becomes the same on
    all ranks, and of this call alone; None if it keeps nothing: then no rank keeps anything."""
    drawn = 0 if kept is None else 1 + int.from_bytes(os.urandom(_NUMBER_BYTES), "little")
    numbers = [each for (each,) in transport.everybody([drawn])]
    if not all(numbers):
        return None
    kept.number = numbers[0]
    return kept


def frozen(value):
    """By value, so that what a caller changes in place is seen. \raises Unplain for what may be
    another in the next call and look the same."""
    if isinstance(value, Mapping):
        return tuple((key, frozen(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if value is None or isinstance(value, _VALUES) or _dtensor.is_a("Placement", value):
        return value
    if hasattr(dist, "ProcessGroup") and isinstance(value, dist.ProcessGroup):
        return ranks_of(value)
    raise Unplain
