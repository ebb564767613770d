#!/usr/bin/env python3
"""Models on two to four ranks as people wrap, shard and train them, each sound and with a mistake
on one rank: trained_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import functools
import sys

import ranked_jobs
import torch
import torch.distributed as dist
from job_pieces import ACROSS, PAIRS, flip, is_odd, mesh, net, on, train, values
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

# ---- What is beside the weights


@on(2)
def ema(mistake):
    """A running average of the weights is part of the model."""
    online = net()
    average = AveragedModel(online, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(online.parameters())
    for _ in range(2):
        train(online, optimizer, 1)
        average.update_parameters(online)
    if is_odd(mistake, "bit", 1):
        flip(average.module[1].weight, 7)
    model = nn.ModuleDict({"online": online, "average": average})
    for parameter in average.parameters():
        parameter.requires_grad_(False)
    return model, {"optimizer": optimizer}


@on(2)
def accumulating(mistake):
    """DDP between two of the batches whose gradients are added up."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    train(model, optimizer)
    with model.no_sync():
        model(values(5, 4, seed=dist.get_rank())).sum().backward()
    if is_odd(mistake, "bit", 1):
        flip(model.module[0].bias, 2)
    return model, {"optimizer": optimizer}


def frozen_tower(mistake):
    """HSDP, the first layer of which is not trained."""
    model = net()
    model[0].requires_grad_(False)
    over = mesh(2, 2, names=("replicate", "shard"))
    for layer in model:
        fully_shard(layer, mesh=over)
    fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    train(model, optimizer)
    if is_odd(mistake, "bit", 3):
        flip(model[0].weight, 5)
    if is_odd(mistake, "thawed", 3):
        model[0].weight.requires_grad_(True)
    return model, {"optimizer": optimizer}


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(values(2, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


def lora(mistake):
    """Adapters beside frozen weights, all of them sharded, on two replicas."""
    model = nn.Sequential(*map(Lora, net()))
    fully_shard(model, mesh=mesh(2, 2, names=("replicate", "shard")))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    train(model, optimizer)
    if is_odd(mistake, "bit", 2):
        flip(model[1].lora_b, 1)
    return model, {"optimizer": optimizer}


class Rotary(nn.Module):
    """Keeps as much of a table as its longest batch asked for."""

    def __init__(self, length):
        super().__init__()
        frequencies = 1.0 / (10000 ** (torch.arange(0, 4, 2) / 4))
        self.register_buffer("inv_freq", frequencies, persistent=False)
        self.linear = nn.Linear(4, 4)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
        self.register_buffer("cached", angles.cos(), persistent=False)


@on(2)
def tables(mistake):
    torch.manual_seed(0)
    model = Rotary(8 + 4 * dist.get_rank())
    if is_odd(mistake, "bit", 1):
        flip(model.inv_freq, 1)
    return model, {}


@on(2)
def random_state(mistake):
    """Each rank's random numbers are in the model, so that they are saved with it."""
    model = net()
    torch.manual_seed(dist.get_rank())
    model.register_buffer("rng_state", torch.get_rng_state())
    if is_odd(mistake, "bit", 1):
        flip(model[1].bias, 0)
    return model, {}


@on(2)
def balanced(mistake):
    """A router whose bias each step changes by what all ranks have counted."""
    model = net()
    model.register_buffer("expert_bias", torch.zeros(4))
    model.register_buffer("tokens_per_expert", torch.zeros(4))
    for _ in range(3):
        model.tokens_per_expert.add_(values(4, seed=dist.get_rank()).abs())
        counts = model.tokens_per_expert.clone()
        dist.all_reduce(counts)
        model.expert_bias.add_((counts.mean() - counts).sign(), alpha=0.01)
    if is_odd(mistake, "bit", 1):
        flip(model.expert_bias, 3)
    return model, {}


# ---- Parallelism


def tied_stages(mistake):
    """pp 2 x dp 2: the first and the last stage have the embedding, under one name."""
    stage, other = divmod(dist.get_rank(), 2)
    model = nn.Module()
    model.embedding = nn.Parameter(values(5, 3))
    model.register_module(f"layer{stage}", nn.Linear(3, 3))
    nn.init.ones_(getattr(model, f"layer{stage}").weight)
    nn.init.zeros_(getattr(model, f"layer{stage}").bias)
    if mistake == "drift" and stage == 1:
        flip(model.embedding, 4)
    if is_odd(mistake, "bit", 3):
        flip(model.layer1.weight, 4)
    return model, {"mesh": {"pp": ACROSS, "dp": PAIRS}}


def context_parallel(mistake):
    """dp_shard 2 x cp 2: both cut the weights, as FSDP2 over both axes does."""
    over = mesh(2, 2, names=("dp_shard", "cp"))._flatten("dp_shard_cp")
    model = net()
    fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "nan", 2):
        (state,) = [s for p, s in optimizer.state.items() if p.shape == (6, 4)]
        state["exp_avg"].to_local()[0, 2] = torch.nan
    if is_odd(mistake, "rate", 2):
        optimizer.param_groups[0]["lr"] *= 2
    return model, {"optimizer": optimizer}


def sequence_parallel(mistake):
    """dp 2 x tp 2 of DTensors on the tp axis alone; norms are whole on each of its ranks."""
    job = mesh(2, 2, names=("dp", "tp"))
    model = net()
    for parameter, placement in (
        ("0.weight", Shard(0)), ("0.bias", Shard(0)), ("1.weight", Shard(1)),
        ("1.bias", Replicate()),
    ):  # fmt: skip
        layer, name = model[int(parameter[0])], parameter[2:]
        whole = getattr(layer, name).detach()
        setattr(layer, name, nn.Parameter(distribute_tensor(whole, job["tp"], [placement])))
    if is_odd(mistake, "bit", 3):
        flip(model[1].bias, 1)
    if is_odd(mistake, "part", 3):
        flip(model[1].weight, 4)
    return model, {"mesh": job}


@on(3)
def odd_world(mistake):
    """Three ranks, which nothing is a multiple of; one parameter is whole on all of them."""
    model = net()
    kept = model[1].bias
    fully_shard(model, mesh=mesh(3), ignored_params={kept})
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 2):
        flip(kept, 1)
    return model, {"optimizer": optimizer}


