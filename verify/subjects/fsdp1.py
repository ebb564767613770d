"""PyTorch FSDP1, original parameters kept: rank 0 reads, the values are broadcast, then sharded.

FSDP1's own broadcast (`sync_module_states`) refuses modules on the CPU, so it is done by hand.
"""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "FSDP1 makes the original parameters views of flat ones",
    "host_bound": "every rank holds the whole model before it is sharded",
}


def wrap(case, model):
    layers = getattr(getattr(model, "model", model), "layers", None)
    policy = ModuleWrapPolicy({type(layers[0])}) if layers is not None and len(layers) else None
    hybrid = len(case.mesh) > 1  # a 2-D mesh says shard within the last axis, replicate across
    strategy = ShardingStrategy.HYBRID_SHARD if hybrid else ShardingStrategy.FULL_SHARD
    return FullyShardedDataParallel(
        model,
        device_mesh=case.device_mesh(),
        sharding_strategy=strategy,
        auto_wrap_policy=policy,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )


def run(case, observe):
    model = case.build("cpu")
    if case.resumes:
        return restore(case, wrap(case, model), observe)
    buffers = {name for name, _ in model.named_buffers()}  # parameters still await their values
    observe(
        "built", model=model, content=lambda name: "defined" if name in buffers else "undefined"
    )
    if case.rank == 0:
        keys = model.load_state_dict(case.state_dict(), strict=False)
        observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
    model = wrap(case, model)
    observe("ready", model=model)
    if not case.saves:
        return None
    dcp.save(get_model_state_dict(model), checkpoint_id=case.save_to)
    dist.barrier()
    observe("saved", model=model)
    if case.phase == "memory":
        return None
    return restore(case, wrap(case, case.build("cpu")), observe)


def restore(case, model, observe):
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=case.save_to)
    set_model_state_dict(model, state)
    return observe("restored", model=model)
