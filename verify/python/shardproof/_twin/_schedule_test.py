"""The rates of a plain schedule, and those that a subject stepped with."""

import pytest
import torch

from shardproof._twin import _schedule, _stage
from shardproof._twin._step_events import Moment, Step, Stepper
from shardproof._twin._twin import Plain


def rates():
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return _schedule.of(Plain(model, "", optimizer=optimizer, schedule=schedule), 3)


def test_a_plain_schedule_gives_each_step_its_rate():
    assert [of_step["weight"]["lr"] for of_step in rates()] == [1.0, 0.5, 0.25]
    assert rates()[2]["weight"]["momentum"] == 0.5
    assert _schedule.of(Plain(None, ""), 3) == []


@pytest.mark.parametrize(
    ("rate", "cause"),
    [
        (torch.tensor(0.5), None),
        (0.25, "it is that of step 3, and this is step 2"),
        (0.3, ""),
    ],
)
def test_a_step_at_another_rate_is_told(rate, cause):
    stage = _stage.Stage("stepped@2")
    peers = [Step(0, [{"lr": rate}], {}, {})] * 2
    after = [Moment("stepped", 2, {}, {}, {}, [Stepper(torch.optim.SGD, [({}, ["weight"])])], [])]
    _schedule.hold(stage, rates(), 1, peers, after * 2)
    assert [one["cause"] for one in stage.deviations] == ([] if cause is None else [cause])
    assert all(one["ranks"] == [0, 1] for one in stage.deviations)