@on(3)
def replicas_alone(mistake):
    """HSDP of three replicas, each on one rank."""
    model = net()
    fully_shard(model, mesh=mesh(3, 1, names=("replicate", "shard")))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 0):
        flip(model[0].weight, 9)
    return model, {"optimizer": optimizer}


def strided(mistake):
    """FSDP2 over tensor parallelism, both along one dim."""
    job = mesh(2, 2, names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(4, 8, bias=False))
    whole = values(8, 4)
    model[0].weight = nn.Parameter(distribute_tensor(whole, job["tp"], [Shard(0)]))
    fully_shard(model, mesh=job["dp"])
    if is_odd(mistake, "nan", 3):
        model[0].weight.to_local().data[1, 2] = torch.nan
    return model, {}


@on(2)
def awaiting(mistake):
    """A count that is added up over the ranks only when it is asked for."""
    model = net()
    count = DTensor.from_local(torch.ones(3), mesh(2), [Partial()], run_check=False)
    model.register_buffer("count", count)
    if is_odd(mistake, "bit", 1):
        flip(model[0].bias, 3)
    return model, {}


def expert_lists(mistake):
    """Each rank has two of eight experts, which it counts from 0."""
    model = net()
    model.experts = nn.ModuleList(nn.Linear(3, 3, bias=False) for _ in range(2))
    for number, expert in enumerate(model.experts):
        expert.weight.data.copy_(values(3, 3, seed=2 * dist.get_rank() + number))
    if is_odd(mistake, "bit", 1):
        flip(model[1].weight, 3)
    if is_odd(mistake, "nan", 1):
        model.experts[1].weight.data[2, 1] = torch.nan
    return model, {"layout": {"experts.*": "local"}}


def ignored_experts(mistake):
    """DDP that leaves experts to each rank."""
    model = net()
    model[0].expert = nn.Parameter(values(3, seed=dist.get_rank()), requires_grad=False)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["0.expert"])
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    train(model, optimizer)
    if is_odd(mistake, "bit", 2):
        flip(model.module[1].weight, 11)
    return model, {"layout": {"*.expert": "local"}, "optimizer": optimizer}


# ---- Wrappers


@on(2)
def compiled(mistake):
    model = DistributedDataParallel(torch.compile(net(), backend="eager"))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model.module._orig_mod[0].weight, 6)
    return model, {"optimizer": optimizer}


def recomputed(mistake):
    """Activation checkpointing within FSDP2, on two replicas."""
    model = net()
    model[0] = checkpoint_wrapper(model[0])
    over = mesh(2, 2, names=("replicate", "shard"))
    for layer in model:
        fully_shard(layer, mesh=over)
    fully_shard(model, mesh=over)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 3):
        flip(next(model[0].parameters()), 4)
    return model, {"optimizer": optimizer}


def offloaded(mistake):
    """FSDP2 whose shards and optimizer are kept on the host, on two replicas."""
    model = net()
    over = mesh(2, 2, names=("replicate", "shard"))
    fully_shard(model, mesh=over, offload_policy=CPUOffloadPolicy(pin_memory=False))
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 2):
        flip([s for p, s in optimizer.state.items() if p.shape == (3,)][0]["exp_avg"], 1)
    return model, {"optimizer": optimizer}


@on(2)
def original_parameters(mistake):
    """FSDP1 with original parameters, some of them frozen; the weight decay is not that of all."""
    model = net()
    model[0].requires_grad_(False)
    wrap = functools.partial(FullyShardedDataParallel, device_id=torch.device("cpu"),
                             use_orig_params=True)  # fmt: skip
    model = wrap(nn.Sequential(wrap(model[0]), wrap(model[1])))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    train(model, optimizer)
    if is_odd(mistake, "decay", 1):
        optimizer.param_groups[0]["weight_decay"] = 0.0
    if is_odd(mistake, "nan", 1):
        model[0].weight.data.view(-1)[3:4] = torch.nan
    return model, {"optimizer": optimizer}


JOBS = {
    ema: (None, "bit"),
    accumulating: (None, "bit"),
    frozen_tower: (None, "bit", "thawed"),
    lora: (None, "bit"),
    tables: (None, "bit"),
    random_state: (None, "bit"),
    balanced: (None, "bit"),
    tied_stages: (None, "drift", "bit"),
    context_parallel: (None, "nan", "rate"),
    sequence_parallel: (None, "bit", "part"),
    odd_world: (None, "bit"),
    replicas_alone: (None, "bit"),
    strided: (None, "nan"),
    awaiting: (None, "bit"),
    expert_lists: (None, "bit", "nan"),
    ignored_experts: (None, "bit"),
    compiled: (None, "bit"),
    recomputed: (None, "bit"),
    offloaded: (None, "bit"),
    original_parameters: (None, "decay", "nan"),
}

if __name__ == "__main__":
    ranked_jobs.run(JOBS, *sys.argv[1:])
