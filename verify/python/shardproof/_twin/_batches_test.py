"""Which ranks share batches, along axes of data and along others."""

import dataclasses

import pytest
import torch

from shardproof._twin._batches import Unequal, same_batches, taken_twice, unusual
from shardproof._twin._step_events import Batch


def taken(mesh, *ranks):
    """Of each rank: one batch, by the rank whose part of the data it is; None for no batch."""
    rng = torch.zeros(0)
    cases = [{"mesh": mesh, "rank": rank, "seed": 0} for rank in ranks]
    return [
        [] if case["rank"] is None else [(Batch(case, 1, rng, True, None), {})] for case in cases
    ]


@pytest.mark.parametrize(
    ("mesh", "ranks", "same"),
    [
        ({"dp_shard": 2}, [0, 1], [0, 1]),
        ({"dp_shard": 2}, [0, 0], [0, 1]),  # which is told as a mistake
        ({"dp_replicate": 2, "dp_shard": 2}, [0, 1, 2, 3], [0, 1, 2, 3]),
        ({"dp_shard": 2, "tp": 2}, [0, 0, 1, 1], [0, 0, 2, 2]),
        ({"tp": 2, "dp_shard": 2}, [0, 1, 0, 1], [0, 1, 0, 1]),
        ({"dp_shard": 2, "tp": 2}, [0, 1, 2, 3], [0, 1, 2, 3]),  # along tp, too
        ({"tp": 2}, [0, 0], [0, 0]),
    ],
)  # fmt: skip
def test_ranks_share_batches_along_what_is_no_axis_of_data(mesh, ranks, same):
    assert same_batches(taken(mesh, *ranks)) == same


@pytest.mark.parametrize("ranks", [[0, 0, 1, 2], [0, None, 1, 1]])
def test_neither_the_same_nor_their_own_cannot_be_judged(ranks):
    with pytest.raises(Unequal, match="along tp"):
        same_batches(taken({"dp_shard": 2, "tp": 2}, *ranks))


@pytest.mark.parametrize(
    ("steps", "ranks", "told"),
    [
        ([(1, 2), (3, 4)], [], ""),
        ([(1, 2), (3, 2)], [0, 1], ""),
        ([(1, 2), (3, 1)], [], "ranks 0 and 1 have taken one batch at two times of a step"),
        ([(1, 1), (2, 2)], [], ""),  # which a rank may take twice
    ],
)
def test_a_batch_of_two_ranks_at_once_is_a_mistake(steps, ranks, told):
    """And at two times need not be: a step can go on into the next epoch."""
    batches = [
        [(dataclasses.replace(own[0][0], step=each), {}) for each in of_rank]
        for own, of_rank in zip(taken({"dp_shard": 2}, 0, 0), steps, strict=True)
    ]
    assert taken_twice(batches, [0, 1]) == (ranks, told)
    assert taken_twice(batches, [0, 0]) == ([], "")  # along tp they share theirs


def test_what_may_be_meant_and_may_be_a_mistake_is_told():
    def told(*steps, weights=(1.0, 1.0), terms=(0, 0), summed=(0, 0)):
        batches = taken({"dp_shard": 2}, 0, 1)
        for (own,), *each in zip(batches, steps, weights, terms, summed, strict=True):
            own[0].step, own[0].weight, own[0].terms, own[0].summed = each
        return "; ".join(unusual(batches, earlier, 2.0))

    earlier = set()
    assert told(1, 1) == ""
    assert told(2, 3) == "some ranks have taken batches [2] of a step, and others [3]"
    assert "rank 0 has taken a batch again" in told(2, 4)
    assert "means of 3 to 4 targets" in told(6, 6, terms=(3, 4))
    assert told(7, 7, terms=(4, 4)) == ""
    assert told(5, 5, weights=(2.0, 6.0)).endswith("losses differently: 1, 3")
    assert told(8, 8, weights=(0.25, 0.5), summed=(8, 4)).startswith("its losses are sums over")
    assert told(9, 9, weights=(0.25, 0.25), summed=(8, 4)) == ""
