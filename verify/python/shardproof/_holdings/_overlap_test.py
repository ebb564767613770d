"""What two cuts of a tensor have in common, held against sets of elements."""

import random

import pytest

from shardproof._holdings import _layout
from shardproof._holdings._layout import Run
from shardproof._holdings._overlap import overlap


def elements(runs):
    """{element of the tensor: its place in the memory}."""
    return {
        run.start + i * run.stride + k: run.local_start + i * run.local_stride + k
        for run in runs
        for i in range(run.count)
        for k in range(run.length)
    }


def check(one, other):
    pairs = overlap(one, other)
    ours, theirs = elements(a for a, _ in pairs), elements(b for _, b in pairs)
    for a, b in pairs:
        assert (a.start, a.length, a.count) == (b.start, b.length, b.count)
    common = elements(one).keys() & elements(other).keys()
    assert ours == {element: elements(one)[element] for element in common}
    assert theirs == {element: elements(other)[element] for element in common}
    assert sum(a.length * a.count for a, _ in pairs) == len(common)  # none twice
    return pairs


def box(rng, shape):
    """The runs of a random block of the shape."""
    owned = []
    for size in shape:
        low, high = sorted((rng.randint(0, size), rng.randint(0, size)))
        owned.append([(low, high)] if low < high else [(0, size)])
    return _layout.runs_of(shape, owned)


@pytest.mark.parametrize("seed", range(300))
def test_random_boxes(seed):
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(0, 4)))
    check(box(rng, shape), box(rng, shape))


@pytest.mark.parametrize("seed", range(100))
def test_a_strided_run_and_any_other(seed):
    rng = random.Random(seed)
    runs = [
        Run(rng.randint(0, 20), length, rng.randint(1, 5), length + rng.randint(0, 9),
            rng.randint(0, 9), length + rng.randint(0, 3))
        for length in (rng.randint(1, 7), rng.randint(1, 7))
    ]  # fmt: skip
    check([runs[0]], [runs[1]])


def test_columns_of_the_same_rows_are_one_pair():
    columns = [_layout.runs_of((1000, 8), [[(0, 1000)], [span]]) for span in ((0, 4), (2, 8))]
    assert len(check(*columns)) == 1


def test_what_has_nothing_in_common_has_no_pairs():
    assert overlap([Run(0, 4)], [Run(4, 4)]) == []
    assert overlap([], [Run(0, 4)]) == []
