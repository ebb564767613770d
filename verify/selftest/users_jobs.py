#!/usr/bin/env python3
"""Jobs on four ranks whose users have written a part of the parallelism themselves, each sound and
with a mistake, before shardproof.check: users_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import sys

import ranked_jobs
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard

EVIDENCE = sys.argv[1] if len(sys.argv) > 1 else None
PAIRS, ACROSS = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
OPEN = []  # contexts in which the check is called


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).to(dtype)


def with_gradients(model):
    model(values(5, 4, seed=dist.get_rank()).to(model[0].weight.dtype)).float().sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)


class Divided(torch.optim.Optimizer):
    """The ranks take turns: each steps every fourth parameter, and gives it to the others."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for number, parameter in enumerate(self.param_groups[0]["params"]):
            if number % dist.get_world_size() == dist.get_rank():
                self.state[parameter]["momentum"] = parameter.grad.clone()
                parameter.sub_(parameter.grad, alpha=0.1)
            dist.broadcast(parameter.data, number % dist.get_world_size())


def divided(mistake):
    model = net()
    optimizer = Divided(model.parameters())
    with_gradients(model)
    optimizer.step()
    if mistake == "stale" and dist.get_rank() == 2:
        model[1].bias.data[1] += 1
    if mistake == "nan" and dist.get_rank() == 2:
        optimizer.state[model[1].weight]["momentum"][0, 1] = torch.nan
    return model, {"optimizer": optimizer}


class Coded(torch.optim.Optimizer):
    """State in codes with their scale, in a dict and a list; the counter is a number of Python."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            scale = parameter.grad.abs().max().reshape(1)
            codes = (parameter.grad / scale * 127).to(torch.int8)
            kept = {"moment": {"codes": codes, "scale": scale}, "old": [parameter.grad.clone()]}
            self.state[parameter].update(step=1, **kept)


class Wrapper:
    def __init__(self, optimizer):
        self.optimizer = optimizer


def coded(mistake):
    model = net()
    optimizer = Coded(model.parameters())
    with_gradients(model)
    optimizer.step()
    state = optimizer.state[model[0].bias]
    if mistake == "counter" and dist.get_rank() == 1:
        state["step"] = 2
    if mistake == "code" and dist.get_rank() == 1:
        state["moment"]["codes"][3] ^= 1
    if mistake == "old" and dist.get_rank() == 1:
        state["old"][0][2] += 1
    return model, {"optimizer": Wrapper(optimizer)}


def copies(mistake):
    """The optimizer steps fp32 copies of bf16 parameters."""
    model = net(torch.bfloat16)
    masters = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters)
    with_gradients(model)
    for parameter, master in zip(model.parameters(), masters, strict=True):
        master.grad = parameter.grad.float()
    optimizer.step()
    for parameter, master in zip(model.parameters(), masters, strict=True):
        parameter.data.copy_(master)
    if mistake == "copy" and dist.get_rank() == 2:
        masters[1][4] += 1
    return model, {"optimizer": optimizer}


class Centred(nn.Module):
    """A running mean of its own, beside a mask and a scale that are no statistics."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("scale", torch.ones(2))
        self.norm = nn.InstanceNorm1d(4, track_running_stats=True)

    @torch.no_grad()
    def forward(self, x):
        self.mean.mul_(0.9).add_(x.mean((0, 2)), alpha=0.1)
        return self.norm(x)


def statistics(mistake):
    model = Centred()
    for seed in range(2):
        model(values(3, 4, 5, seed=seed if mistake == "one" else 10 * dist.get_rank() + seed))
    if mistake == "one" and dist.get_rank() == 3:
        model.mean[2] += 1
    if mistake == "inf":
        model.scale[1] = torch.inf
    return model, {}


def resharded(mistake):
    """FSDP2 that keeps shards of two ranks from forward to backward."""
    model = net()
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cpu", (4,)), reshard_after_forward=2)
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(values(5, 4)).sum().backward()
    optimizer.step()
    (weight,) = [each for each in model.parameters() if each.shape == (6, 4)]
    model(values(5, 4))
    if mistake == "nan" and dist.get_rank() == 1:
        weight.to_local().data[0, 3] = torch.nan
    return model, {"optimizer": optimizer}


def summoned(mistake):
    """FSDP1 whose parameters are whole, to be changed."""
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
    OPEN.append(FullyShardedDataParallel.summon_full_params(model))
    OPEN[-1].__enter__()
    if mistake == "nan":
        with torch.no_grad():
            model[1].bias[1] = torch.nan
    return model, {}


def uneven_parts(mistake):
    """tp 2 x dp 2: of five rows a rank has three or two."""
    part = dist.get_rank() % 2
    model = nn.Module()
    model.w = nn.Parameter(values(5, 3).chunk(2)[part].clone())
    if mistake == "drift" and dist.get_rank() == 3:
        model.w.data[1, 1] += 1
    if mistake == "cut" and dist.get_rank() == 3:
        model.w = nn.Parameter(model.w.data[:1].clone())
    return model, {
        "mesh": {"tp": PAIRS, "dp": ACROSS},
        "layout": {"w": {"tp": Shard(0)}},
    }


JOBS = {
    divided: (None, "stale", "nan"), coded: (None, "counter", "code", "old"),
    copies: (None, "copy"), statistics: (None, "one", "inf"), resharded: (None, "nan"),
    summoned: (None, "nan"), uneven_parts: (None, "drift", "cut"),
}  # fmt: skip

if __name__ == "__main__":
    ranked_jobs.run(JOBS, EVIDENCE)
