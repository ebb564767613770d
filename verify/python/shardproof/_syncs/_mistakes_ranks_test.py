"""A trainer and an engine on 2 ranks, each with its log of syncs: twelve mistakes of public reports
are named by tensor, rank and version, by `check` and by the report of the logs."""

import pathlib
from functools import partial

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

from shardproof import _program, check, seal, syncs
from shardproof._checking._check import Mismatch
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._syncs._syncs_ranks_test import (  # fmt: skip
    EXPERTS,
    HEAD,
    HEADS,
    LAYOUT,
    MAP,
    TP,
    WORLD,
    Engine,
    Trained,
    fused,
    trained,
)

pytestmark = pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")

# The engine keeps a head of its own, which the trainer ties to the embedding.
WITH_HEAD = [*MAP, "pad(head.weight, with=0) -> head.weight"]
Q, QKV = "layers.0.q.weight", "layers.0.qkv.weight"


def at(step):
    """The trainer after a step. Of one projection LoRA is trained alone."""
    model, base = trained(step), trained(1)
    with torch.no_grad():
        before, after = base.layers[0].q.weight, model.layers[0].q.weight
        after.copy_(before + (step - 1) * torch.outer(after[:, 0], after[0]))
    return model


def held_of(step, rank):
    held = fused(at(step).state_dict(), rank)
    return {**held, "head.weight": held["embed.weight"].clone()}


def job(rank, mistake, folder):
    """Two syncs, the second one with a mistake. \\returns what `check` found."""
    mesh, found = init_device_mesh("cpu", (WORLD,)), ()
    engine = None
    for step in (1, 2):
        model = fully_shard(at(step), mesh=mesh)
        manifest = seal(model, version=step, log=f"{folder}/trainer.syncs.jsonl")
        if step == 1:
            engine = mistake.engine(rank)
        mistake(engine, step, rank)
        try:
            check(engine, against=manifest, deadline=DEADLINE, log=f"{folder}/engine.syncs.jsonl",
                  **mistake.options)  # fmt: skip
        except Mismatch as error:
            found = tuple((each.tensor, each.ranks, each.what) for each in error.findings
                          if each.kind == "disk")  # fmt: skip
    return found


class Mistake:
    """What an engine does to load a version. but: names that it does not load, of the second."""

    options = {"map": WITH_HEAD, "mesh": TP, "layout": {**LAYOUT, "head.weight": {"tp": Shard(0)}}}

    def __init__(self, spoil=None, but=()):
        self.spoil, self.but = spoil, but

    def engine(self, rank):
        return Engine(held_of(1, rank))

    def __call__(self, engine, step, rank):
        held = held_of(step, rank)
        if self.spoil and step == 2:
            held = self.spoil(held, engine.state_dict(), rank)
        engine.load(held, but=self.but if step == 2 else ())


class Replicas(Mistake):
    """Each rank serves the whole model, by the trainer's names."""

    options = {"mesh": {"dp": [[0, 1]]}}

    def engine(self, rank):
        return Trained()

    def __call__(self, engine, step, rank):
        engine.load_state_dict(at(1 if rank == 1 else step).state_dict())


class Dtype(Mistake):
    def __call__(self, engine, step, rank):
        super().__call__(engine, step, rank)
        if step == 2:
            norm = engine.get_submodule("layers.1.norm")
            norm.weight = torch.nn.Parameter(norm.weight.to(torch.bfloat16))


def woken(held, before, rank):
    """After sleep the copy comes back that was made when it fell asleep."""
    return before


def other_layout(held, before, rank):
    """Packing for its kernels, the second time on what was packed."""
    name = "layers.1.w2"
    return {**held, name: held[name].transpose(1, 2).reshape(held[name].shape)}


