"""Modules in another mode than the model that they are of."""

import types

import torch
from torch import nn

from . import _gradients, _modes, _stage, _step_by_step
from ._step_events import Batch, Moment


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.teacher = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))


def taught():
    pair = Pair()
    pair.teacher.eval()
    return pair


def test_the_twin_has_modules_in_the_modes_of_the_job():
    assert _modes.unlike_the_model(Pair()) == {}
    modes = _modes.unlike_the_model(taught())
    assert set(modes) == {"teacher", "teacher.0", "teacher.1"} and not any(modes.values())
    batch = Batch({}, 1, torch.zeros(0), True, None, modes=modes)
    twin = _gradients.PlainModel(Pair(), None)._set(batch, {}, {}, wide=False)
    assert twin.student[1].training and not twin.teacher[1].training
    again = _gradients.PlainModel(taught(), None)._set(
        Batch({}, 1, torch.zeros(0), True, None), {}, {}, wide=False
    )
    assert again.teacher[1].training


def test_what_the_plain_model_evaluates_is_not_to_train():
    plain = types.SimpleNamespace(evaluating=_modes.evaluating(taught()))
    assert plain.evaluating == ["teacher"]

    def held(*models, name="teacher.0"):
        job, stage = _step_by_step._Job(plain, ""), _stage.Stage("stepped@1")
        job._mode(stage, [
            Moment("stepped", 1, {}, {}, {}, [], [
                Batch({}, 1, None, each.training, None, weight=1.0, dtypes={f"{name}.weight": None},
                      modes=_modes.unlike_the_model(each))
            ]) for each in models
        ])  # fmt: skip
        return stage.deviations

    assert held(taught(), taught()) == []
    (said,) = held(taught(), Pair())
    assert said["ranks"] == [1] and said["what"].startswith("teacher is in training mode")
    assert held(taught().eval(), taught().eval()) == []
    assert held(Pair(), Pair(), name="other") == []  # under other names it may be evaluating
