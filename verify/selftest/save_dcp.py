#!/usr/bin/env python3
"""FSDP2 and AdamW on a mesh, saved by DCP and, whole, by torch.save: save_dcp.py OUT MESH

OUT/dcp and OUT/full.pt then hold the same model, optimizer, step and random state. MESH: "3", "2x2"
(HSDP).
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import Embedding, LayerNorm, Linear, Sequential

STEPS = 2


def sharded(rank, store, sizes):
    """The model and its optimizer on a mesh of all ranks, which meet at `store`, before any
    step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{store}"), rank=rank, world_size=torch.Size(sizes).numel()
    )
    mesh = init_device_mesh(
        "cpu", sizes, mesh_dim_names=("dp_replicate", "dp_shard")[-len(sizes) :]
    )
    # 11 rows, 5, 3 and 1: no mesh but one rank divides all of them.
    model = Sequential(Embedding(11, 7), Linear(7, 5), LayerNorm(5), Linear(5, 3), Linear(3, 1))
    model.register_buffer("counter", torch.arange(5))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in model.parameters() if (p.ndim >= 2) == matrices],
          "weight_decay": decay, "name": name}
         for matrices, decay, name in ((True, 0.1, "matrices"), (False, 0.0, "rest"))],
        lr=1e-2)  # fmt: skip
    return model, optimizer


def gathered(model, optimizer):
    """Both, whole, on rank 0."""
    return get_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )


def end():
    """Ends this rank of the job, once all have come here.

    It leaves no time to threads of torch: one that asks for the interpreter while that is taken
    down has been seen to abort a rank whose work was done ("terminate called without an active
    exception", torch 2.11).
    """
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def save(rank, out, sizes):
    model, optimizer = sharded(rank, out / "store", sizes)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(torch.arange(11)) ** 2).sum().backward()
        optimizer.step()
    extra = {
        "step": STEPS,
        "rng": torch.get_rng_state(),
        "extra": {"loss": [0.5, float("inf")], "name": "run"},
    }
    cut, cut_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": cut, "optim": cut_optimizer, **extra}, checkpoint_id=out / "dcp")
    full, full_optimizer = gathered(model, optimizer)
    if rank == 0:
        torch.save({"model": full, "optim": full_optimizer, **extra}, out / "full.pt")
    end()


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(MASTER_ADDR="127.0.0.1")
    shape = tuple(int(size) for size in sys.argv[2].split("x"))
    world_size = torch.Size(shape).numel()
    mp.start_processes(save, (folder, shape), nprocs=world_size, start_method="fork")
