#!/usr/bin/env python3
"""Jobs of DeepSpeed's ZeRO on two ranks over Gloo, each sound and with a mistake:
deepspeed_jobs.py [EVIDENCE], as ranked_jobs.run says.

Its own accelerator of the host is used, and no operator of its own is compiled.
"""

import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", LOCAL_RANK="0", CUDA_VISIBLE_DEVICES="")

import deepspeed  # noqa: E402 (asks for the variables)
import ranked_jobs  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from deepspeed.comm import torch as backend  # noqa: E402
from torch import nn  # noqa: E402

RANKS = 2


def trained(stage, bf16=False):
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 5},
        "bf16": {"enabled": bf16},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        batch = torch.randn(2, 4, generator=data).to(torch.bfloat16 if bf16 else torch.float32)
        engine.backward(engine(batch).float().square().mean())
        engine.step()
    return engine, optimizer


def is_rank(rank):
    return dist.get_rank() == rank


def zero_1(mistake, stage=1, **options):
    """Each rank has the optimizer's state of one half of the flattened parameters."""
    engine, optimizer = trained(stage, **options)
    if mistake == "stale" and is_rank(1):
        engine.module[0].weight.data[2, 1] -= 0.25
    (state,) = optimizer.optimizer.state.values()
    if mistake == "nan" and is_rank(1):
        state["exp_avg"][3] = torch.nan
    if mistake == "step" and is_rank(1):
        state["step"] += 1
    if mistake == "lost" and is_rank(1):
        optimizer.optimizer.state.clear()
    return engine, {"optimizer": optimizer}


def zero_1_bf16(mistake):
    return zero_1(mistake, bf16=True)


def zero_2(mistake):
    return zero_1(mistake, stage=2)


def zero_3(mistake):
    """Each rank has a part of the parameters, too; small ones are on all ranks."""
    engine, optimizer = trained(3)
    if mistake == "stale" and is_rank(1):
        engine.module[2].bias.data[1] += 1
    if mistake == "nan" and is_rank(1):
        engine.module[0].weight.ds_tensor.data[2] = torch.nan
    if mistake == "cut" and is_rank(1):
        engine.module[0].weight.ds_tensor.ds_numel -= 1
    if mistake == "step" and is_rank(1):
        for state in optimizer.optimizer.state.values():
            state["step"] += 1
    return engine, {"optimizer": optimizer}


JOBS = {
    zero_1: (None, "stale", "nan", "step", "lost"),
    zero_1_bf16: (None, "stale"),
    zero_2: (None, "stale"),
    zero_3: (None, "stale", "nan", "cut", "step"),
}

if __name__ == "__main__":
    backend.build_shm_op = lambda: None  # it would be compiled at the first use
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[1:2], world_size=RANKS))
