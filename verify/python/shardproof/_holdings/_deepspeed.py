"""What DeepSpeed says of its ZeRO optimizers: which stretch of a parameter a rank has in the flat
tensors that it steps, and, of stage 3, in the parameter itself; and of its experts. Nothing of it
is imported here."""

import sys

import torch.distributed as dist

from . import _layout
from ._groups import Groups, ranks_of
from ._holding import Holding
from ._layout import Placement
from ._stretch import Stretch

_STAGE_1_2 = ("bit16_groups", "bit16_groups_flat", "single_partition_of_fp32_groups")
_STAGE_3 = ("fp16_groups", "fp32_partitioned_groups_flat", "grad_position")


def _groups():
    return sys.modules.get("deepspeed.utils.groups")


def expert_groups() -> dict[str, tuple[int, ...]]:
    """The ranks that have the same experts as this one, by the name of the group that is written on
    their parameters; empty if there are none."""
    made = _groups()._get_expert_data_parallel_group_dict() if _groups() else {}
    return {name: ranks_of(group) for name, group in made.items()}


def number_of_expert(experts, expert, number: int) -> int:
    """In the whole layer, of the expert that is one of `experts` of this rank."""
    name = getattr(next(expert.parameters(), None), "group_name", None)
    made = _groups()._get_expert_parallel_group_dict() if _groups() else {}
    before = ranks_of(made[name]).index(dist.get_rank()) if name in made else 0
    return before * experts.num_local_experts + number


def is_zero(optimizer) -> bool:
    return _has(optimizer, _STAGE_1_2) or _has(optimizer, _STAGE_3)


def _has(optimizer, names) -> bool:
    return all(hasattr(optimizer, name) for name in names)


def stretches_of(optimizer):
    """Yields (parameter, its state, Stretch) for each parameter of which this rank has state; the
    Stretch is None if the parameter itself is no more than that."""
    return _of_stage_3(optimizer) if _has(optimizer, _STAGE_3) else _of_stage_1_2(optimizer)


def groups_of(optimizer):
    """[(options, parameters)] of its groups; without options where it steps another group now: it
    takes its step group by group, and shows one at a time."""
    if not _has(optimizer, _STAGE_3):
        return [
            (_group_of(inner, optimizer.param_groups), list(parameters))
            for inner, parameters in zip(
                optimizer.single_partition_of_fp32_groups, optimizer.bit16_groups, strict=True
            )
        ]
    found = [(group, []) for group in optimizer.param_groups]
    for number, parameters in enumerate(optimizer.fp16_groups):
        found[optimizer.sub_group_to_group_id[number]][1].extend(parameters)
    return found


def _group_of(parameter, groups) -> dict:
    return next((each for each in groups if any(p is parameter for p in each["params"])), {})


def _of_stage_1_2(optimizer):
    """Parameters are views of a flat tensor, of which each rank steps one part."""
    for number, flat in enumerate(optimizer.bit16_groups_flat):
        ranks = ranks_of(optimizer.real_dp_process_group[number])
        part = flat.numel() // len(ranks)
        rank = dist.get_rank()
        first = ranks.index(rank) * part
        inner = optimizer.single_partition_of_fp32_groups[number]
        for parameter in optimizer.bit16_groups[number]:
            begin = parameter.storage_offset() - flat.storage_offset()
            stretch = Stretch.of_flat(begin, begin + parameter.numel(), part, ranks, rank)
            count = stretch.end - stretch.begin
            if count:
                at = begin + stretch.begin - first
                yield parameter, _narrowed(optimizer, inner, at, count), stretch


def _of_stage_3(optimizer):
    """Of each parameter every rank has one part, padded, one after the other in a flat tensor."""
    for group in optimizer.fp16_groups:
        for parameter in group:
            number, at, part = optimizer.grad_position[optimizer.get_param_id(parameter)]
            ranks = ranks_of(parameter.ds_process_group)
            stretch = Stretch.of_flat(0, parameter.ds_numel, part, ranks, dist.get_rank())
            inner = optimizer.fp32_partitioned_groups_flat[number]
            state = _narrowed(optimizer, inner, at, stretch.end - stretch.begin)
            yield parameter, state, None if is_partitioned(parameter) else stretch


def _narrowed(optimizer, inner, at, count) -> dict:
    """What the optimizer keeps of elements [at, at + count) of a flat tensor that it steps."""
    state = optimizer.optimizer.state.get(inner, {})
    found = {"main_param": inner.detach().narrow(0, at, count)}
    for key, value in state.items():
        is_flat = getattr(value, "shape", None) == inner.shape
        found[key] = value.narrow(0, at, count) if is_flat else value
    return found


def is_partitioned(tensor) -> bool:
    """Whether it is a parameter of stage 3 of which this rank holds its part alone."""
    status = getattr(tensor, "ds_status", None)
    return getattr(status, "name", "") == "NOT_AVAILABLE" and hasattr(tensor, "ds_tensor")


def lay_out(held: Holding, tensor, rank: int) -> Holding:
    """A partitioned parameter: a stretch of the flattened one, padded at the end."""
    ranks = ranks_of(tensor.ds_process_group)
    held.shape = tuple(tensor.ds_shape)
    part, index = tensor.ds_tensor.ds_numel, ranks.index(rank)
    first = min(index * part, tensor.ds_numel)
    last = min(first + part, tensor.ds_numel)
    held.runs = _layout.flat_runs(first, last)
    held.groups = Groups(tuple(sorted(ranks)), (rank,))
    held.placements = [Placement("flat_shard")]
    held.coordinates, held.mesh_shape = (index,), (len(ranks),)
    if tensor.ds_tensor.numel() < last - first:
        held.unreadable = "its part is not in memory"
    else:
        held.local = tensor.ds_tensor.detach().reshape(-1)[: last - first]
    return held
