"""What a wrapper shows of replicas: the ranks that it keeps equal to this one, and the buffers that
each of them has put anew since."""

import torch.distributed as dist
from torch import nn

from ._groups import ranks_of

_LOCAL_SGD = "post_localSGD_hook"


def ranks_alike(module) -> tuple[int, ...] | None:
    """The ranks that have the parameters of a DDP or of a DeepSpeed engine; None of any other."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return tuple(sorted(_of_ddp(module)))
    if any(each.__name__ == "DeepSpeedEngine" for each in type(module).__mro__):
        for name in ("seq_data_parallel_group", "data_parallel_group"):
            if (group := getattr(module, name, None)) is not None:
                return tuple(sorted(ranks_of(group)))
    return None


def _of_ddp(ddp) -> tuple[int, ...]:
    """Its process group; once it takes steps of local SGD, the ranks that still share gradients."""
    for hook, state in getattr(ddp, "_comm_hooks", ()):
        if getattr(hook, "__name__", "") == _LOCAL_SGD and state.iter >= state.start_localSGD_iter:
            if not state.post_local_gradient_allreduce or state.subgroup is None:
                return (dist.get_rank(),)
            return ranks_of(state.subgroup)
    return ranks_of(ddp.process_group)


def buffers_anew(model) -> set[int]:
    """The ids of buffers that took the place of those that a DDP sent to the others, before its
    last forward pass. Of one whose parameters are others, too, nothing is told: it was loaded."""
    found = set()
    for module in model.modules():
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
