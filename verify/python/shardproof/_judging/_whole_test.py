"""Tensors of which several groups of ranks hold all, held against a digest that is known."""

import dataclasses

import pytest

from shardproof._digests import _digest
from shardproof._holdings._layout import local_runs
from shardproof._judging._whole import Part, Wrong, held_against

RIGHT, WRONG, OTHER = (1, 1), (2, 2), (3, 3)


def alone(rank, digest, **said):
    coverage = _digest.coverage(local_runs((4,)), 4)
    part = Part("torch.float32", (4,), (rank,), coverage, digest, members=(rank,), named=True)
    return dataclasses.replace(part, **said)


def found(*digests, has_all=True, **said):
    parts = {rank: alone(rank, digest, **said) for rank, digest in enumerate(digests)}
    return held_against(parts, RIGHT, has_all)


def test_of_a_name_of_the_whole_job_each_group_is_held_against_it():
    assert found(RIGHT, RIGHT) == ([], "")
    assert found(RIGHT, WRONG, RIGHT) == ([Wrong((1,), WRONG)], "")
    assert found(WRONG, OTHER) == ([Wrong((0,), WRONG), Wrong((1,), OTHER)], "")


@pytest.mark.parametrize("said", [{"named": False}, {"has_all": False}])
def test_of_a_name_that_may_mean_another_tensor_elsewhere_nothing_is_found(said):
    assert found(RIGHT, WRONG, **said) == ([], "ranks [1] hold another tensor of this name")
    assert found(WRONG, OTHER, **said) == ([], "ranks [0, 1] hold different tensors of this name")
    assert found(WRONG, WRONG, **said) == ([Wrong((0, 1), WRONG)], "")
