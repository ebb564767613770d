"""PyTorch FSDP2: built on meta, sharded, filled by a broadcast from rank 0, saved by DCP.

As a careful user would: non-persistent buffers, which no checkpoint holds, are taken from a model
built on the CPU.
"""

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "set_model_state_dict makes no promise about host memory",
}


def blocks_of(case, model):
    """The modules that get a group of their own: transformer layers, else untied children."""
    layers = getattr(getattr(model, "model", model), "layers", None)
    if layers is not None:
        return list(layers)
    tied = {name.split(".")[0] for tie in case.ties for name in tie}
    return [child for name, child in model.named_children() if name not in tied]


def shard(case, model):
    mesh = case.device_mesh()
    for block in blocks_of(case, model):
        if any(True for _ in block.parameters()):
            fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tie(case, model):
    """to_empty gives each of two tied names memory of its own."""
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    for first, *others in case.ties:
        for name in others:
            owner, _, leaf = name.rpartition(".")
            model.get_submodule(owner)._parameters[leaf] = model.get_parameter(first)


def restore_buffers(model, source):
    """Gives buffers that no checkpoint holds the value that the model's own class gives them."""
    real = dict(source.named_buffers())
    for name, module in model.named_modules():
        for key in module._non_persistent_buffers_set:
            full = f"{name}.{key}" if name else key
            module._buffers[key].copy_(real[full])


def materialized(case, observe):
    model = case.build("meta")
    observe("built", model=model)
    shard(case, model)
    observe("sharded", model=model)
    model.to_empty(device="cpu")
    tie(case, model)
    observe("materialized", model=model, content="undefined")
    restore_buffers(model, case.build("cpu"))
    return model


def load(case, model):
    full = case.state_dict() if case.rank == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    return set_model_state_dict(model, full, options=options)


def run(case, observe):
    if case.resumes:
        model = materialized(case, lambda *args, **kwargs: None)
    else:
        model = materialized(case, observe)
        keys = load(case, model)
        observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
        observe("ready", model=model)
        if not case.saves:
            return
        dcp.save(get_model_state_dict(model), checkpoint_id=case.save_to)
        dist.barrier()
        observe("saved", model=model)
        if case.phase == "memory":
            return
        model = materialized(case, lambda *args, **kwargs: None)
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=case.save_to)
    set_model_state_dict(model, state)
    observe("restored", model=model)
