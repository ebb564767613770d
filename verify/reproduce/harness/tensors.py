"""What a model, an optimizer and a checkpoint hold."""

import contextlib
import glob
import re

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

WRAPPERS = r"(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\."


def tensors_of(model):
    """{name: tensor}: parameters and buffers under all their names, without what wrappers add."""
    if isinstance(model, dict):  # a state dict, or what state_of gives
        return {name: value for name, value in model.items() if isinstance(value, torch.Tensor)}
    if isinstance(model, DistributedDataParallel):
        model = model.module
    found = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return {re.sub(WRAPPERS, "", name): tensor for name, tensor in found}


def state_of(model, optimizer):
    """The tensors of an optimizer's state, by the parameter's name and the key."""
    name_of = {id(tensor): name for name, tensor in reversed(tensors_of(model).items())}
    return {
        f"{name_of.get(id(parameter), '?')}.{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def own(tensor):
    """What this rank holds of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def part_like(full, tensor):
    """The part of `full` that a rank with this part of `tensor` should hold. Sends nothing."""
    if not isinstance(tensor, DTensor):
        return full
    mesh, placements = tensor.device_mesh, tensor.placements
    return distribute_tensor(full, mesh, placements, src_data_rank=None).to_local()


def indices_like(tensor):
    """The place in the whole tensor of each element that this rank holds."""
    return part_like(torch.arange(tensor.numel()).view(tensor.shape), tensor)


def whole(model):
    """FSDP1 shows its original parameters only within this."""
    modules = [] if model is None else model.modules()
    if any(isinstance(module, FullyShardedDataParallel) for module in modules):
        return FullyShardedDataParallel.summon_full_params(model, writeback=False)
    return contextlib.nullcontext()


def read_checkpoint(directory, key=None):
    """Its tensors by key, or the one asked for, if it is there."""
    from safetensors import safe_open

    tensors = {}
    for path in sorted(glob.glob(f"{directory}/*.safetensors")):
        with safe_open(path, "pt") as file:
            wanted = file.keys() if key is None else {key} & set(file.keys())
            tensors.update({name: file.get_tensor(name) for name in wanted})
    return tensors


def element(tensor, place):
    """An element as text: value and bits."""
    one = tensor.contiguous().reshape(-1)[place : place + 1]
    bits = bytes(reversed(one.view(torch.uint8).tolist())).hex()
    return f"{one.item()} (0x{bits})"


def differing(mine, theirs):
    """Places of the elements whose bits differ. Both are of one dtype and shape."""
    if not mine.numel():
        return []
    rows = [
        bits.contiguous().reshape(-1).view(torch.uint8).view(bits.numel(), -1)
        for bits in (mine, theirs)
    ]
    return (rows[0] != rows[1]).any(1).nonzero().flatten()


def differing_by_ulp(mine, theirs, ulp):
    """Places of the elements of F32 that are further apart than `ulp` units in the last place."""
    first, second = (bits.contiguous().view(torch.int32).long() for bits in (mine, theirs))
    return ((first - second).abs() > ulp).flatten().nonzero().flatten()
