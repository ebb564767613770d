"""One rank of PyTorch FSDP2 loading a checkpoint as its documentation says: rank 0 reads the files,
the module is made on meta, sharded and given memory, and set_model_state_dict broadcasts. Each line
of input asks for one round and is answered by when it began and ended; see run.py."""

import ctypes
import gc
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def files_of(directory):
    index = os.path.join(directory, "model.safetensors.index.json")
    if not os.path.exists(index):
        return [os.path.join(directory, "model.safetensors")]
    with open(index) as stream:
        names = sorted(set(json.load(stream)["weight_map"].values()))
    return [os.path.join(directory, name) for name in names]


def shapes_of(directory):
    shapes = {}
    for path in files_of(directory):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                piece = file.get_slice(name)
                shapes[name] = (piece.get_shape(), piece.get_dtype())
    return shapes


DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def build(shapes):
    """A tree of plain modules that has the checkpoint's parameters under their names."""
    root = nn.Module()
    for name, (shape, dtype) in shapes.items():
        *path, leaf = name.split(".")
        module = root
        for step in path:
            if step not in module._modules:
                module.add_module(step, nn.Module())
            module = module._modules[step]
        module.register_parameter(leaf, nn.Parameter(torch.empty(shape, dtype=DTYPES[dtype])))
    return root


def empty_shards(shapes, mesh):
    """The model sharded by FSDP2, layer by layer; its memory holds no values yet."""
    with torch.device("meta"):
        model = build(shapes)
    for layer in model.model.layers.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.to_empty(device="cpu")


def load(directory, shapes, mesh):
    full = {}
    if dist.get_rank() == 0:
        for path in files_of(directory):
            full.update(load_file(path))
    model = empty_shards(shapes, mesh)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, full, options=options)
    return model


def check(model, directory):
    """That every shard holds what the file says: a load that is fast and wrong is no rival."""
    full = {}
    for path in files_of(directory):
        full.update(load_file(path))
    world_size, rank = dist.get_world_size(), dist.get_rank()
    for name, parameter in model.state_dict().items():
        chunks = full[name].chunk(world_size)
        if rank < len(chunks) and not torch.equal(parameter.to_local(), chunks[rank]):
            raise SystemExit(f"fsdp_rank: rank {rank}: {name} is not what the file holds")


def join():
    """\\returns the checkpoint's directory, its shapes and the mesh of all ranks, connected"""
    directory = sys.argv[1]
    torch.set_num_threads(1)  # as torchrun does, since ranks share the cores
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return directory, shapes_of(directory), mesh  # a model class knows shapes without files


def give_back():
    """What a round has freed, to the system: the memory of the machine is for all contenders."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def main():
    directory, shapes, mesh = join()
    checked = False
    for _ in sys.stdin:
        dist.barrier()
        begin = time.monotonic_ns()
        model = load(directory, shapes, mesh)
        end = time.monotonic_ns()
        if not checked:
            check(model, directory)
        checked = True
        del model
        give_back()
        print(json.dumps({"begin": begin, "end": end}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
