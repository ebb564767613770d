"""A job does what its case asks for, in order; options are kept that a release has."""

import os
import types

import pytest
import torch

from shardproof.subjects import cuda_stand_in, job
from shardproof.subjects.launch import as_launched
from shardproof.subjects.offered import offered


class Optimizer:
    def step(self):
        pass

    def zero_grad(self):
        pass


def done(**asked):
    """What a job did: stages with their steps, and what it called."""
    case = types.SimpleNamespace(
        steps=0, saved_step=0, saves=False, resumes=False, measures_memory=False,
        loss=lambda model, step: torch.zeros((), requires_grad=True),
    )  # fmt: skip
    vars(case).update(asked)
    seen = []

    def load(observe):
        observe("built")
        return "model", Optimizer()

    def restore():
        seen.append("restore")
        return "model", Optimizer()

    job.run(
        case, lambda stage, step=0, **_: seen.append((stage, step)), load,
        lambda *_: seen.append("save"), restore,
    )  # fmt: skip
    return seen


def test_a_load():
    assert done() == [("built", 0), ("ready", 0)]


def test_a_load_that_saves():
    saved = [("built", 0), ("ready", 0), "save", ("saved", 0)]
    assert done(saves=True) == [*saved, "restore", ("restored", 0)]
    assert done(saves=True, measures_memory=True) == saved


def test_training_saves_halfway_and_goes_on_twice():
    assert done(steps=2, saved_step=1, saves=True) == [
        ("ready", 0), ("stepped", 1), "save", ("saved", 1), ("stepped", 2), "restore",
        ("restored", 1), ("resumed", 2),
    ]  # fmt: skip


def test_on_another_mesh_it_only_restores():
    assert done(steps=2, saved_step=1, resumes=True) == ["restore", ("restored", 1)]


def test_options_that_a_release_has():
    def of_old(mesh):
        return mesh

    def of_new(mesh, efficient=False):
        return mesh, efficient

    assert offered(of_old, efficient=True) == {}
    assert offered(of_new, efficient=True) == {"efficient": True}


def test_a_rank_finds_what_a_launcher_sets(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    as_launched(types.SimpleNamespace(rank=1, world_size=3), GROUP_RANK="0")
    found = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")]
    assert found == ["1", "1", "3", "0"]


def test_nothing_stands_in_for_a_gpu_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(RuntimeError, match="needs no stand-in"):
        cuda_stand_in.install()
