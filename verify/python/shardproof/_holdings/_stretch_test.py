"""Stretches of parameters, against what they hold counted element by element."""

import itertools

import pytest
import torch

from shardproof._holdings._groups import Groups, Statement
from shardproof._holdings._holding import Holding
from shardproof._holdings._layout import Placement, local_runs
from shardproof._holdings._layout_test import elements_of
from shardproof._holdings._stretch import Stretch, held, within


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (0, 4, [(0, 4), (0, 0), (0, 0)]),
        (2, 13, [(0, 3), (3, 8), (8, 11)]),
        (5, 9, [(0, 0), (0, 4), (0, 0)]),
        (4, 6, [(0, 1), (1, 2), (0, 0)]),
    ],
)
def test_a_buffer_is_cut_evenly_and_parameters_where_that_cuts_them(begin, end, found):
    group = (7, 3, 5)  # in the order of its own
    for rank, (first, last) in zip(group, found, strict=True):
        stretch = Stretch.of_flat(begin, end, 5, group, rank)
        assert stretch.end - stretch.begin == last - first
        if last > first:
            assert (stretch.begin, stretch.end) == (first, last)
        owners = {rank for rank, (low, high) in zip(group, found) if high > low}
        assert stretch.owners == tuple(sorted(owners)) and stretch.group == (3, 5, 7)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_a_stretch_of_what_a_rank_has_of_a_tensor(dim):
    placements = [] if dim is None else [Placement("shard", dim)]
    mesh = () if dim is None else (2,)
    for index in range(2 if mesh else 1):
        runs = local_runs((6, 8), placements, mesh, (index,) if mesh else ())
        whole = elements_of(runs)
        for begin, end in itertools.combinations(range(len(whole) + 1), 2):
            found = within(runs, begin, end)
            assert elements_of(found) == whole[begin:end], (dim, index, begin, end)
    assert within(runs, 3, 3) == []


def test_rows_that_are_cut_alike_are_one_run():
    runs = local_runs((100, 8), [Placement("shard", 1)], (2,), (1,))
    assert len(within(runs, 2, 390)) == 3


def said(rank, **named):
    return Statement(rank=rank, world_size=8, **named)


def own(groups, runs=None, placements=(), shape=(4, 2)):
    return Holding(
        "w", "parameter", torch.float32, shape, torch.zeros(8), runs or local_runs(shape), None,
        groups=groups, placements=list(placements),
    )  # fmt: skip


def test_state_of_a_stretch_lies_where_the_stretch_does():
    stretch = Stretch(3, 8, (0, 1), (0, 1))
    state = held(stretch, own(Groups((1,), (0, 1))), "exp_avg", torch.ones(5), said(1))
    assert (state.name, state.kind, state.shape) == ("w.exp_avg", "optimizer", (4, 2))
    assert elements_of(state.runs) == [3, 4, 5, 6, 7]
    assert state.groups == Groups((0, 1), (1,), (0, 1))
    assert state.placements == [Placement("flat_shard")]


def test_a_number_is_the_same_on_all_that_have_a_stretch():
    stretch = Stretch(3, 8, (0, 1, 2), (0, 1))
    step = held(stretch, own(Groups((1,), (0, 1, 2))), "step", torch.tensor(2.0), said(1))
    assert (step.shape, step.placements) == ((), [])
    assert step.groups == Groups((1,), (0, 1))


def test_replicas_on_other_axes_have_the_same_stretch():
    # tp 2 x dp 4, of which rank 5 has tp 1, dp 2.
    mesh = {"tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "dp": [[0, 2, 4, 6], [1, 3, 5, 7]]}
    stated = said(5, mesh=mesh)
    norm = stated.groups_of("norm")
    assert stated.of_stretch(norm, (1, 3, 5, 7), (3, 5)) == Groups((3, 5), (4, 5), (2, 3, 4, 5))
    part = Groups((4, 5), (1, 3, 5, 7), tuple(range(8)))
    assert stated.of_stretch(part, (1, 3, 5, 7), (3, 5)) == Groups((2, 3, 4, 5), (5,))


def test_of_a_group_that_is_not_known_nothing_is_said():
    assert said(5).of_stretch(Groups((5,), tuple(range(8))), (1, 5), (1, 5)) is None
    assert said(5).of_stretch(None, (1, 5), (1, 5)) is None
