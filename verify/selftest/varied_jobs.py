#!/usr/bin/env python3
"""Jobs of several models, roles, groups and phases on two to four ranks, each sound and with a
mistake on one rank: varied_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import sys
import tempfile

import ranked_jobs
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from job_pieces import PAIRS, flip, is_odd, mesh, net, on, train, values
from torch import nn
from torch.distributed._composable import replicate
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post_local
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel


def own_batch(step=0):
    """Another one on each rank."""
    return values(5, 4, seed=10 * step + dist.get_rank())


def train_own(model, optimizer, steps=2):
    for step in range(steps):
        optimizer.zero_grad()
        model(own_batch(step)).float().square().mean().backward()
        optimizer.step()


def pair():
    """The two ranks that this one trains with, of four, as a group."""
    groups = [dist.new_group(ranks) for ranks in PAIRS]
    return groups[dist.get_rank() // 2]


# ---- Replicas that differ for a while


def local_sgd(mistake):
    """Gradients are shared by two ranks; all four average their weights now and then."""
    model = DistributedDataParallel(net())
    group = pair()
    state = post_local.PostLocalSGDState(None, group, start_localSGD_iter=1)
    model.register_comm_hook(state, post_local.post_localSGD_hook)
    averager = averagers.PeriodicModelAverager(period=4, warmup_steps=1)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = PostLocalSGDOptimizer(inner, averager)
    train_own(model, optimizer, 3)
    if is_odd(mistake, "nan", 3):
        model.module[0].weight.data[2, 1] = torch.nan
    if is_odd(mistake, "bit", 3):
        flip(model.module[0].weight, 9)
    return model, {"optimizer": optimizer}


def outer_steps(mistake):
    """DiLoCo: two islands take steps of their own, and an outer optimizer one of all of them."""
    model = DistributedDataParallel(net(), process_group=pair())
    inner = torch.optim.AdamW(model.parameters())
    start = [p.detach().clone().requires_grad_() for p in model.parameters()]
    outer = torch.optim.SGD(start, lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(2):
        train_own(model, inner)
        for before, now in zip(start, model.parameters(), strict=True):
            before.grad = before.detach() - now.detach()
            dist.all_reduce(before.grad)
            before.grad /= dist.get_world_size()
        outer.step()
        for before, now in zip(start, model.parameters(), strict=True):
            now.data.copy_(before.detach())
    train_own(model, inner, 1)
    if is_odd(mistake, "bit", 1):
        flip(model.module[1].weight, 4)
    return model, {"optimizer": inner}


# ---- Several models, and roles


@on(2)
def two_towers(mistake):
    """Two models of the same names, stepped by one optimizer."""
    one, other = DistributedDataParallel(net()), DistributedDataParallel(net())
    with torch.no_grad():
        other.module[0].weight.mul_(2)
    optimizer = torch.optim.AdamW([*one.parameters(), *other.parameters()])
    for step in range(2):
        optimizer.zero_grad()
        (one(own_batch(step)) * other(own_batch(step + 1))).mean().backward()
        optimizer.step()
    if is_odd(mistake, "bit", 1):
        flip(other.module[0].weight, 5)
    return nn.ModuleList([one, other]), {"optimizer": optimizer}


def roles(mistake):
    """Ranks 0 and 1 train the actor, ranks 2 and 3 the critic, under the same names."""
    ranks = PAIRS[dist.get_rank() // 2]
    over = mesh(2, 2, names=("role", "shard"))["shard"]
    torch.manual_seed(dist.get_rank() // 2)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    model.register_buffer("scale", torch.full((3,), 1.0 + dist.get_rank() // 2))
    fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters())
    train_own(model, optimizer)
    if is_odd(mistake, "nan", 3):
        model[1].weight.to_local().data[0, 1] = torch.nan
    if is_odd(mistake, "bit", 3):
        flip(model.scale, 1)
    return model, {"optimizer": optimizer, "group": ranks}


# ---- What changes on the way


def resumed_elsewhere(mistake):
    """Four shards are saved; two replicas of two shards go on."""
    source, over = net(), mesh(2, 2, names=("replicate", "shard"))
    fully_shard(source, mesh=mesh(4))
    train(source, torch.optim.AdamW(source.parameters()))
    model = net()
    fully_shard(model, mesh=over)
    stale = model[0].bias.to_local().detach().clone()
    with tempfile.TemporaryDirectory() as own:
        path = [own]
        dist.broadcast_object_list(path)
        dcp.save({"model": source.state_dict()}, checkpoint_id=path[0])
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=path[0])
        dist.barrier()
    model.load_state_dict(state["model"])
    if is_odd(mistake, "stale", 3):
        model[0].bias.to_local().data.copy_(stale)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    train(model, optimizer, 1)
    return model, {"optimizer": optimizer}


@on(2)
def replicated(mistake):
    """By `replicate`, which gives a DDP of its own the bare parameters."""
    model = replicate(net())
    optimizer = torch.optim.AdamW(model.parameters())
    train_own(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model[0].weight, 5)
    return model, {"optimizer": optimizer}


# ---- What is frozen


class Quantised(nn.Module):
    """A frozen layer of int8 codes with a scale for each row, and an adapter that is trained."""

    def __init__(self, layer):
        super().__init__()
        scale = layer.weight.detach().abs().amax(1, keepdim=True) / 127
        codes = (layer.weight.detach() / scale).round().to(torch.int8)
        self.codes = nn.Parameter(codes, requires_grad=False)
        self.register_buffer("scale", scale)
        self.down = nn.Parameter(values(2, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, 2))

    def forward(self, x):
        return x @ (self.codes * self.scale).T + x @ self.down.T @ self.up.T


@on(2)
def quantised_base(mistake):
    model = DistributedDataParallel(nn.Sequential(*map(Quantised, net())))
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    train_own(model, optimizer)
    if is_odd(mistake, "code", 1):
        flip(model.module[0].codes, 7)
    return model, {"optimizer": optimizer}


JOBS = {
    local_sgd: (None, "nan", "bit"),
    outer_steps: (None, "bit"),
    two_towers: (None, "bit"),
    roles: (None, "nan", "bit"),
    resumed_elsewhere: (None, "stale"),
    replicated: (None, "bit"),
    quantised_base: (None, "code"),
}

if __name__ == "__main__":
    ranked_jobs.run(JOBS, *sys.argv[1:])
