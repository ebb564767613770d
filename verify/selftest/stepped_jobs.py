#!/usr/bin/env python3
"""Optimizers of many kinds on two to four ranks, each sound and with a mistake on one rank:
stepped_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import sys

import ranked_jobs
import torch
import torch.distributed as dist
from job_pieces import ACROSS, PAIRS, flip, is_odd, net, on, train, values
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@on(2)
def in_backward(mistake):
    """An optimizer for each parameter steps as soon as it has its gradient."""
    model = net()
    optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for step in range(2):
        model(values(5, 4, seed=step)).square().mean().backward()
        for optimizer in optimizers.values():
            optimizer.zero_grad()
    if is_odd(mistake, "bit", 1):
        flip(optimizers[model[1].bias].state[model[1].bias]["exp_avg_sq"], 2)
    return model, {"optimizer": list(optimizers.values())}


@on(2)
def layer_rates(mistake):
    """A rate for each layer, none of the biases decayed; stepped by a schedule."""
    model = DistributedDataParallel(net())
    groups = [
        {"params": [layer.weight], "lr": 0.1 * 0.5**at} for at, layer in enumerate(model.module)
    ]
    groups.append({"params": [layer.bias for layer in model.module], "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    train(model, optimizer)
    schedule.step()
    if is_odd(mistake, "rate", 1):
        optimizer.param_groups[1]["lr"] *= 0.9
    if is_odd(mistake, "betas", 1):
        optimizer.param_groups[2]["betas"] = (0.9, 0.95)
    if is_odd(mistake, "frozen", 1):
        model.module[0].bias.requires_grad_(False)
    return model, {"optimizer": optimizer}


def given(optimizer):
    """Parameters that have a gradient."""
    return [p for p in optimizer.param_groups[0]["params"] if p.grad is not None]


class EightBit(torch.optim.Optimizer):
    """State in codes, with the table of their values and a largest one for each block."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for parameter in given(self):
            largest = parameter.grad.abs().max().reshape(1)
            codes = (parameter.grad / largest * 127 + 128).to(torch.uint8)
            self.state[parameter].update(state1=codes, absmax1=largest, step=1,
                                         qmap1=torch.linspace(-1, 1, 256))  # fmt: skip
            parameter.sub_(parameter.grad, alpha=0.1)


@on(2)
def eight_bit(mistake):
    model = net(torch.bfloat16)
    optimizer = EightBit(model.parameters())
    train(lambda x: model(x.bfloat16()), optimizer)
    if is_odd(mistake, "bit", 1):
        flip(optimizer.state[model[1].weight]["state1"], 13)
    return model, {"optimizer": optimizer}


class ScheduleFree(torch.optim.Optimizer):
    """Counts in its groups, and keeps the point that the weights are an average with."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "k": 0, "weight_sum": 0.0, "train_mode": True})

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        group["k"] += bool(given(self))
        group["weight_sum"] += group["lr"] ** 2
        for parameter in given(self):
            z = self.state[parameter].setdefault("z", parameter.clone())
            z.sub_(parameter.grad, alpha=group["lr"])
            parameter.lerp_(z, 1 / group["k"])


@on(2)
def schedule_free(mistake):
    model = DistributedDataParallel(net())
    optimizer = ScheduleFree(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(optimizer.state[model.module[0].weight]["z"], 8)
    return model, {"optimizer": optimizer}


class Shampoo(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "momentum": 0.9})

    @torch.no_grad()
    def step(self):
        for parameter in given(self):
            state = self.state[parameter]
            if not state:
                state["step"] = torch.tensor(0)
                state["preconditioners"] = [torch.eye(size) for size in parameter.shape]
            state["step"] += 1
            grad = parameter.grad
            for dim, preconditioner in enumerate(state["preconditioners"]):
                flat = grad.movedim(dim, 0).flatten(1) if grad.dim() > 1 else grad.reshape(-1, 1)
                preconditioner.addmm_(flat, flat.T)
            parameter.sub_(grad, alpha=0.1)


@on(2)
def shampoo(mistake):
    model = net()
    optimizer = Shampoo(model.parameters())
    train(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(optimizer.state[model[0].weight]["preconditioners"][1], 6)
    return model, {"optimizer": optimizer}


def owned(mistake):
    """Each rank's optimizer is given parameters of its own, and the owner sends what it made."""
    model = net()
    rank, every = dist.get_rank(), list(model.parameters())
    owner = {id(p): min(n, 2) for n, p in enumerate(every)}
    if mistake == "nobodys":
        owner[id(every[3])] = None
    own = [p for p in every if owner[id(p)] == rank]
    optimizer = torch.optim.AdamW(own) if own else None
    for step in range(2):
        model(values(5, 4, seed=step)).square().mean().backward()
        if optimizer is not None:
            optimizer.step()
        for parameter in every:
            if owner[id(parameter)] is not None:
                dist.broadcast(parameter.data, owner[id(parameter)])
            parameter.grad = None
    if is_odd(mistake, "bit", 3):
        flip(model[0].weight, 2)
    return model, {"optimizer": optimizer}


@on(2)
def loaded_in_part(mistake):
    """Of an old checkpoint the optimizer has state of the first layer only, until it steps."""
    model = net()
    old = torch.optim.AdamW(model.parameters())
    train(model, old)
    state = old.state_dict()
    state["state"] = {number: each for number, each in state["state"].items() if number < 2}
    optimizer = torch.optim.AdamW(model.parameters())
    if not is_odd(mistake, "lost", 1):
        optimizer.load_state_dict(state)
    if is_odd(mistake, "bit", 1):
        flip(optimizer.state[model[0].bias]["exp_avg"], 5)
    return model, {"optimizer": optimizer}


def late_stage(mistake):
    """pp 2 x dp 2: the optimizer of a stage has left out a step."""
    stage = dist.get_rank() // 2
    torch.manual_seed(stage)
    model = nn.Module()
    model.register_module(f"layer{stage}", nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(1 if mistake == "late" and stage == 1 else 2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    if is_odd(mistake, "bit", 3):
        flip(optimizer.state[model.layer1.bias]["exp_avg"], 2)
    return model, {"mesh": {"pp": ACROSS, "dp": PAIRS}, "optimizer": optimizer}


JOBS = {
    in_backward: (None, "bit"),
    layer_rates: (None, "rate", "betas", "frozen"),
    eight_bit: (None, "bit"),
    schedule_free: (None, "bit"),
    shampoo: (None, "bit"),
    owned: (None, "bit", "nobodys"),
    loaded_in_part: (None, "lost", "bit"),
    late_stage: (None, "late", "bit"),
}

if __name__ == "__main__":
    ranked_jobs.run(JOBS, *sys.argv[1:])
