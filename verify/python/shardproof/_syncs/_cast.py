"""In which dtypes a trainer sends its tensors: what `cast` of `seal` says."""

import dataclasses
import fnmatch
from collections.abc import Mapping

import torch

from .._holdings._holding import Holding
from ._scaled import Scaled

Steps = tuple[torch.dtype | None, Scaled | None]


def steps_of(held: Holding, cast) -> Steps:
    """The dtype that it is sent in, if that is another one, and what it is then quantised to.
    \\raises TypeError."""
    if isinstance(cast, Mapping):
        cast = next((to for each, to in cast.items() if fnmatch.fnmatchcase(held.name, each)), None)
    if cast is None or not held.dtype.is_floating_point:
        return None, None
    dtype, scaled = cast if isinstance(cast, tuple) and len(cast) == 2 else (None, cast)
    if not isinstance(scaled, Scaled):
        dtype, scaled = scaled if dtype is None else cast, None
    if not isinstance(dtype, torch.dtype | None):
        raise TypeError(
            f"cast: expected a dtype, a Scaled, (dtype, Scaled) or {{pattern: one of these}}, "
            f"found {cast!r}"
        )
    # What cannot be read says so when it is sealed.
    readable = held.local is not None and not held.misfit
    return None if dtype == held.dtype else dtype, scaled if readable else None


def to_dtype(held: Holding, dtype: torch.dtype | None) -> Holding:
    if dtype is None:
        return held
    local = None if held.local is None else held.local.to(dtype)
    return dataclasses.replace(held, dtype=dtype, local=local)


def quantises(cast) -> bool:
    return bool(_scaled_in(cast))


def rounds(manifest, cast) -> bool:
    """Whether small steps of an optimizer may leave all that is sent as it was: floats have fewer
    than 32 bits, but for the scales of codes."""
    suffixes = tuple(each.suffixes[1] for each in _scaled_in(cast))
    dtypes = {
        entry["dtype"]
        for name, entry in manifest.seal["tensors"].items()
        if not (suffixes and name.endswith(suffixes))
    }
    return not dtypes & {"F32", "F64"}


def _scaled_in(cast) -> list[Scaled]:
    said = cast.values() if isinstance(cast, Mapping) else [cast]
    flat = [part for each in said for part in (each if isinstance(each, tuple) else (each,))]
    return [each for each in flat if isinstance(each, Scaled)]
