"""What is seen of a tensor is no reference that torch.utils.swap_tensors would refuse."""

import gc

import pytest
import torch
from torch import nn

from shardproof._observer import Observer
from shardproof._seen import Seen
from shardproof._steps import Steps


def test_it_is_known_again_until_it_is_gone():
    tensor = nn.Parameter(torch.ones(3))
    seen = Seen(tensor)
    assert seen.is_of(tensor) and not seen.is_gone()
    assert not seen.is_of(nn.Parameter(torch.ones(3)))
    del tensor
    gc.collect()
    assert seen.is_gone()


@pytest.mark.parametrize("swap", [False, True])
def test_a_model_that_was_observed_is_converted_as_before(swap, monkeypatch):
    """Module.to() swaps the tensors of DTensors, and of all where a job asks for it."""
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", swap)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = Steps()
    steps.looked_at([optimizer])
    observer = Observer.__new__(Observer)
    observer._identities, observer._objects = {}, 0
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    steps.stepped(optimizer)
    former = {id(each): Seen(each) for each in model.parameters()}
    numbers = [observer._identity(each) for each in model.parameters()]
    assert numbers == [observer._identity(each) for each in model.parameters()] == [0, 1]
    model.to(torch.float64)
    assert model.weight.dtype == torch.float64
    assert len(former) == 2
