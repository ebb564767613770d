"""What is seen of a tensor is no reference that torch.utils.swap_tensors would refuse."""

import gc

import pytest
import torch
from torch import nn

from shardproof._holdings import _model
from shardproof._holdings._seen import Identities, Seen
from shardproof._holdings._steps import Steps


def test_it_is_known_again_until_it_is_gone():
    tensor = nn.Parameter(torch.ones(3))
    seen = Seen(tensor)
    assert seen.is_of(tensor) and not seen.is_gone()
    assert not seen.is_of(nn.Parameter(torch.ones(3)))
    del tensor
    gc.collect()
    assert seen.is_gone()


def _numbers(identities, model):
    tensors = _model.tensors_of(model)
    identities.look_at(tensors)
    return sorted(identities.number_of(held) for held in tensors)


def test_values_in_new_memory_are_of_the_same_object():
    identities, model = Identities(), nn.Linear(3, 2)
    before = _numbers(identities, model)
    for each in model.parameters():
        each.data = torch.zeros_like(each)
    assert _numbers(identities, model) == before


def test_a_model_built_where_one_was_freed_has_objects_of_its_own():
    identities = Identities()
    for number in range(20):
        assert _numbers(identities, nn.Linear(3, 2)) == [2 * number, 2 * number + 1]


@pytest.mark.parametrize("swap", [False, True])
def test_a_model_that_was_observed_is_converted_as_before(swap, monkeypatch):
    """Module.to() swaps the tensors of DTensors, and of all where a job asks for it."""
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", swap)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = Steps()
    steps.looked_at([optimizer])
    identities = Identities()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    steps.stepped(optimizer)
    former = {id(each): Seen(each) for each in model.parameters()}
    assert _numbers(identities, model) == _numbers(identities, model) == [0, 1]
    model.to(torch.float64)
    assert model.weight.dtype == torch.float64
    assert _numbers(identities, model) == [0, 1]
    assert len(former) == 2
