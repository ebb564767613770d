"""Against the elements counted one by one, in an array whose values are their own indices."""

import itertools
import math

import numpy
import pytest

from shardproof._holdings._layout import (
    Placement,
    Run,
    element_count,
    flat_runs,
    local_runs,
    runs_of,
)
from shardproof._holdings._layout import owned_indices as owned_by

SHARD0, SHARD1 = Placement("shard", 0), Placement("shard", 1)
REPLICATE = Placement("replicate")


def elements_of(runs):
    """The global index of each local element, in local order."""
    held = {}
    for run in runs:
        for i, k in itertools.product(range(run.count), range(run.length)):
            local = run.local_start + i * run.local_stride + k
            assert local not in held, "two runs claim one local element"
            held[local] = run.start + i * run.stride + k
    assert sorted(held) == list(range(len(held))), "the local memory has a gap"
    return [held[local] for local in range(len(held))]


@pytest.mark.parametrize(
    ("size", "parts", "lengths"),
    [(10, 4, [3, 3, 3, 1]), (5, 4, [2, 2, 1, 0]), (8, 4, [2, 2, 2, 2]), (1, 3, [1, 0, 0])],
)
def test_a_shard_is_what_torch_chunk_cuts(size, parts, lengths):
    found = [element_count(local_runs((size,), [SHARD0], (parts,), (i,))) for i in range(parts)]
    assert found == lengths


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (1, 5, 1, 2)])
def test_without_placements_all_is_one_run(shape):
    assert local_runs(shape) == [Run(0, math.prod(shape))]


def test_a_tensor_of_no_elements_has_no_runs():
    assert local_runs((0, 3)) == []
    assert local_runs((1, 3), [SHARD0], (2,), (1,)) == []


@pytest.mark.parametrize("shape", [(7,), (4, 6), (3, 4, 5), (2, 3, 2, 3)])
def test_any_block_of_indices_is_counted_element_by_element(shape):
    parts = [[[(0, n)], [(0, max(1, n // 2))], [(n // 2, n)], [(0, 1), (n - 1, n)]] for n in shape]
    whole = numpy.arange(math.prod(shape)).reshape(shape)
    for owned in itertools.product(*parts):
        indices = [[i for low, high in each for i in range(low, high)] for each in owned]
        if any(len(set(each)) < len(each) for each in indices):
            continue  # a dim of one element, named twice
        expected = whole[numpy.ix_(*indices)].reshape(-1).tolist()
        assert elements_of(runs_of(shape, list(owned))) == expected, owned


def test_columns_are_one_run_that_repeats():
    assert local_runs((3, 8), [SHARD1], (2,), (1,)) == [Run(4, 4, 3, 8, 0, 4)]


def test_a_strided_shard_takes_its_chunk_of_each_piece():
    split = Placement("strided_shard", 0, 2)
    runs = [local_runs((8,), [split], (2,), (rank,)) for rank in (0, 1)]
    assert [elements_of(each) for each in runs] == [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize("placements", [[SHARD0, SHARD0], [SHARD0, SHARD1], [SHARD1, REPLICATE]])
def test_shards_of_a_mesh_tile_the_tensor(placements):
    shape, mesh = (5, 6), (2, 3)
    found = []
    for coordinates in itertools.product(*map(range, mesh)):
        found += elements_of(local_runs(shape, placements, mesh, coordinates))
    copies = 3 if REPLICATE in placements else 1
    assert sorted(found) == sorted(list(range(30)) * copies)


def test_placements_act_from_the_first_axis_on():
    """Axis 0 gives rows 0-2 and 3-4; axis 1 then cuts what is left, not the whole."""
    assert owned_by((5,), [SHARD0, SHARD0], (2, 2), (0, 1)) == [[(2, 3)]]
    assert owned_by((5,), [SHARD0, SHARD0], (2, 2), (1, 0)) == [[(3, 4)]]


def test_a_mesh_that_does_not_fit_the_placements_is_refused():
    with pytest.raises(ValueError, match="zip"):
        owned_by((5,), [SHARD0], (2, 2), (0, 0))


def test_flat_runs_are_a_stretch_of_the_flattened_tensor():
    assert flat_runs(3, 7) == [Run(3, 4)]
    assert flat_runs(3, 3) == flat_runs(4, 3) == []
