"""With a budget each call looks at some of the tensors, and all get their turn."""

import pytest
import torch
from torch import nn

from shardproof._checking._check import Mismatch, check
from shardproof._checking._turns import Turns


class Alone:
    rank, world_size = 0, 1

    @staticmethod
    def everybody(numbers):
        return [numbers]


NAMES = [f"layers.{i}.weight" for i in range(4000)]


def looked_at(turns, seconds_a_name, budget_s):
    wanted = turns.window(Alone)
    found = [name for name in NAMES if wanted(name)]
    turns.took(len(found) * seconds_a_name, budget_s)
    return found


def test_all_names_get_their_turn_and_none_a_second_one_before():
    turns, seen = Turns(), []
    while len(set(seen)) < len(NAMES):
        found = looked_at(turns, 1e-3, 0.5)
        seen += found
        assert len(seen) < 2 * len(NAMES)
    assert len(seen) - len(found) < len(NAMES)


def test_the_window_comes_to_fit_the_budget_and_follows_the_speed():
    turns = Turns()
    for seconds_a_name in (1e-3, 1e-2):
        sizes = [len(looked_at(turns, seconds_a_name, 1.0)) for _ in range(8)]
        assert 0.5 < sizes[-1] * seconds_a_name < 1.1, sizes
    assert len(looked_at(Turns(), 1.0, 1e9)) < len(NAMES)
    assert [len(looked_at(turns, 0, 1.0)) for _ in range(9)][-1] == len(NAMES)


def test_rank_0_says_which_names():
    class Second(Alone):
        @staticmethod
        def everybody(numbers):
            return [[0, 1 << 32], numbers]

    assert all(map(Turns().window(Second), NAMES))


def test_every_third_call_looks():
    model = nn.Linear(2, 2)
    outcomes = [check(model, every=3) for _ in range(7)]
    assert [outcome.tensors for outcome in outcomes] == [2, 0, 0, 2, 0, 0, 2]
    assert [outcome.looked for outcome in outcomes[:2]] == [True, False]
    assert check(nn.Linear(2, 2), every=3).tensors == 2  # another model has calls of its own


def test_a_budget_finds_a_nan_within_a_round_and_says_how_much_it_looked_at():
    model = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(300)])
    first = check(model, budget_s=1e-4)
    assert 0 < first.looked_at < 100 and first.held == 300
    with torch.no_grad():
        model[123].fill_(torch.nan)
    with pytest.raises(Mismatch, match="123 on rank 0: 1 NaN"):
        for _ in range(2000):
            check(model, budget_s=1e-4)
    whole = check(model, finite=False)
    assert whole.looked_at == whole.held == whole.tensors == 300


@pytest.mark.parametrize("wrong", [{"every": 0}, {"every": 1.5}, {"budget_s": 0},
                                   {"budget_s": "1"}, {"every": True}])  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        check(nn.Linear(1, 1), **wrong)
