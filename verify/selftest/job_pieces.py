"""What jobs of ranked_jobs.run are made of."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

PAIRS, ACROSS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]


def on(ranks):
    """How many ranks a job has."""

    def marked(job):
        job.world_size = ranks
        return job

    return marked


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).to(dtype)


def mesh(*sizes, names=None):
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def is_odd(mistake, name, rank):
    return mistake == name and dist.get_rank() == rank


def flip(tensor, index):
    """One bit of an element."""
    local = tensor.detach()
    local = local.to_local() if isinstance(local, DTensor) else local
    local.view(-1).view({8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[
        local.element_size()])[index] ^= 1  # fmt: skip


def train(model, optimizer, steps=2):
    """With the same batches on all ranks, or those that DDP and FSDP make one of."""
    for step in range(steps):
        optimizer.zero_grad()
        model(values(5, 4, seed=step)).float().square().mean().backward()
        optimizer.step()