def with_q(times):
    def spoil(held, before, rank):
        rows = slice(0, HEADS * HEAD // WORLD)
        fused_rows = held[QKV].clone()
        base = before[QKV][rows]
        fused_rows[rows] = base + times * (held[QKV][rows] - base)
        return {**held, QKV: fused_rows}

    return spoil


def slice_of_another_rank(held, before, rank):
    return {**held, "layers.0.o.weight": held_of(2, 0)["layers.0.o.weight"]}


def one_delta_lost(held, before, rank):
    """Of the experts of rank 1: what changed of one of them is not added."""
    if rank == 1:
        held["layers.0.w2"][1] = before["layers.0.w2"][1]
    return held


STALE = "it is still that of version 1"
ALL = {name for name, _ in at(1).named_parameters()}
BUCKET = [f"layers.1.{each}.weight" for each in ("gate", "k", "q", "up", "v")]

# By mistake: (how, tensors, ranks, what).
EXPECTED = {
    "stale after sleep and wake": (Mistake(woken), None, None, STALE),
    "second load in another layout": (
        Mistake(other_layout), [f"layers.1.experts.{e}.down.weight" for e in range(EXPERTS)],
        None, "its digest is",
    ),
    "bucket lost": (
        Mistake(but=("layers.1.qkv.weight", "layers.1.gate_up.weight")), BUCKET, (0, 1), STALE
    ),
    "LoRA not merged": (Mistake(with_q(0)), [Q], (0, 1), STALE),
    "LoRA merged twice": (Mistake(with_q(2)), [Q], (0, 1), "its digest is"),
    "router bias left out": (
        Mistake(but=("layers.0.router_bias",)), ["layers.0.router_bias"], (0, 1), STALE
    ),
    "tied head not sent": (
        Mistake(but=("head.weight",)), ["head.weight"], (0, 1), STALE
    ),
    "buffers not sent": (
        Mistake(but=("layers.0.router_bias", "layers.1.router_bias")),
        ["layers.0.router_bias", "layers.1.router_bias"], (0, 1), STALE,
    ),
    "slice of another rank": (
        Mistake(slice_of_another_rank), ["layers.0.o.weight"], (0, 1), "hold the same part"
    ),
    "version mixed over replicas": (Replicas(), None, (1,), STALE),
    "dtype": (Dtype(), ["layers.1.norm.weight"], (0, 1), "it is a torch.bfloat16 [8]"),
    "one delta lost": (
        Mistake(one_delta_lost), ["layers.0.experts.3.down.weight"], (1,), STALE
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folders = {name: str(tmp_path_factory.mktemp("syncs")) for name in ("none", *EXPECTED)}
    return alike(run(partial(all_of, folders=folders), WORLD), range(WORLD)), folders


def all_of(rank, folders):
    ways = {"none": Mistake(), **{name: each[0] for name, each in EXPECTED.items()}}
    return tuple((name, job(rank, ways[name], folder)) for name, folder in folders.items())


def test_a_sound_pair_is_silent(found):
    said, folders = found
    assert dict(said)["none"] == ()
    result = syncs.judge(syncs.read(pathlib.Path(folders["none"])))
    assert result["verdict"] == "pass", result


@pytest.mark.parametrize("mistake", EXPECTED)
def test_a_mistake_is_named_by_tensor_rank_and_version(mistake, found):
    said, folders = found
    named = dict(said)[mistake]
    _, tensors, ranks, what = EXPECTED[mistake]
    if tensors is None:
        assert {name for name, _, _ in named} >= ALL
    else:
        assert sorted(name for name, _, _ in named) == sorted(tensors), named
    for name, on, why in named:
        assert ranks in (None, on) and what in why, (name, on, why)
    result = syncs.judge(syncs.read(pathlib.Path(folders[mistake])))
    failed = {each["id"]: each["findings"] for each in result["rules"] if each["findings"]}
    assert list(failed) == ["sync.loaded"], failed
    line = failed["sync.loaded"][0]
    assert named[0][0] in line and "of engine at version 2" in line and what in line
