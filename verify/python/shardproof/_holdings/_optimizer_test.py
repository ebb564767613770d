"""Which fp32 copy that an optimizer steps is whose."""

import pytest
import torch
from torch import nn

from shardproof._holdings import _model, _optimizer


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)).to(torch.bfloat16)


def named(model, order):
    """By the number of a parameter whose copy is stepped: the name that the copy is given."""
    masters = [parameter.detach().float() for parameter in model.parameters()]
    groups = [{"params": [masters[number] for number in group]} for group in order]
    copied = _optimizer.copied_parameters(_model.read(model), torch.optim.AdamW(groups))
    return {
        number: copied[id(master)][0].name
        for number, master in enumerate(masters)
        if id(master) in copied
    }


@pytest.mark.parametrize("order", [[[0, 1, 2, 3]], [[0, 2], [1, 3]], [[2, 0], [3, 1]]])
def test_copies_are_told_in_any_order_of_groups(order):
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert named(net(), order) == dict(enumerate(names))


def test_what_is_no_copy_is_none():
    assert named(net(), [[0, 2]]) == {}
