"""What a wrapper shows of replicas: the ranks that it keeps equal to this one, and the buffers that
each of them has put anew since."""

import sys

import torch.distributed as dist
from torch import nn

from ._groups import ranks_of
from ._names import names_of

_LOCAL_SGD = "post_localSGD_hook"


def ranks_alike(module) -> tuple[int, ...] | None:
    """The ranks that have the parameters of a DDP, of what `replicate` was called on, or of a
    DeepSpeed engine; None of any other."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return tuple(sorted(_of_ddp(module)))
    if (ranks := _replicated(module)) is not None:
        return tuple(sorted(ranks))
    if "DeepSpeedEngine" in names_of(type(module)):
        for name in ("seq_data_parallel_group", "data_parallel_group"):
            if (group := getattr(module, name, None)) is not None:
                return tuple(sorted(ranks_of(group)))
    return None


def parameters_alike(module):
    """What such a wrapper keeps equal: pairs of the name within it and the parameter, the latter
    under each of its names."""
    if (state := _state_of_replicate(module)) is not None:
        kept = state._param_list
        if not state.has_initialized:
            _, ignored = state._init_args
            left = {id(each) for inner in ignored for each in inner.parameters()}
            kept = [each for each in module.parameters() if id(each) not in left]
        alike = {*map(id, kept)}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) in alike:
                yield name, parameter
        return
    ignored = getattr(module, "parameters_to_ignore", ())
    for name, parameter in module.module.named_parameters(remove_duplicate=False):
        if name not in ignored:
            yield f"module.{name}", parameter


def _of_ddp(ddp) -> tuple[int, ...]:
    """Its process group; once it takes steps of local SGD, the ranks that still share gradients."""
    for hook, state in getattr(ddp, "_comm_hooks", ()):
        if getattr(hook, "__name__", "") == _LOCAL_SGD and state.iter >= state.start_localSGD_iter:
            if not state.post_local_gradient_allreduce or state.subgroup is None:
                return (dist.get_rank(),)
            return ranks_of(state.subgroup)
    return ranks_of(ddp.process_group)


def _replicated(module) -> tuple[int, ...] | None:
    """The ranks of a module that the composable `replicate` was called on. It has a DDP of its own,
    of the parameters alone, from its first forward pass on."""
    state = _state_of_replicate(module)
    if state is None:
        return None
    if state.has_initialized:
        return _of_ddp(state._ddp)
    group = state._init_kwargs.get("process_group")
    if (mesh := state._init_kwargs.get("device_mesh")) is not None:
        group = mesh.get_group(mesh_dim=0)
    return ranks_of(dist.group.WORLD if group is None else group)


def _state_of_replicate(module):
    made = sys.modules.get("torch.distributed._composable.replicate")
    is_one = made is not None and isinstance(module, made.DDP)
    return made.replicate.state(module) if is_one else None


def buffers_anew(modules) -> set[int]:
    """The ids of buffers that took the place of those that a DDP sent to the others, before its
    last forward pass. Of one whose parameters are others, too, nothing is told: it was loaded."""
    found = set()
    for module in modules:
        if not isinstance(module, nn.parallel.DistributedDataParallel):
            continue
        there = set(map(id, module.module.parameters()))
        if any(id(each) not in there for each in module._module_parameters):
            continue
        now = dict(module.module.named_buffers())
        found |= {
            id(now[name])
            for name, sent in module.named_module_buffers.items()
            if name in now and now[name] is not sent and _kind(now[name]) == _kind(sent)
        }
    return found


def _kind(tensor):
    return tensor.shape, tensor.dtype, tensor.device
