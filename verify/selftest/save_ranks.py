#!/usr/bin/env python3
"""DTensors that four ranks save in a file each, and the same whole: save_ranks.py OUT

OUT/ranks/model_world_size_4_rank_R.pt and OUT/whole.pt then hold the same tensors.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from save_dcp import end
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import Linear, Sequential

RANKS = 4
PLACED = {
    "rows": ((5, 3), [Shard(0), Replicate()]),
    "columns": ((5, 3), [Replicate(), Shard(1)]),
    "both": ((7, 5), [Shard(1), Shard(0)]),
    "twice": ((11, 2), [Shard(0), Shard(0)]),
    "few": ((1, 2), [Shard(0), Shard(0)]),
    "none": ((0, 2), [Shard(0), Replicate()]),
    "scalar": ((), [Replicate(), Replicate()]),
}


def model_of(mesh):
    """TP and FSDP2 in one: torch's strided shards."""
    model = Sequential(Linear(6, 8), Linear(8, 6))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["dp"])


def rank_of(rank, out):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", store=dist.FileStore(f"{out}/store"), rank=rank, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    state = {
        name: distribute_tensor(torch.randn(shape), mesh, placements)
        for name, (shape, placements) in PLACED.items()
    }
    state |= {f"model.{name}": value for name, value in model_of(mesh).state_dict().items()}
    whole = {name: value.full_tensor() for name, value in state.items()}
    torch.save(state, out / f"ranks/model_world_size_{RANKS}_rank_{rank}.pt")
    if rank == 0:
        torch.save(whole, out / "whole.pt")
    end()


if __name__ == "__main__":
    out = Path(sys.argv[1])
    (out / "ranks").mkdir(parents=True)
    mp.start_processes(rank_of, (out,), RANKS, start_method="fork")
