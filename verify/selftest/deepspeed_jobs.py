#!/usr/bin/env python3
"""Jobs of DeepSpeed on two ranks over Gloo, or four, each sound and with a mistake:
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
from deepspeed.moe import layer, utils  # noqa: E402
from torch import nn  # noqa: E402

RANKS = 2


def two_layers():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))


def mean_square(out):
    return out.float().square().mean()


def trained(stage, bf16=False):
    net = two_layers()
    return stepped(net, net.parameters(), stage, bf16)


def stepped(net, parameters, stage, bf16, loss=mean_square):
    """Two steps, each rank on data of its own. parameters: those of the optimizer, or groups."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 5},
        "bf16": {"enabled": bf16},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(parameters, lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=optimizer, config=config)
    data = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        batch = torch.randn(2, 4, generator=data).to(torch.bfloat16 if bf16 else torch.float32)
        engine.backward(loss(engine(batch)))
        engine.step()
    return engine, optimizer


def zero_1(mistake, stage=1, **options):
    """Each rank has the optimizer's state of one half of the flattened parameters."""
    engine, optimizer = trained(stage, **options)
    if mistake == "stale" and ranked_jobs.is_rank(1):
        engine.module[0].weight.data[2, 1] -= 0.25
    (state,) = optimizer.optimizer.state.values()
    if mistake == "nan" and ranked_jobs.is_rank(1):
        state["exp_avg"][3] = torch.nan
    if mistake == "step" and ranked_jobs.is_rank(1):
        state["step"] += 1
    if mistake == "lost" and ranked_jobs.is_rank(1):
        optimizer.optimizer.state.clear()
    return engine, {"optimizer": optimizer}


def zero_1_bf16(mistake):
    return zero_1(mistake, bf16=True)


def zero_2(mistake):
    return zero_1(mistake, stage=2)


def zero_3(mistake):
    """Each rank has a part of the parameters, too; small ones are on all ranks."""
    engine, optimizer = trained(3)
    if mistake == "stale" and ranked_jobs.is_rank(1):
        engine.module[2].bias.data[1] += 1
    if mistake == "nan" and ranked_jobs.is_rank(1):
        engine.module[0].weight.ds_tensor.data[2] = torch.nan
    if mistake == "cut" and ranked_jobs.is_rank(1):
        engine.module[0].weight.ds_tensor.ds_numel -= 1
    if mistake == "step" and ranked_jobs.is_rank(1):
        for state in optimizer.optimizer.state.values():
            state["step"] += 1
    return engine, {"optimizer": optimizer}


def two_groups(mistake):
    """ZeRO-1 steps one group of parameters after the other: those without weight decay by
    themselves."""
    net = two_layers()
    kinds = [[p for p in net.parameters() if (p.dim() > 1) == decays] for decays in (True, False)]
    groups = [{"params": p, "weight_decay": d} for p, d in zip(kinds, (0.1, 0.0), strict=True)]
    engine, optimizer = stepped(net, groups, 1, True)
    if mistake == "bit" and ranked_jobs.is_rank(1):
        engine.module[0].weight.data[2, 1] += 0.25
    if mistake == "decay" and ranked_jobs.is_rank(1):
        optimizer.param_groups[0]["weight_decay"] = 0.2
    return engine, {"optimizer": optimizer}


class Routed(nn.Module):
    """Four experts, two on each rank; two ranks have the same."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        expert = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 6))
        self.moe = layer.MoE(6, expert, num_experts=4, ep_size=2, k=1, min_capacity=2)

    def forward(self, batch):
        out, auxiliary, _ = self.moe(self.first(batch))
        return self.last(out), auxiliary


def experts(mistake):
    """ep 2 x expert dp 2 with ZeRO-2: ranks 0 and 2 have the same experts, ranks 1 and 3 others."""
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    net = Routed()
    groups = utils.split_params_into_different_moe_groups_for_optimizer(
        {"params": list(net.parameters()), "name": "all"}
    )
    engine, optimizer = stepped(
        net, groups, 2, True, lambda out: mean_square(out[0]) + 0.01 * out[1]
    )
    moe = engine.module.moe.deepspeed_moe
    if mistake == "expert" and ranked_jobs.is_rank(3):
        moe.experts.deepspeed_experts[1][0].weight.data[2, 1] += 1
    if mistake == "gate" and ranked_jobs.is_rank(2):
        moe.gate.wg.weight.data[1, 2] += 1
    return engine, {"optimizer": optimizer}


experts.world_size = 4

JOBS = {
    zero_1: (None, "stale", "nan", "step", "lost"),
    zero_1_bf16: (None, "stale"),
    zero_2: (None, "stale"),
    zero_3: (None, "stale", "nan", "cut", "step"),
    two_groups: (None, "bit", "decay"),
    experts: (None, "expert", "gate"),
}

if __name__ == "__main__":
    backend.build_shm_op = lambda: None  # it would be compiled at the first use
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[1:2], world_size=RANKS))
