"""Tensors that are of two versions: which rows of which rank, on 2 ranks, with blocks of 4 KiB."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from shardproof import _program, check, seal
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._judging import _blocks
from shardproof._stored._manifest import Manifest

WORLD = 2
ROWS, COLUMNS = 64, 256  # 4 rows a block
MAP = ["cat(gate, up) -> gate_up"]
LAYOUT = {"gate_up": {"tp": Shard(0)}, "down": {"tp": Shard(1)}}

pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")


def values(step):
    torch.manual_seed(step)
    shapes = {"gate": (ROWS, COLUMNS), "up": (ROWS, COLUMNS), "down": (ROWS, COLUMNS),
              "norm": (8 * 1024,)}  # fmt: skip
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def model_of(state):
    model = nn.Module()
    for name, value in state.items():
        model.register_parameter(name, nn.Parameter(value.clone(), requires_grad=False))
    return model


def engine_of(state, rank):
    """rank 0 has the gate, rank 1 what is up."""
    own = {"gate_up": torch.cat([state["gate"], state["up"]]).chunk(2)[rank],
           "down": state["down"].chunk(2, 1)[rank].contiguous(), "norm": state["norm"]}  # fmt: skip
    return model_of(own)


def all_(rank):
    _blocks._BYTES_MIN = 4096
    mesh = init_device_mesh("cpu", (WORLD,))
    trainer, engine = fully_shard(model_of(values(1)), mesh=mesh), engine_of(values(1), rank)
    manifests, found = [], []
    for step in range(1, 4):
        with torch.no_grad():
            for name, value in trainer.named_parameters():
                full = values(step)[name]
                value.to_local().copy_(full.chunk(WORLD)[rank])
        manifests.append(Manifest.from_json(seal(trainer, version=step).to_json()))
        alone = seal(values(step), version=step)  # described, and not cut
        is_same = {name: torch.equal(each, manifests[-1].blocks[name])
                   for name, each in alone.blocks.items()}  # fmt: skip
        counts = {name: len(each) for name, each in alone.blocks.items()}
        assert counts == {"down": 16, "gate": 16, "norm": 8, "up": 16}, counts
        assert all(is_same.values()), is_same
    for step in (1, 2):
        load(engine, values(step), rank)
        found.append(told(engine, manifests[step - 1]))
    for mistake in MISTAKES:
        load(engine, values(3), rank)
        with torch.no_grad():
            mistake(engine, rank, *(engine_of(values(step), rank) for step in (1, 2)))
        found.append(told(engine, manifests[2]))
    load(engine, values(3), rank)
    return (*found, told(engine, manifests[2]))


def load(engine, state, rank):
    with torch.no_grad():
        for own, new in zip(engine.parameters(), engine_of(state, rank).parameters(), strict=True):
            own.copy_(new)


def told(engine, manifest):
    try:
        return check(engine, against=manifest, map=MAP, mesh={"tp": [[0, 1]]}, layout=LAYOUT,
                     deadline=DEADLINE).inconclusive  # fmt: skip
    except Mismatch as error:
        return tuple((each.tensor, each.ranks, each.what) for each in error.findings)


# ---- Mistakes: what a rank holds of the third sync -----------------------------------------------


def half_is_of_the_second(engine, rank, first, second):
    if rank == 1:
        engine.gate_up[: ROWS // 2] = second.gate_up[: ROWS // 2]


def rows_are_of_the_first(engine, rank, first, second):
    if rank == 0:
        engine.gate_up[8:16] = first.gate_up[8:16]
        engine.gate_up[40:44] = first.gate_up[40:44]


def some_rows_of_a_block(engine, rank, first, second):
    if rank == 1:
        engine.gate_up[4:10] = second.gate_up[4:10]


def columns_of_one_rank(engine, rank, first, second):
    if rank == 1:
        engine.down[20:24] = second.down[20:24]


def on_one_replica(engine, rank, first, second):
    if rank == 1:
        engine.norm[2048:3072] = second.norm[2048:3072]


def bits(engine, rank, first, second):
    if rank == 0:
        engine.gate_up[63, 255] += 1


EXPECTED = {
    half_is_of_the_second: (
        "up", (1,), "of its 16 blocks 8, elements 0 to 8191 (rows 0 to 31), are wrong, still of "
        "version 2: its digest is"
    ),
    rows_are_of_the_first: (
        "gate", (0,), "of its 16 blocks 3, elements 2048 to 4095, 10240 to 11263 (rows 8 to 15, "
        "40 to 43), are wrong, still of version 1: its digest is"
    ),
    some_rows_of_a_block: (
        "up", (1,), "of its 16 blocks 2, elements 1024 to 3071 (rows 4 to 11), are wrong, 1 of "
        "them still of version 2: its digest is"
    ),
    columns_of_one_rank: (
        "down", (0, 1), "of its 16 blocks 1, elements 5120 to 6143 (rows 20 to 23), is wrong: its "
    ),
    on_one_replica: (
        "norm", (1,), "of its 8 blocks 1, elements 2048 to 3071, is wrong, still of version 2: "
    ),
    bits: ("gate", (0,), "of its 16 blocks 1, elements 15360 to 16383 (rows 60 to 63), is wrong: "),
}  # fmt: skip
MISTAKES = list(EXPECTED)


def test_what_is_wrong_within_a_tensor_is_named_by_rows_rank_and_version():
    one, two, *found, last = alike(run(all_, WORLD), range(WORLD))
    assert (one, two, last) == ((), (), ())
    for named, (tensor, ranks, said) in zip(found, EXPECTED.values(), strict=True):
        disk = [each for each in named if each[0] == tensor and each[2].startswith("of its")]
        assert [each[:2] for each in disk] == [(tensor, ranks)], named
        assert disk[0][2].startswith(said), disk
