"""A sampler's epochs, and what is none."""

import pytest
from torch.utils.data import DistributedSampler

from shardproof._twin._passes import Passes


def again(passes, sampler, *, steps=True, taken=4):
    """Goes through the data. Whether it is told as the order of the time before."""
    order = iter(sampler)
    told = passes.begun(sampler, order)
    for _ in range(taken):
        next(order)
        if steps:
            passes.stepped()
    return told


@pytest.mark.parametrize(
    ("epoch", "shuffle", "steps", "taken", "told"),
    [
        (0, True, True, 4, True),
        (1, True, True, 4, False),
        (0, False, True, 4, False),
        (0, True, False, 4, False),  # as for an evaluation
        (0, True, True, 1, False),  # which was left off
    ],
)
def test_steps_in_the_same_order_twice_are_told(epoch, shuffle, steps, taken, told):
    passes, sampler = Passes(), DistributedSampler(range(8), 2, 0, shuffle=shuffle)
    assert not again(passes, sampler, steps=steps, taken=taken)
    passes.stepped()  # a step of the job beside an evaluation
    sampler.set_epoch(epoch)
    assert again(passes, sampler) == told
