"""Blocks of a tensor: a cut of what a rank has, held against a count element by element."""

import random

import pytest
import torch

from shardproof._digests import _digest
from shardproof._holdings._layout import Placement, Run, local_runs
from shardproof._judging import _blocks

BLOCK = 4096
SIZE = 4  # bytes of an element
ELEMENTS = BLOCK // SIZE


def places(runs):
    """{element of the whole: of the memory}."""
    return {
        run.start + i * run.stride + k: run.local_start + i * run.local_stride + k
        for run in runs for i in range(run.count) for k in range(run.length)
    }  # fmt: skip


def shards(seed):
    """The runs of each rank of a mesh, of a tensor that is cut along one or two dims."""
    draw = random.Random(seed)
    shape = tuple(draw.randint(1, 40) for _ in range(draw.randint(1, 3)))
    mesh = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 2)))
    placements = [
        Placement(draw.choice(["shard", "strided_shard"]), draw.randrange(len(shape)),
                  draw.randint(1, 3))
        for _ in mesh
    ]  # fmt: skip
    every = [(i,) if len(mesh) == 1 else (i, j) for i in range(mesh[0]) for j in range(mesh[-1])]
    return shape, [local_runs(shape, placements, mesh, each) for each in set(every)]


@pytest.mark.parametrize("seed", range(60))
def test_each_element_is_in_its_block_once(seed):
    _, ranks = shards(seed)
    for runs in ranks:
        small = 16 * SIZE  # so that there are many
        found = _blocks.cut(runs, SIZE, small)
        for number, each in found.items():
            expected = {at: own for at, own in places(runs).items() if at // 16 == number}
            assert places(each) == expected and expected
        assert sum(len(places(each)) for each in found.values()) == len(places(runs))


@pytest.mark.parametrize("count", [1, ELEMENTS, ELEMENTS + 1, 5 * ELEMENTS])
def test_the_digests_of_blocks_add_up_to_the_whole_and_do_not_depend_on_the_cut(count):
    values = torch.arange(count, dtype=torch.int32)
    number = _blocks.count_of((count,), SIZE, BLOCK)
    assert number == (0 if count <= ELEMENTS else -(-count // ELEMENTS))
    if not number:
        return
    summary, whole = _blocks.summarised(values, [Run(0, count)], BLOCK, number)
    parts = [values[: count // 3], values[count // 3 :]]
    at = [Run(0, len(parts[0])), Run(len(parts[0]), len(parts[1]))]
    held = [
        _blocks.summarised(part, [run], BLOCK, number)[1]
        for part, run in zip(parts, at, strict=True)
    ]
    total = (0, 0)
    for block in range(number):
        run = _blocks.whole(block, (count,), SIZE, BLOCK)
        alone = values[run.start : run.start + run.length]
        expected = _digest.coverage([run], SIZE), _digest.digest_runs(alone, [run]).digest
        assert whole[block] == expected
        summed = [each[block] for each in held if block in each]
        for lane in (0, 1):
            added = (0, 0)
            for each in summed:
                added = _digest.add(added, each[lane])
            assert added == expected[lane]
        total = _digest.add(total, whole[block][1])
    assert total == summary.digest


def test_there_are_no_more_blocks_than_a_manifest_may_have():
    for nbytes in (0, 1, 1 << 22, 1 << 33, (1 << 33) + 1, 1 << 40):
        size = _blocks.bytes_for(nbytes)
        assert size & (size - 1) == 0 and size >= 1 << 22 and nbytes <= size * 2048
        assert size == 1 << 22 or nbytes > size * 1024
