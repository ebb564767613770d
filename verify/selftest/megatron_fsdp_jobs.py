#!/usr/bin/env python3
"""Jobs of Megatron-FSDP on two ranks over Gloo, or four, each sound and with a mistake:
megatron_fsdp_jobs.py [EVIDENCE], as ranked_jobs.run says. CUDA is a stand-in.
"""

import sys

import ranked_jobs
import torch
import torch._dynamo  # it looks up functions of CUDA, which the stand-in replaces
import torch.distributed as dist
from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model, fully_shard_optimizer
from shardproof.subjects import cuda_stand_in
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

RANKS = 2


def trained(mesh, **sharding):
    """Two steps, each rank on data of its own. Gradients are summed: Gloo averages none in F32."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3), nn.LayerNorm(3))
    model = fully_shard_model(
        net, device_mesh=mesh, dp_shard_dim="dp", tp_dim="tp", fsdp_unit_modules=[nn.Linear],
        device=torch.device("cpu"), calculate_per_token_loss=True,
        mixed_precision_policy=MixedPrecisionPolicy(main_params_dtype=None), **sharding,
    )  # fmt: skip
    optimizer = fully_shard_optimizer(torch.optim.AdamW(model.parameters(), lr=0.01))
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 5, generator=data)).square().mean().backward()
        optimizer.step()
    return model, optimizer


def on_one_axis():
    return init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("dp", "tp"))


def first_shard(model):
    """What this rank has of the first parameter of which it has any."""
    shards = [parameter.detach().to_local() for parameter in model.parameters()]
    return next(shard for shard in shards if shard.numel()).view(-1)


def sharded(mistake):
    """Buckets are cut evenly over the ranks, so parameters are cut anywhere."""
    model, optimizer = trained(on_one_axis())
    if mistake == "nan" and ranked_jobs.is_rank(1):
        first_shard(model)[1] = torch.nan
    if mistake == "step" and ranked_jobs.is_rank(1):
        next(iter(optimizer.state.values()))["step"] += 1
    return model, {"optimizer": optimizer}


def whole(mistake):
    """Nothing is sharded."""
    model, optimizer = trained(on_one_axis(), zero_dp_strategy="no_shard")
    if mistake == "bit" and ranked_jobs.is_rank(1):
        first_shard(model)[1] += 1
    return model, {"optimizer": optimizer}


def hybrid(mistake):
    """Two replicas of two shards."""
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("outer", "dp", "tp"))
    both = mesh["outer", "dp"]._flatten("both").get_group()
    model, optimizer = trained(mesh, dp_outer_dim="outer", hybrid_fsdp_group=both)
    if mistake == "bit" and ranked_jobs.is_rank(3):
        first_shard(model)[1] += 1
    return model, {"optimizer": optimizer}


hybrid.world_size = 4

JOBS = {sharded: (None, "nan", "step"), whole: (None, "bit"), hybrid: (None, "bit")}

if __name__ == "__main__":
    cuda_stand_in.install()
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[1:2], world_size=RANKS))
