import math

import pytest
import torch
from torch import nn

from shardproof._holdings import _model, _options
from shardproof._holdings._groups import Statement
from shardproof._judging._judge import judge
from shardproof._judging._own import records_of, tensors_of


def stepped(steps=2, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[1].parameters()),
                                                        "lr": 0.5}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=0.25, betas=(0.5, 0.75), **options)
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    return model, optimizer


def records(model, optimizer, rank, world_size=3):
    said = Statement(rank=rank, world_size=world_size)
    return records_of(tensors_of(model, optimizer, (), said, counters=True), True)


def found(*of_ranks):
    return [(each.kind, each.tensor, each.ranks) for each in judge(list(of_ranks)).findings]


def test_each_parameter_has_what_its_group_was_told():
    model, optimizer = stepped()
    held = _options.held_of(_model.read(model), optimizer, Statement())
    assert sorted(held) == [
        "0.bias.options", "0.weight.options", "1.bias.options", "1.weight.options",
        "<optimizer 1 of 1, AdamW>.steps",
    ]  # fmt: skip
    told = {
        _options.name_of("1.weight.options", index): value
        for index, value in enumerate(held["1.weight.options"].local.tolist())
        if not math.isnan(value)
    }
    assert told == {
        "lr": 0.5, "betas[0]": 0.5, "betas[1]": 0.75, "eps": 1e-8, "weight_decay": 0.01,
        "amsgrad": 0, "maximize": 0, "decoupled_weight_decay": 1,
    }  # fmt: skip
    assert held["<optimizer 1 of 1, AdamW>.steps"].local.tolist() == [2]


def test_a_rate_that_one_rank_alone_has_is_named_for_each_parameter():
    model, optimizer = stepped()
    sound = [records(model, optimizer, rank) for rank in range(3)]
    assert found(*sound) == []
    optimizer.param_groups[1]["lr"] = 0.125
    odd = records(model, optimizer, 1)
    assert found(sound[0], odd, sound[2]) == [
        ("option", "optimizer.1.bias.options", (1,)),
        ("option", "optimizer.1.weight.options", (1,)),
    ]


def test_numbers_of_other_names_are_held_against_each_other_too():
    model, optimizer = stepped()
    optimizer.param_groups[0].update(d=0.5, k=3, d_max=torch.tensor(2.0), name="first")
    held = _options.held_of(_model.read(model), optimizer, Statement())
    name = "0.bias.options[d, d_max, k]"
    told = [(_options.name_of(name, at), value)
            for at, value in enumerate(held[name].local.tolist())]  # fmt: skip
    assert [each for each in told if each[1] == each[1]] == [("d", 0.5), ("d_max", 2), ("k", 3)]
    sound = records(model, optimizer, 0, 2)
    optimizer.param_groups[0]["d"] = 0.25
    assert ("option", f"optimizer.{name}", (1,)) in found(sound, records(model, optimizer, 1, 2))


@pytest.mark.parametrize("way", ["foreach", "capturable"])
def test_the_way_in_which_a_step_is_computed_is_no_option(way):
    model, optimizer = stepped()
    sound = records(model, optimizer, 0, 2)
    optimizer.param_groups[0][way] = not optimizer.param_groups[0][way]
    assert found(sound, records(model, optimizer, 1, 2)) == []


def test_an_optimizer_that_is_behind_is_named_unless_it_leaves_parameters_to_others():
    on_time, late = stepped(3), stepped(2)
    of_ranks = [records(*(late if rank == 2 else on_time), rank) for rank in range(3)]
    assert ("option", "optimizer.<optimizer 1 of 1, AdamW>.steps", (2,)) in found(*of_ranks)
    model, optimizer = stepped(2)
    optimizer.state.pop(model[1].bias)  # it has no gradient, or is another rank's
    assert _options.steps_of(_model.read(model), optimizer, Statement()) == {}


def test_what_nobody_said_the_group_of_is_not_compared():
    model, optimizer = stepped()
    said = Statement(claims=False, rank=0, world_size=2)
    one = records_of(tensors_of(model, optimizer, (), said, counters=True), True)
    optimizer.param_groups[0]["lr"] = 0.125
    other = records_of(tensors_of(model, optimizer, (), said, counters=True), True)
    assert found(one, other) == []


def test_a_parameter_that_one_rank_has_frozen_is_named():
    model, _ = stepped(0)
    sound = [records(model, None, rank) for rank in range(3)]
    model[0].bias.requires_grad_(False)
    assert found(sound[0], sound[1], records(model, None, 2)) == [("unlike", "0.bias", (2,))]


def test_a_buffer_that_is_not_saved_may_be_as_large_as_each_ranks_batches_asked_for():
    def of_rank(rank, size, persistent):
        model = nn.Module()
        model.register_buffer("table", torch.ones(size), persistent=persistent)
        return records(model, None, rank, 2)

    assert found(of_rank(0, 2, False), of_rank(1, 3, False)) == []
    judgement = judge([of_rank(0, 2, False), of_rank(1, 3, False)])
    assert judgement.counted() == {
        "a buffer that is not saved and differs in size between ranks": (1, "table")
    }
    assert found(of_rank(0, 2, True), of_rank(1, 3, True))[0][:2] == ("unlike", "table")


@pytest.mark.parametrize(("name", "expected"), [("expert_bias", [(1,)]), ("mean", [])])
def test_of_two_ranks_a_bias_that_all_have_made_must_be_equal_and_a_statistic_need_not(
    name, expected
):
    def of_rank(rank):
        model = nn.Module()
        model.register_buffer(name, torch.zeros(2))
        for _ in range(3):
            getattr(model, name).add_(rank)
        return records(model, None, rank, 2)

    assert [ranks for _, _, ranks in found(of_rank(0), of_rank(1))] == expected
