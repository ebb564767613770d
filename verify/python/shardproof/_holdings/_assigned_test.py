"""What a module assigns when it is given data shows in its code."""

import functools

import torch
from torch import nn

from shardproof._holdings._assigned import assigned_from_data
from shardproof._holdings._model import tensors_of


def unhurried(function):
    @functools.wraps(function)
    def called(*arguments):
        return function(*arguments)

    return called


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        for name in ("mean", "var", "factor", "moved", "seen", "limit"):
            self.register_buffer(name, torch.ones(2))
        self.register_buffer("table", torch.ones(2), persistent=False)
        self.reset_parameters()

    def reset_parameters(self):
        self.factor = torch.full((2,), 2.0)

    def update(self, batch):
        self.seen = self.seen + batch.shape[0]

    def set_limit(self, limit):
        self.limit = limit

    @torch.no_grad()
    def multiply(self, factor=2):
        self.limit = factor * self.limit

    @torch.no_grad()
    @unhurried
    def take(self, x):
        def later():
            self.var = 0.9 * self.var + 0.1 * x.var(0)

        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        later()

    def forward(self, x):
        self.take(x)
        self.table = self.table + 1
        self.moved.mul_(0.9)
        return self.layer((x - self.mean) / self.var)


class Derived(Normalised):
    def take(self, x):
        """Nothing."""


def test_what_forward_and_methods_that_are_given_data_assign():
    assert assigned_from_data(Normalised) == {"mean", "var", "table", "seen"}
    assert assigned_from_data(Derived) == {"table", "seen"}
    assert assigned_from_data(nn.BatchNorm1d) & {"running_mean", "running_var"} == set()
    assert assigned_from_data(nn.ModuleList) == set()


def test_a_saved_buffer_that_is_assigned_may_be_a_statistic_at_the_first_look():
    held = {each.name: each for each in tensors_of(Normalised())}
    assert {name for name, each in held.items() if each.accumulates} == {"mean", "var", "seen"}
