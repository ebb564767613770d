"""Axes of a mesh, and axes that are laid over some of them, as verify/case/axes.h has them."""

import dataclasses
import math

import torch


@dataclasses.dataclass(frozen=True)
class LaidOver:
    """size: ranks along an axis that multiplies nothing but divides the ranks of others: `axes`,
    by name. It is the inner part of them."""

    size: int
    axes: tuple[str, ...]


def rest_of(mesh: dict[str, int], name: str, laid: LaidOver) -> tuple[str, int]:
    """What an axis leaves of those that it is laid over: ("dp_shard_mod_ep", 2)."""
    below = [axis for axis in mesh if axis in laid.axes]
    size = math.prod(mesh[axis] for axis in below) // laid.size
    return f"{'_'.join(below)}_mod_{name}", size


def divided(mesh: dict[str, int], laid_over: dict[str, LaidOver], names):
    """names: of axes in laid_over, each of which takes the place of those that it divides.

    \\returns the names of all axes then, and the ranks: int64, one dim an axis.
    \\raises ValueError for an unknown name, or two names that divide the same axis.
    """
    taken: dict[str, str] = {}
    for name in names:
        if name not in laid_over:
            known = ", ".join(laid_over) or "none"
            raise ValueError(f"axis {name!r} is laid over no others here; those that are: {known}")
        for below in laid_over[name].axes:
            if below in taken:
                raise ValueError(f"axes {taken[below]} and {name} both divide {below}")
            taken[below] = name
    axes, sizes, order = [], [], []
    for axis, size in mesh.items():
        name = taken.get(axis)
        if name is None:
            axes, sizes, order = [*axes, axis], [*sizes, size], [*order, axis]
        elif name not in axes:
            laid = laid_over[name]
            rest, left = rest_of(mesh, name, laid)
            axes, sizes = [*axes, rest, name], [*sizes, left, laid.size]
            order += [each for each in mesh if each in laid.axes]
    dims = [list(mesh).index(axis) for axis in order]
    ranks = torch.arange(math.prod(mesh.values()), device="cpu").reshape(tuple(mesh.values()))
    return tuple(axes), ranks.permute(dims).reshape(sizes)
