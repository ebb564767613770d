"""Parts of flat copies of parameters, as a job has that shards its optimizer's state by hand."""

import pytest
import torch
from torch import nn

from . import _flat_copies, _optimizer
from ._groups import Statement
from ._layout_test import elements_of
from ._model import read

RANK, RANKS = 1, 3


def net(dtype=torch.bfloat16):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5, bias=False))
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.to(dtype)  # 12, 3 and 15 elements


def flat_of(parameters, part, first, dtype=torch.float32):
    flat = torch.cat([p.detach().reshape(-1) for p in parameters] + [torch.zeros(64).bfloat16()])
    return nn.Parameter(flat[first : first + part].to(dtype).clone())


def look(model, optimizer):
    held = read(model, Statement(rank=RANK, world_size=RANKS))
    _optimizer.look_at_copies(held, optimizer, RANK)
    return held


def test_a_part_of_all_parameters_is_told_by_its_values():
    model = net()
    part = flat_of(model.parameters(), 10, 10)
    optimizer = torch.optim.Adam([part])
    look(model, optimizer)
    part.grad = torch.ones_like(part)
    optimizer.step()  # from here on the values differ
    held = look(model, optimizer)
    state = {h.name: h for h in _optimizer.optimizer_tensors(held, optimizer, RANK)}
    assert elements_of(state["0.weight.exp_avg"].runs) == [10, 11]
    assert elements_of(state["0.bias.main_param"].runs) == [0, 1, 2]
    assert elements_of(state["1.weight.exp_avg_sq"].runs) == [0, 1, 2, 3, 4]
    assert torch.equal(state["0.bias.main_param"].local, part.detach()[2:5])
    assert state["0.weight.exp_avg"].groups.whole == (0, 1)  # rank 2 has nothing of it
    assert state["1.weight.exp_avg"].groups.whole == (1, 2)
    ((_, parameters),) = _optimizer.groups_in(optimizer)
    assert [id(p) for p in parameters] == [id(p) for p in model.parameters()]


def test_what_decays_and_what_does_not_may_lie_apart_and_parts_may_be_padded():
    model = net()
    matrices, biases = [p for p in model.parameters() if p.dim() > 1], [model[0].bias]
    optimizer = torch.optim.Adam([flat_of(matrices, 12, 12), flat_of(biases, 1, 1)])
    held = look(model, optimizer)
    pieces = [(h.name, p.at, p.length) for _, h, p in _optimizer.flat_pieces(held, optimizer)]
    assert pieces == [("1.weight", 0, 12), ("0.bias", 0, 1)]


def test_each_parameter_may_be_cut_by_itself():
    model = net(torch.float32)
    parts = [p.detach().chunk(RANKS)[RANK].clone() for p in model.parameters()]
    optimizer = torch.optim.Adam([nn.Parameter(each) for each in parts])
    held = look(model, optimizer)
    pieces = [(h.name, p.stretch.begin) for _, h, p in _optimizer.flat_pieces(held, optimizer)]
    assert pieces == [("0.weight", 4), ("0.bias", 1), ("1.weight", 6)]


@pytest.mark.parametrize(("count", "first"), [(10, 11), (10, 0), (9, 9), (30, 0)])
def test_what_has_other_elements_is_no_part(count, first):
    model = net()
    optimizer = torch.optim.Adam([flat_of(model.parameters(), count, first)])
    assert not list(_optimizer.flat_pieces(look(model, optimizer), optimizer))
    assert not _flat_copies.has_some(optimizer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_copy_of_each_parameter_is_no_part(dtype):
    model = net(dtype)
    optimizer = torch.optim.Adam([p.detach().float() for p in model.parameters()])
    held = read(model, Statement(rank=0, world_size=RANKS))
    _optimizer.look_at_copies(held, optimizer, 0)
    assert not list(_optimizer.flat_pieces(held, optimizer))


def test_the_last_part_may_be_shorter():
    model = net()
    del model[0].bias
    model[0].bias = None  # 27 elements: 10, 10 and 7
    held = read(model, Statement(rank=2, world_size=RANKS))
    optimizer = torch.optim.Adam([flat_of(model.parameters(), 7, 20)])
    _optimizer.look_at_copies(held, optimizer, 2)
    ((_, own, piece),) = _optimizer.flat_pieces(held, optimizer)
    assert (own.name, piece.stretch.begin, piece.length) == ("1.weight", 8, 7)
