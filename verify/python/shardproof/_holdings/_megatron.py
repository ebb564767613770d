"""What Megatron-LM says of a job: its groups of ranks, its experts, and what its distributed
optimizer keeps on which rank. Nothing of it is imported here: who uses it has done so."""

import sys

import torch.distributed as dist

from ._groups import ranks_of
from ._stretch import Stretch

_GROUPS = "megatron.core.parallel_state"
# Each axis: the function of that module that gives this rank's group along it.
_AXES = {
    "pp": ("get_pipeline_model_parallel_group", {}),
    "tp": ("get_tensor_model_parallel_group", {}),
    "dp": ("get_data_parallel_group", {"with_context_parallel": True}),
}
_EXPERT_AXES = {
    "pp": ("get_pipeline_model_parallel_group", {}),
    "tp": ("get_expert_tensor_parallel_group", {}),
    "dp": ("get_expert_data_parallel_group", {}),
}


def axes() -> tuple[dict, dict]:
    """This rank's process groups along each axis, and those along which experts lie; empty if
    Megatron has made none."""
    state = sys.modules.get(_GROUPS)
    if state is None or not state.model_parallel_is_initialized():
        return {}, {}
    return _groups(state, _AXES), _groups(state, _EXPERT_AXES)


def _groups(state, functions) -> dict:
    found = {}
    for axis, (name, named) in functions.items():
        function = getattr(state, name, None)  # not every release has groups of experts
        if function is None:
            return {}
        found[axis] = function(**named)
    return found


def slice_of(parameter, placements, mesh_shape) -> tuple[int, int] | None:
    """[begin, end) of the flattened tensor, where Megatron-FSDP keeps that much of it on this rank:
    it fills buckets and cuts these, so a parameter is cut anywhere. None for any other, and for one
    that more than one axis cuts."""
    own = getattr(parameter, "megatron_fsdp_slice", None)
    cuts = [n for each, n in zip(placements, mesh_shape, strict=True) if each.kind == "shard"]
    if not isinstance(own, slice) or sum(n > 1 for n in cuts) > 1:
        return None
    return (own.start, own.stop) if parameter._local_tensor.numel() else (0, 0)


def is_distributed(optimizer) -> bool:
    """Whether it is a DistributedOptimizer, which keeps stretches of flat buffers."""
    return all(hasattr(optimizer, name) for name in ("model_param_group_index_map", "buffers"))


def stretches_of(optimizer):
    """Yields (parameter, its state, Stretch) for each parameter of which this rank has state."""
    ranks = ranks_of(optimizer.data_parallel_group)
    for parameter, (group, place) in optimizer.model_param_group_index_map.items():
        inner = optimizer.optimizer.param_groups[group]["params"][place]
        stretch = _stretch_of(parameter, optimizer.buffers, ranks)
        state = dict(optimizer.state.get(inner, {}))
        if inner.dtype != parameter.dtype:  # a copy of higher precision, which the step is taken of
            state["main_param"] = inner
        if stretch is not None:
            yield parameter, state, stretch


def groups_of(optimizer):
    """[(options, parameters)] of its groups; without options, those that other ranks step."""
    own = [(group, []) for group in optimizer.optimizer.param_groups]
    for parameter, (number, _) in optimizer.model_param_group_index_map.items():
        own[number][1].append(parameter)
    every = [each for buffer in optimizer.buffers for each in buffer.param_index_map]
    rest = [each for each in every if each not in optimizer.model_param_group_index_map]
    return [*own, ({}, rest)] if rest else own


def _stretch_of(parameter, buffers, ranks) -> Stretch | None:
    """Each bucket of a buffer is cut evenly over the ranks, and a parameter lies in it as it is."""
    buffer = next((each for each in buffers if parameter in each.param_index_map), None)
    if buffer is None:
        return None
    begin, end, bucket_id = buffer.param_index_map[parameter]
    bucket = buffer.buckets[bucket_id]
    part = bucket.grad_data.numel() // len(ranks)
    return Stretch.of_flat(begin - bucket.offset, end - bucket.offset, part, ranks, dist.get_rank())
