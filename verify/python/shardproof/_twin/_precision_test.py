import types

import pytest
import torch

from . import _precision
from ._stage import Stage
from ._step_events import Batch, Moment, Part, Reduced

SHAPES = {"up.weight": (4, 2), "norm.weight": (4,), "head.weight": (3, 4)}


def moment(autocast=None, **dtypes):
    batch = Batch({}, 1, torch.zeros(0), True, autocast, weight=1.0)
    batch.dtypes = {name: dtypes.get(name[:2], torch.float32) for name in SHAPES}
    model = {
        name: Part(torch.float32, shape, [], torch.zeros(1), "parameter", True)
        for name, shape in SHAPES.items()
    }
    return Moment("stepped", 1, model, {}, {}, [], [batch])


def deviations(said, *after):
    stage = Stage("stepped@1")
    _precision.hold(stage, said, list(after))
    return [(each["tensor"], each["ranks"], each["what"]) for each in stage.deviations]


def test_ranks_compute_alike():
    bf16 = torch.bfloat16
    assert not deviations({}, moment(), moment())
    assert not deviations({}, moment(bf16), moment(bf16))
    ((name, ranks, what),) = deviations({}, moment(bf16), moment(bf16), moment())
    assert (name, ranks) == ("head.weight", [2])
    assert what == "the forward pass uses it in float32, and that of the other ranks bfloat16"
    assert deviations({}, moment(up=bf16), moment(up=bf16), moment())[0][:2] == ("up.weight", [2])


SAID = ["bfloat16", {"*": "float32", "*.weight": "bfloat16"}, lambda case: "bfloat16"]


@pytest.mark.parametrize("said", SAID)
def test_they_compute_as_the_subject_says(said):
    said = _precision.said_by(types.SimpleNamespace(COMPUTES=said), None)
    assert not deviations(said, moment(torch.bfloat16))
    ((name, ranks, what),) = deviations(said, moment(), moment())
    assert (name, ranks) == ("head.weight", [0, 1])
    assert what == "the forward pass uses it in float32, and COMPUTES says bfloat16"


@pytest.mark.parametrize(
    ("mesh", "reduced", "ranks"),
    [({"dp_shard": 2}, torch.bfloat16, [1]), ({"dp_shard": 2}, torch.float32, []),
     ({"dp_shard": 1, "tp": 2}, torch.bfloat16, [])],
)  # fmt: skip
def test_ranks_add_up_as_the_subject_says(mesh, reduced, ranks):
    after = [moment(), moment()]
    for own in after:
        own.since[0].case = {"mesh": mesh}
    after[1].since.append(Reduced(reduced))
    stage = Stage("stepped@1")
    _precision.hold_reduced(stage, "float32", after)
    assert [each["ranks"] for each in stage.deviations] == [ranks] * bool(ranks)


def test_the_last_pattern_counts_and_nothing_need_be_said():
    said = {"*": "bfloat16", "head.*": "float32"}
    assert not deviations(said, moment(up=torch.bfloat16))
    assert deviations(said, moment())[0][0] == "up.weight"
    assert _precision.said_by(types.SimpleNamespace(), None) == {}
