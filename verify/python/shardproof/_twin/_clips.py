"""Norms that gradients were clipped by."""

import dataclasses
import math


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
