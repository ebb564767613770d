"""Stretches: what a rank's optimizer keeps of a parameter that all its ranks have, where a flat
buffer of many parameters is cut evenly over these ranks."""

import dataclasses

from . import _layout
from ._groups import Groups
from ._holding import Holding
from ._layout import Placement, Run


@dataclasses.dataclass(frozen=True)
class Stretch:
    """Elements [begin, end) of the parameter as this rank has it, flattened. group: the ranks over
    which it is cut; owners: those of them that have a part of it; empty if that is not known: then
    all of them say what they have."""

    begin: int
    end: int
    group: tuple[int, ...]
    owners: tuple[int, ...]

    @classmethod
    def of_flat(cls, begin, end, part, group, rank) -> "Stretch":
        """Of a parameter at elements [begin, end) of a buffer, `part` elements of which each rank
        of the group has, in its order. rank: this one, in the group; it may have no element."""
        owners = [
            rank
            for index, rank in enumerate(group)
            if max(begin, index * part) < min(end, (index + 1) * part)
        ]
        index = group.index(rank)
        first, last = max(begin, index * part), min(end, (index + 1) * part)
        last = max(first, last)
        return cls(first - begin, last - begin, tuple(sorted(group)), tuple(sorted(owners)))


def held(stretch: Stretch, own: Holding, key: str, value, said) -> Holding:
    """An optimizer's state of a stretch of `own`: cut as the stretch is if it has as many elements,
    else the same on all ranks that have one. said: the Statement of the job's groups."""
    local = value.detach()
    groups = said.of_stretch(own.groups, stretch.group, stretch.owners or stretch.group)
    common = dict(
        name=f"{own.name}.{key}", kind="optimizer", dtype=value.dtype, owner=value,
        unique=own.unique,
    )  # fmt: skip
    if value.dim() == 0 or value.numel() != stretch.end - stretch.begin:
        shape = tuple(value.shape)
        members = groups.members if groups and stretch.owners else (said.rank,)
        alike = groups and Groups((said.rank,), members)
        return Holding(
            **common, shape=shape, local=local, runs=_layout.local_runs(shape), groups=alike
        )
    return Holding(
        **common,
        shape=own.shape,
        local=local.reshape(-1),
        runs=within(own.runs, stretch.begin, stretch.end),
        groups=groups,
        placements=[*own.placements, Placement("flat_shard")],
        coordinates=(*own.coordinates, stretch.group.index(said.rank)),
        mesh_names=(*(own.mesh_names or ()), "dp"),
        mesh_shape=(*own.mesh_shape, len(stretch.group)),
    )


def within(runs: list[Run], begin: int, end: int) -> list[Run]:
    """Of what is held locally in these runs, elements [begin, end), which lie locally one after the
    other."""
    found = []
    for run in runs:
        step = run.local_stride or run.length
        first = max(0, (begin - run.local_start) // step)
        last = min(run.count, -(-(end - run.local_start) // step))
        for index in range(first, last):
            at = run.local_start + index * step
            low, high = max(begin, at), min(end, at + run.length)
            if low < high:
                start = run.start + index * run.stride + low - at
                found.append(Run(start, high - low, local_start=low - begin))
    return _folded(found)


def _folded(found: list[Run]) -> list[Run]:
    """Stretches that repeat at one distance as one run."""
    folded: list[Run] = []
    for run in found:
        last = folded[-1] if folded else None
        if last is not None and last.length == run.length:
            steps = (run.start - last.start, run.local_start - last.local_start)
            if last.count == 1 and min(steps) > 0:
                folded[-1] = dataclasses.replace(
                    last, count=2, stride=steps[0], local_stride=steps[1]
                )
                continue
            if steps == (last.count * last.stride, last.count * last.local_stride):
                folded[-1] = dataclasses.replace(last, count=last.count + 1)
                continue
        folded.append(run)
    return folded
