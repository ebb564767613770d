"""What is saved, and which of it is the model's."""

import torch
from torch import nn

from shardproof._attached import _saved
from shardproof._holdings._groups import Statement
from shardproof._holdings._model import read


def test_of_a_full_state_a_rank_sees_its_own_part():
    (held, _) = read(nn.Linear(3, 4), Statement()).tensors[::-1]
    assert held.name == "weight"
    whole = torch.arange(12.0).view(4, 3)
    (run,) = held.runs
    held.runs = [type(run)(start=6, length=3)]
    held.local = torch.zeros(1, 3)
    assert torch.equal(_saved.part_of(whole, held), whole[2:3])
    assert _saved.part_of(whole.t().contiguous(), held) is None
    assert _saved.part_of(whole.double(), held) is None


def test_a_key_is_read_without_its_wrappers_but_not_without_a_name_that_ends_like_one():
    model = nn.Module()
    model.my_module = nn.Linear(1, 1, bias=False)
    held = read(model).tensors
    state = {"module.my_module.weight": model.my_module.weight}
    assert list(_saved.state_of(state, held)) == ["my_module.weight"]
