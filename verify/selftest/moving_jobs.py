#!/usr/bin/env python3
"""Jobs on two ranks that train, each sound and with a mistake, observed: moving_jobs.py EVIDENCE

EVIDENCE/<job> <mistake> is the evidence of each. The mistakes: `put_back`, one weight is after each
step what it was before; `state`, the optimizer's state is after each but the first what it was
before; `returns`, after the third step all weights are what they were at first.
"""

import os
import sys
import tempfile

import shardproof
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

WORLD_SIZE = 2
EVIDENCE = sys.argv[1]


class Net(nn.Module):
    """Two layers, and experts of which a step uses one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 16), nn.Linear(16, 12)
        self.experts = nn.ModuleList([nn.Linear(12, 12) for _ in range(2)])

    def forward(self, x, step):
        x = self.last(torch.relu(self.first(x)))
        return self.experts[step % 2](x).square().mean()


def fsdp2():
    model = Net()
    for module in (model.first, model.last, model):
        fully_shard(module, mesh=init_device_mesh("cpu", (WORLD_SIZE,)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def fsdp2_sgd():
    model, _ = fsdp2()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def fsdp1():
    """Flat parameters, with a scaler that has every fourth step skipped."""
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def fsdp1_original():
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), use_orig_params=True)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def zero():
    model = DistributedDataParallel(Net(), find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.01)
    return model, optimizer


TRAINED = {
    "fsdp2": (fsdp2, (None, "put_back", "state", "returns")),
    "fsdp2_sgd": (fsdp2_sgd, (None, "put_back")),
    "fsdp1": (fsdp1, (None, "put_back", "state")),
    "fsdp1_original": (fsdp1_original, (None, "put_back")),
    "zero": (zero, (None, "put_back")),
}


def memory_of(model):
    """By name, what this rank has of each parameter."""
    return {name: getattr(parameter, "_local_tensor", parameter).detach()
            for name, parameter in model.named_parameters()}  # fmt: skip


def first_weight(memory):
    """Of the first layer; of flat parameters a part of one."""
    names = [name for name in memory if "first.weight" in name]
    return memory[names[0]] if names else next(iter(memory.values()))


def state_of(optimizer):
    inner = getattr(optimizer, "optim", optimizer)
    return inner.state


def train(model, optimizer, mistake, job):
    scaler = ShardedGradScaler("cpu", init_scale=1.0) if job == "fsdp1" else None
    shardproof.observe("ready", model=model, optimizer=optimizer)
    first = {name: value.clone() for name, value in memory_of(model).items()}
    for step in range(1, 6):
        x = torch.randn(4, 12, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
        before = first_weight(memory_of(model)).clone()
        held = {p: {k: v.clone() for k, v in state.items()}
                for p, state in state_of(optimizer).items()}  # fmt: skip
        loss = model(x, step)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss * (torch.inf if step == 4 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        now = memory_of(model)
        with torch.no_grad():
            if mistake == "put_back":
                first_weight(now).copy_(before)
            if mistake == "state":
                for p, state in held.items():
                    for key, value in state.items():
                        state_of(optimizer)[p][key].copy_(value)
            if mistake == "returns" and step == 3:
                for name, value in now.items():
                    value.copy_(first[name])
        shardproof.observe("stepped", model=model, optimizer=optimizer, step=step)


def rank(number, job, mistake, folder):
    os.environ["SHARDPROOF_EVIDENCE"] = os.path.join(EVIDENCE, f"{job} {mistake or 'sound'}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=number, world_size=WORLD_SIZE
    )
    model, optimizer = TRAINED[job][0]()
    train(model, optimizer, mistake, job)
    dist.destroy_process_group()


def main():
    for job, (_, mistakes) in TRAINED.items():
        for mistake in mistakes:
            with tempfile.TemporaryDirectory() as folder:
                mp.start_processes(rank, (job, mistake, folder), WORLD_SIZE, start_method="fork")


if __name__ == "__main__":
    sys.exit(main())
