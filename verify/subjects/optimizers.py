"""Optimizers that jobs step with, by name, for ways_to_train.py."""

import functools

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer


class Lion(torch.optim.Optimizer):
    """An optimizer of the job's own: steps are signs of an average."""

    def __init__(self, params, lr=1e-4, beta=0.9, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "beta": beta, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):  # Accelerate passes one
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                average = state.setdefault("average", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                average.lerp_(p.grad, 1 - group["beta"])
                p.add_(average.sign(), alpha=-group["lr"])


OF_ALL = {
    "adamw_foreach": functools.partial(torch.optim.AdamW, lr=1e-3, foreach=True),
    "adamw_fused": functools.partial(torch.optim.AdamW, lr=1e-3, fused=True),
    "amsgrad": functools.partial(torch.optim.AdamW, lr=1e-3, amsgrad=True),
    "adam": functools.partial(torch.optim.Adam, lr=1e-3, weight_decay=0.01),
    "nadam": functools.partial(torch.optim.NAdam, lr=1e-3),
    "radam": functools.partial(torch.optim.RAdam, lr=1e-3),
    "adamax": functools.partial(torch.optim.Adamax, lr=1e-3),
    "adadelta": functools.partial(torch.optim.Adadelta, lr=0.1),
    "rmsprop": functools.partial(torch.optim.RMSprop, lr=1e-3, momentum=0.9, centered=True),
    "sgd": functools.partial(
        torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "sgd_plain": functools.partial(torch.optim.SGD, lr=0.1),  # without a state
    "adagrad": functools.partial(torch.optim.Adagrad, lr=1e-2),
    "adafactor": functools.partial(torch.optim.Adafactor, lr=1e-2),
    "lion": functools.partial(Lion, weight_decay=0.1),
    "zero": lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-3),
}


def optimizers_of(kind, parameters):
    """A list of them, which together hold those that are trainable."""
    parameters = [p for p in parameters if p.requires_grad]
    decays = [p for p in parameters if p.dim() > 1]
    rest = [p for p in parameters if p.dim() <= 1]
    if kind in OF_ALL:
        return [OF_ALL[kind](parameters)]
    if kind == "two":
        half = len(parameters) // 2
        sgd = torch.optim.SGD(parameters[half:], lr=0.1, momentum=0.9)
        return [torch.optim.AdamW(parameters[:half]), sgd]
    if kind == "muon":  # of matrices alone
        muon = torch.optim.Muon([p for p in decays if p.dim() == 2], lr=1e-3)
        others = [p for p in parameters if p.dim() != 2]
        return [muon, torch.optim.AdamW(others, lr=1e-3)] if others else [muon]
    if kind == "rate_of_each":
        groups = [{"params": [p], "lr": 1e-3 / (1 + n)} for n, p in enumerate(parameters)]
        return [torch.optim.AdamW(groups)]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return [torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-3)]


def schedule_of(kind, optimizer):
    """A function that is called after each step."""
    of_torch = torch.optim.lr_scheduler
    if kind == "exponential":
        return of_torch.ExponentialLR(optimizer, 0.5).step
    if kind == "warmup":  # the first step has a rate of 0
        return of_torch.LambdaLR(optimizer, lambda count: min(1.0, count / 3)).step
    if kind == "cosine":
        return of_torch.CosineAnnealingLR(optimizer, T_max=3).step
    return lambda: None
