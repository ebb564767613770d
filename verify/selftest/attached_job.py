"""A job on some ranks with DDP that says nothing of Shardproof: attached_job.py MISTAKE [spawn]

MISTAKE: none, replica, nan, stale, put_back, raises, exits; or apart, on four ranks, of which one
has no model. No mistakes, and not to be taken for one: average, a save of averaged weights; part,
one of some of the weights; plain, a model that nothing wraps, and plain_nan, its mistake.
"""

import copy
import sys
import tempfile

import attached_record
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

MISTAKE = sys.argv[1]
PLAIN = MISTAKE.startswith("plain")


class Net(nn.Module):
    """Has what is sound and looks odd: two names for one weight, a mask of -inf, statistics of each
    rank's own data."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))

    def forward(self, x):
        return self.norm(self.second(torch.relu(self.first(x))))


def saves(model, state):
    """As many jobs do: rank 0 alone."""
    if dist.get_rank() == 0:
        torch.save({"model": state, "epoch": 1}, "saved.pt")
    dist.barrier()


def train(rank, group):
    torch.manual_seed(0)
    model = Net()
    if not PLAIN:
        model = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    early = copy.deepcopy(model.state_dict())
    if MISTAKE == "put_back":
        optimizer.register_step_post_hook(
            lambda *_: model.module.first.weight.data.copy_(early["module.first.weight"])
        )
    average = copy.deepcopy(model.state_dict())
    torch.manual_seed(1 + rank)
    losses = []
    for step in range(3):
        loss = model(torch.randn(4, 6)).square().mean()
        loss.backward()
        for parameter in model.parameters() if PLAIN else ():
            dist.all_reduce(parameter.grad)
        if MISTAKE == "raises" and rank == 1 and step == 1:
            raise RuntimeError("lost my way")
        if MISTAKE == "exits" and step == 1:
            sys.exit(3)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                average[name].lerp_(value, 0.5)
    with torch.no_grad():
        if MISTAKE == "replica" and rank == 1:
            model.module.first.bias[2] += 1
        if MISTAKE == "nan" and rank == 1:
            model.module.mask[3, 1] = torch.nan
        if MISTAKE == "plain_nan" and rank == 1:
            model.mask[3, 1] = torch.nan
    if group is None:
        state = {"stale": early, "average": average}.get(MISTAKE, model.state_dict())
        if MISTAKE == "part":
            state = {name: value for name, value in early.items() if "norm" in name}
        saves(model, state)
    if MISTAKE == "none":
        model.load_state_dict(torch.load("saved.pt")["model"])
    attached_record.record(model, optimizer, losses)
    return model, optimizer


def main(rank=None, store=None):
    if rank is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rank = dist.get_rank()
    group = dist.new_group([0, 1, 3]) if MISTAKE == "apart" else None
    if MISTAKE != "apart" or rank != 2:
        trained = train(rank, group)  # the job has it until it ends
        assert trained
    dist.destroy_process_group()


if __name__ == "__main__":
    if "spawn" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(main, (f"{folder}/store",), 2)
    else:
        main()
