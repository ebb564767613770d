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
    assert state["0.weight.exp_avg"].groups.whole == (0, 1, 2)  # rank 2 says that it has nothing
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


def pieces_with(model, *parts):
    optimizer = torch.optim.Adam([nn.Parameter(part) for part in parts])
    held = look(model, optimizer)
    pieces = _optimizer.flat_pieces(held, optimizer)
    return [(h.name, p.stretch.begin, p.length) for _, h, p in pieces]


@pytest.mark.parametrize(("count", "first"), [(10, 11), (10, 0), (9, 9), (13, 7)])
def test_parts_may_differ_in_length_by_rank(count, first):
    model = net()
    pieces = pieces_with(model, flat_of(model.parameters(), count, first).detach())
    begins = {"0.weight": 0, "0.bias": 12, "1.weight": 15}
    sizes = {"0.weight": 12, "0.bias": 3, "1.weight": 15}
    elements = [begins[name] + begin + at for name, begin, length in pieces for at in range(length)]
    assert elements == list(range(first, first + count))
    assert all(begin + length <= sizes[name] for name, begin, length in pieces)


def test_of_each_parameter_a_part_of_another_length():
    model = net(torch.float32)
    parts = [p.detach().reshape(-1).tensor_split(4)[1].clone() for p in model.parameters()]
    assert pieces_with(model, *parts) == [("0.weight", 3, 3), ("0.bias", 1, 1), ("1.weight", 4, 4)]


def test_a_rank_may_have_some_of_the_parameters_whole():
    model = net(torch.float32)
    own = [model[1].weight.detach().clone(), model[0].bias.detach().clone()]
    expected = [("0.bias", 0, 3), ("1.weight", 0, 15)]
    assert sorted(pieces_with(model, *own)) == expected
    flat = torch.cat([each.reshape(-1) for each in reversed(own)])
    assert pieces_with(model, flat) == expected


def test_norms_of_ones_are_told_by_what_comes_before_them():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.LayerNorm(3, bias=False),
                          nn.Linear(3, 5, bias=False), nn.LayerNorm(5, bias=False),
                          nn.Linear(5, 3, bias=False), nn.LayerNorm(3, bias=False))  # fmt: skip
    own = [p.detach().clone() for p in (model[4].weight, model[5].weight)]
    expected = [("4.weight", 0, 15), ("5.weight", 0, 3)]
    assert sorted(pieces_with(model, *own)) == expected
    assert sorted(pieces_with(model, torch.cat([each.reshape(-1) for each in own]))) == expected


def test_what_only_other_ranks_step_is_said_to_be_empty_here():
    model = net()
    part = flat_of([model[0].bias], 3, 0)
    optimizer = torch.optim.Adam([part], lr=0.5)
    look(model, optimizer)
    part.grad = torch.ones_like(part)
    optimizer.step()
    held = look(model, optimizer)
    state = {h.name: h for h in _optimizer.optimizer_tensors(held, optimizer, RANK)}
    assert state["0.weight.exp_avg"].local.numel() == 0
    assert "0.weight.step" not in state
    assert state["0.bias.step"].groups.alike == (
        RANK,
    )  # ranks that step others count by themselves
    (own, stepped), (no_options, rest) = _optimizer.groups_in(optimizer)
    assert (own["lr"], [id(p) for p in stepped]) == (0.5, [id(model[0].bias)])
    assert no_options == {}
    assert [id(p) for p in rest] == [id(model[0].weight), id(model[1].weight)]


def test_a_flat_copy_of_all_on_every_rank_is_no_part():
    model = net()
    flat = flat_of(model.parameters(), 30, 0)
    optimizer = torch.optim.Adam([flat])
    look(model, optimizer)
    flat.grad = torch.ones_like(flat)
    optimizer.step()
    held = look(model, optimizer)
    state = {h.name: h for h in _optimizer.optimizer_tensors(held, optimizer, RANK)}
    assert state["0.weight.exp_avg"].groups.alike == (0, 1, 2)
    assert state["0.weight.exp_avg"].shape == (3, 4)


def test_what_has_other_values_is_no_part():
    model = net()
    part = flat_of(model.parameters(), 10, 10).detach()
    part[4] += 1
    assert not pieces_with(model, part)
    assert not _flat_copies.has_some(torch.optim.Adam([nn.Parameter(part)]))


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
