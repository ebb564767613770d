"""Which ranks share batches, along axes of data and along others."""

import pytest
import torch

from shardproof._twin._batches import Unequal, same_batches, unusual
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


def test_what_may_be_meant_and_may_be_a_mistake_is_told():
    def told(*steps, weights=(1.0, 1.0)):
        batches = taken({"dp_shard": 2}, 0, 1)
        for (own,), number, weight in zip(batches, steps, weights, strict=True):
            own[0].step, own[0].weight = number, weight
        return "; ".join(unusual(batches, earlier, 2.0))

    earlier = set()
    assert told(1, 1) == ""
    assert told(2, 3) == "some ranks have taken batches [2] of a step, and others [3]"
    assert "rank 0 has taken a batch again" in told(2, 4)
    assert told(5, 5, weights=(2.0, 6.0)).endswith("losses differently: 1, 3")
