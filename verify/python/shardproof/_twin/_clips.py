"""Norms that gradients were clipped by."""

import dataclasses
import math

import torch


def part_of_norm(norm, norm_type) -> tuple[float, int] | None:
    """Of a DTensor: see Clip. None if it is none, or is not made up by that norm."""
    mesh = getattr(norm, "device_mesh", None)
    if mesh is None or mesh.size() != torch.distributed.get_world_size():
        return None
    copies = mesh.size()
    for axis, placement in enumerate(norm.placements):
        if placement.is_partial() and _reduces_to(placement) == norm_type:
            copies //= mesh.size(axis)
        elif not placement.is_replicate():
            return None
    return float(norm.to_local()), copies


def _reduces_to(placement):
    """Which norm it makes of those of parts."""
    is_largest = placement.reduce_op == "max"
    return float("inf") if is_largest else getattr(placement, "norm_type", None)


def whole(clips) -> list[list]:
    """clips: of each rank. A norm that each rank has a part of is put together."""
    found = [list(own) for own in clips]
    for index in range(min(map(len, clips))):
        parts = [own[index].part for own in clips]
        if None in parts:
            continue
        norm = _norm([value for value, _ in parts], clips[0][index].norm_type, parts[0][1])
        for own in found:
            own[index] = dataclasses.replace(own[index], norm=norm)
    return found


def _norm(parts, kind, copies):
    """copies: how many ranks have the same part."""
    if not all(map(math.isfinite, parts)):
        return math.nan  # which nothing is held against
    if math.isinf(kind):
        return max(parts)
    return (sum(each**kind for each in parts) / copies) ** (1 / kind)
