"""The pieces of a plain twin that takes steps: whole tensors, an optimizer alone, causes, averages.
What it says of whole jobs is tried on subjects (fixtures/subjects, verify/subjects)."""

import dataclasses
import math

import pytest
import torch

from shardproof._holdings._layout import Run
from shardproof._twin import (
    _causes,
    _clips,
    _followed_averages,
    _stage,
    _step_by_step,
    _step_values,
    _values,
    _whole_job,
)
from shardproof._twin._gradients import Gradients
from shardproof._twin._step_events import Batch, Clip, Moment, OwnTerms, Part, Scaled, Step, Stepper


def parts_of(full, ranks=2):
    """Rows of a matrix, cut as torch.chunk does."""
    rows, width = full.shape
    step = -(-rows // ranks)
    return [
        Part(full.dtype, tuple(full.shape), [Run(first * width, len(local) * width)],
             local.reshape(-1).clone())
        for first, local in ((first, full[first : first + step]) for first in range(0, rows, step))
    ]  # fmt: skip


def gradients(*of_rank):
    return Gradients([{"w": each} for each in of_rank], [], {"w": 1e-7}, 2, 1.0, 2**-24)


def judged(seen, expected, clips=(), earlier=None, left_out=False):
    """The deviations of a gradient that two ranks hold by rows."""
    stage = _stage.Stage("stepped@1")
    parts = [{"w": (part.local, part)} for part in parts_of(seen)]
    clips = [[dataclasses.replace(each) for each in clips] for _ in parts]
    return _causes.judged(stage, expected, earlier, parts, clips, left_out), stage


FIRST = torch.arange(1.0, 13.0, dtype=torch.float64).view(4, 3) / 16
SECOND = FIRST.flip(0) + 0.25
MEAN = (FIRST + SECOND) / 2


@pytest.mark.parametrize("is_judged", [True, False])  # as those of a loss of the job's own are not
@pytest.mark.parametrize(
    ("off", "loss", "is_order"),
    [(1e-7, 1.0, True), (0.0, 1.0, False), (1e-3, 1.0, False), (1e-7, 1.1, False)],
)
def test_a_resumed_job_may_add_up_in_another_order(off, loss, is_order, is_judged):
    def shown(stage, grad, loss):
        batch = Batch({}, 3, torch.zeros(1), True, None)
        batch.loss = loss
        step = Step(0, [], {"w": grad}, {})
        return [Moment(stage, 3, {"w": parts_of(FIRST, 1)[0]}, {}, {}, [], [batch, step])]

    known, grad = {}, MEAN.float().reshape(-1)
    expected = gradients(FIRST, SECOND) if is_judged else None
    for stage, seen, said in (("stepped", grad, 1.0), ("resumed", grad + off, loss)):
        of_stage = _stage.Stage(f"{stage}@3")
        _whole_job.hold_order(of_stage, known, shown(stage, seen, said), expected)
    assert of_stage.adds_otherwise == is_order


def test_parts_make_up_a_whole_and_are_cut_from_it():
    full = torch.arange(10.0).view(5, 2)
    parts = parts_of(full)
    assert torch.equal(_values.whole(parts), full)
    assert torch.equal(_values.cut(full, parts[1]), full[3:].reshape(-1))
    assert _values.place_of(parts[1], 1) == 7
    assert _values.whole(parts[:1]) is None


def test_gradients_of_all_batches_are_silent():
    found, stage = judged(MEAN.float(), gradients(FIRST, SECOND))
    assert (found, stage.compared, stage.left_out) == ([], 12, "")


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (2 * MEAN, "they were summed over the ranks, not averaged"),
        (MEAN / 2, "they were divided by the number of ranks twice"),
        (SECOND, "they are those of the batch of rank 1 alone"),
        (torch.cat([FIRST[:2], SECOND[2:]]), "each rank has the gradients of its own batch"),
        (3 * FIRST, "they are those of the step before"),
        (3 * FIRST + MEAN, "the gradients of the step before were not zeroed"),
        ((MEAN + 1e-4).bfloat16(), "they were rounded through bfloat16"),
        (1.75 * MEAN, "they were scaled by 1.75"),
    ],
)  # fmt: skip
def test_what_other_gradients_are_is_told(seen, cause):
    expected = gradients(FIRST + 1e-4 * (cause[-1] == "6"), SECOND + 2e-4 * (cause[-1] == "6"))
    found, _ = judged(seen.float(), expected, earlier=gradients(3 * FIRST, 3 * FIRST))
    assert cause in found[0]["cause"]


def test_gradients_of_nothing_are_told_where_another_optimizer_left_the_step_out():
    """As clipping by hand by a norm that is not finite makes them; anywhere else it is wrong."""
    found, stage = judged(0 * MEAN.float(), gradients(FIRST, SECOND), left_out=True)
    assert found == [] and "all its gradients are 0" in stage.left_out
    assert judged(0 * MEAN.float(), gradients(FIRST, SECOND))[0]
    half = torch.cat([0 * MEAN[:2], MEAN[2:]]).float()
    assert judged(half, gradients(FIRST, SECOND), left_out=True)[0]


def test_a_norm_of_one_rank_alone_is_no_norm():
    norm = float(MEAN.norm())
    sound = Clip(norm, 0.5, 2.0, ["w"])
    assert judged((MEAN * 0.5 / (norm + 1e-6)).float(), gradients(FIRST, SECOND), [sound])[0] == []
    wrong = dataclasses.replace(sound, norm=1.5 * norm)
    scaled = (MEAN * 0.5 / (1.5 * norm + 1e-6)).float()
    (found,), _ = judged(scaled, gradients(FIRST, SECOND), [wrong])
    assert found["kind"] == "norm"


def test_a_norm_covers_what_other_optimizers_step():
    other = torch.tensor([3.0, 4.0], dtype=torch.float64)
    of_rank = [{"w": FIRST, "v": other}, {"w": SECOND, "v": other}]
    expected = Gradients(of_rank, [], {"w": 1e-7, "v": 1e-7}, 2, 1.0, 2**-24)
    norm = math.hypot(float(MEAN.norm()), 5.0)
    scaled = (MEAN * 0.5 / (norm + 1e-6)).float()
    assert judged(scaled, expected, [Clip(norm, 0.5, 2.0, ["w", "v"])])[0] == []
    own = Clip(float(MEAN.norm()), 0.5, 2.0, ["w", "v"])  # of one optimizer's alone
    (found,), _ = judged((MEAN * 0.5 / (own.norm + 1e-6)).float(), expected, [own])
    assert found["kind"] == "norm"


def test_a_norm_is_put_together_of_what_ranks_have_of_it():
    parts = [[Clip(None, 1.0, 2.0, [], part=(value, 2))] for value in (3.0, 3.0, 4.0, 4.0)]
    assert [own[0].norm for own in _clips.whole(parts)] == [5.0] * 4
    parts[0][0].part = None
    assert _clips.whole(parts)[1][0].norm is None


@pytest.mark.parametrize(
    ("number", "weight", "says"),
    [
        (3, 1.0, ""),
        (3, 1.5, "divided by 2 each"),  # and not by 3
        (2, 2 / 3, "divided by 3 each"),
        (3, 3.0, None),  # a sum
        (0, 0.75, None),  # not all weigh the same
        (1, 0.7, None),
        (1, 0.5, "divided by the number of ranks twice"),
        (1, 2.0, "summed over the ranks"),
    ],
)
def test_losses_that_make_up_no_mean(number, weight, says):
    """None: what may be meant. Where an earlier step had a mean, the data may have ended early."""
    mean = dataclasses.replace(gradients(FIRST, SECOND), number=number)
    found, stage = judged(MEAN.float(), dataclasses.replace(mean, weight=weight))
    said = "".join(one["what"] + one["cause"] for one in found)
    assert bool(said) == bool(says) and (says or "") in said
    assert bool(stage.left_out) == (says is None and number > 0)
    later, _ = judged(MEAN.float(), dataclasses.replace(mean, weight=weight), earlier=mean)
    assert later == []


def test_terms_of_a_job_that_does_not_train_on_the_loss_of_its_case_are_its_loss():
    job, stage = _step_by_step._Job(None, ""), _stage.Stage("stepped@1")
    job._pending = {0: _step_by_step._Pending([(OwnTerms(), {})])}
    job._gradients(stage, None, None, [Step(0, [], {"w": MEAN}, {})], False)
    assert "does not train on case.loss" in stage.left_out


def test_a_kink_that_rounding_crosses_is_no_other_gradient():
    off = torch.zeros(4, 3, dtype=torch.float64)
    off[1, 2] = 0.5
    expected = dataclasses.replace(gradients(FIRST, SECOND), shifted=lambda: {"w": off})
    found, stage = judged((MEAN - off).float(), expected)
    assert found == [] and "rounding the weights" in stage.left_out
    assert judged((MEAN - 3 * off).float(), expected)[0]
    assert judged((MEAN - off.flip(0)).float(), expected)[0]


@pytest.mark.parametrize(
    ("numbers", "given_up"),
    [
        ([0], {0}),  # those of the other are as they were
        ([0, 1], {0, 1}),
        ([-1], {0, 1}),
    ],
)
def test_gradients_are_zeroed_by_optimizer(numbers, given_up):
    pending = _step_by_step._Pending([(BATCH, {})])
    for number in numbers:
        pending.zeroed(number, {0, 1})
    assert pending.given_up == given_up
    assert pending.take(0) == [] and bool(pending.take(1)) == (1 not in given_up)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (lambda loss, w: loss, False),
        (lambda loss, w: 3 * loss, False),
        (lambda loss, w: loss + 0.1 * w.square().sum(), True),
        (lambda loss, w: w.square().sum(), True),
        (lambda loss, w: torch.autograd.grad(loss, w, create_graph=True)[0].sum() + loss, True),
    ],
)
def test_terms_beside_a_loss_are_seen_in_the_graph(own, expected):
    w = torch.nn.Parameter(torch.arange(3.0))
    loss = (w * w).sum()
    assert _step_values._has_own_terms([own(loss, w)], [loss.grad_fn]) == expected


def moments_of(*since, kind=torch.optim.SGD, last=MEAN):
    weights = [{"w": part} for part in parts_of(MEAN)], [{"w": part} for part in parts_of(last)]
    held = [Stepper(kind, [])]
    return [
        [Moment("ready", 0, own, {}, {}, held, []) for own in weights[0]],
        [Moment("stepped", 2, own, {}, {}, held, list(since)) for own in weights[1]],
    ]


@pytest.mark.parametrize(
    ("since", "says"),
    [
        ([], "2 steps are shown, and SGD took none"),
        ([Step(0, [], {"w": None}, {})] * 2, "SGD took all of them without a gradient"),
    ],
)
def test_a_job_that_never_steps_is_named(since, says):
    stage = _whole_job.never_stepped(moments_of(*since))
    assert says in stage.deviations[0]["what"]


def test_steps_after_a_restore_are_none_of_those_before_it():
    moments = moments_of()
    held, taken = [Stepper(torch.optim.SGD, [])], [Step(0, [], {"w": MEAN}, {})]
    parts = [{"w": part} for part in parts_of(MEAN + 1)]
    moments.append([Moment("resumed", 3, own, {}, {}, held, taken) for own in parts])
    stage = _whole_job.never_stepped(moments)
    assert "2 steps are shown, and SGD took none" in stage.deviations[0]["what"]


@pytest.mark.parametrize(
    "moments",
    [
        moments_of(Step(0, [], {}, {})),  # of what, nobody knows
        moments_of(Step(0, [], {"w": None}, {}), Step(0, [], {"w": MEAN}, {})),
        moments_of(Step(0, [], {"w": None}, {}), last=MEAN + 1),
        moments_of(Scaled(8.0)),  # a scaler leaves steps out
        moments_of(kind=object),  # none of torch's
        moments_of(last=MEAN + 1),
    ],
)
def test_a_job_that_steps_somehow_is_not(moments):
    assert _whole_job.never_stepped(moments) is None


@pytest.mark.parametrize(
    ("weights", "grad", "is_named"),
    [
        ((0.0, 0.0), None, True),
        ((0.0, 0.0), MEAN, False),  # of something else
        ((0.0, None), None, False),  # a loss without a gradient, as of an evaluation
        ((), None, False),
    ],
)
def test_a_step_after_losses_whose_backward_never_began_is_named(weights, grad, is_named):
    events = [[(Batch({}, 1, None, True, None, weight=each), {})] for each in weights] or [[]]
    job, stage = _step_by_step._Job(None, ""), _stage.Stage("stepped@1")
    job._without_batch(stage, [Step(0, [], {"w": grad}, {})], events, False)
    assert [each["kind"] for each in stage.deviations] == ["steps"] * is_named


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([Step(-1, [], {}, {})], "SGD was observed, and another optimizer took the steps"),
        ([], "SGD is not one of torch's, or was not observed"),
    ],
)
def test_what_takes_its_steps_inside_of_another_is_told(steps, says):
    """And what needs no optimizer is judged."""
    before, after = moments_of(*steps, BATCH)
    stage = _step_by_step._Job(None, "").hold(before, after)
    assert says in stage.left_out
    assert stage.compared == 1


def two_optimizers(*since, last=MEAN, name="w"):
    moments = moments_of(*since, last=last)
    for own in moments[1]:
        own.steppers = [Stepper(torch.optim.SGD, [({}, ["v"])]),
                        Stepper(torch.optim.Adam, [({}, [name])])]  # fmt: skip
    return moments


STEPS = [Step(number, [], {}, {}) for number in (0, 1)]


@pytest.mark.parametrize(
    ("moments", "says"),
    [
        (two_optimizers(STEPS[0]), "Adam of w took no step in 2 that are shown"),
        (two_optimizers(*STEPS), ""),
        (two_optimizers(), ""),  # none does, which is said elsewhere
        (two_optimizers(STEPS[0], Scaled(8.0)), ""),  # a scaler leaves steps out
        (two_optimizers(STEPS[0], last=MEAN + 1), ""),  # something else steps it
    ],
)
def test_of_several_optimizers_one_may_never_step(moments, says):
    stage = _whole_job.idle(moments)
    assert says in stage.why_not if says else stage is None


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"scale": 8.0, "_growth_tracker": 3}, []),
        ({"scale": 4.0, "_growth_tracker": 3}, ["the loss scaler has scale = 4.0"]),
        ({"scale": 8.0, "_growth_tracker": 0}, ["the loss scaler has growth_tracker = 0"]),
    ],
)
def test_a_resumed_loss_scaler_goes_on(now, says):
    known = {}
    for name, state in (("stepped", {"scale": 8.0, "_growth_tracker": 3}), ("resumed", now)):
        stage = _stage.Stage(f"{name}@2")
        own = Moment(name, 2, {}, {}, {}, [], [Scaled(state["scale"], state)])
        _whole_job.hold_scaler(stage, known, [own])
    assert stage.compared == 2
    found = [each["what"] for each in stage.deviations]
    assert len(found) == len(says) and all(a in b for a, b in zip(says, found, strict=True))


@pytest.mark.parametrize(
    ("modes", "unlike", "is_told"),
    [
        ([[True, True]], [], False),
        ([[False, False]], [], False),  # as a job without dropout may
        ([[True, False, True]], [1], False),
        ([[True, True], [False, False]], [], True),
    ],
)
def test_ranks_compute_losses_in_one_mode(modes, unlike, is_told):
    job = _step_by_step._Job(None, "")
    for of_ranks in modes:
        stage = _stage.Stage("stepped@1")
        after = [Moment("stepped", 1, {}, {}, {}, [], [dataclasses.replace(BATCH, trains=each)])
                 for each in of_ranks]  # fmt: skip
        job._mode(stage, after)
    assert [rank for each in stage.deviations for rank in each["ranks"]] == unlike
    assert bool(stage.left_out) == is_told


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
def test_an_average_follows_its_weights(decay):
    before, old, new = MEAN.float(), FIRST.float(), SECOND.float()

    def held(weights):
        stage = _stage.Stage("stepped@1")
        after = parts_of(decay * before + (1 - decay) * weights)
        of = [[{"w": part} for part in parts_of(each)] for each in (before, old, new)]
        _followed_averages.hold(stage, of[0], [{"w": part} for part in after], of[1], of[2])
        return stage.deviations

    assert held(new) == []
    if decay < 1:
        assert "before the step" in held(old)[0]["cause"]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({}, {"a": 0.0}, "not observed at the stage before"),
        ({"a": 0.0}, {}, "not observed here"),
        ({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}, "a decay of its own, from 0 of a to 1 of b"),
        ({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}, ""),
    ],
)
def test_averages_that_are_not_held_against_others_are_told(before, after, why):
    def of(values):
        return [{name: parts_of(torch.full((1, 2), value))[0] for name, value in values.items()}]

    stage = _stage.Stage("stepped@1")
    weights = of({"a": 1.0, "b": 1.0})
    _followed_averages.hold(stage, of(before), of(after), weights, weights)
    assert why in stage.left_out
    assert bool(why) == bool(stage.left_out)
    assert stage.deviations == []


BATCH = Batch({}, 1, None, True, None, weight=1.0)


@pytest.mark.parametrize(
    ("taken", "since", "why_not", "what"),
    [
        (1, [], "steps shown since `stepped`: 2; steps taken: 1", ""),
        (1, [BATCH] * 2, "steps shown since `stepped`: 2; steps taken: 1", ""),
        (1, [BATCH], "", "steps shown since `stepped`: 2; steps taken: 1, of batches: 1"),
        (2, [BATCH] * 2, "", ""),
        (1, [BATCH, Scaled(8.0)], "", ""),  # a scaler leaves steps out
    ],
)
def test_what_is_shown_as_a_step_was_one(taken, since, why_not, what):
    def moment(step):
        return Moment("stepped", step, {}, {}, {}, [Stepper(torch.optim.SGD, [])], since)

    job, stage = _step_by_step._Job(None, ""), _stage.Stage("stepped@3")
    job._followed = {0}
    job._count(stage, [moment(1)], [moment(3)], [Step(0, [], {}, {})] * taken)
    found = "".join(each["what"] for each in stage.deviations)
    assert (stage.why_not, found) == (why_not, what)


def ranks_of(target, weight):
    """A frozen and a trainable tensor, as two ranks have them."""
    return [
        {"t": target_part, "w": dataclasses.replace(weight_part, trainable=True)}
        for target_part, weight_part in zip(parts_of(target), parts_of(weight), strict=True)
    ]


WAS, WEIGHT = torch.randn(4, 3), torch.randn(4, 3)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (WAS.lerp(WEIGHT, 0.1), ["t"]),  # a momentum encoder
        (WEIGHT, ["t"]),  # a target network, copied
        (WAS, []),
        (0.5 * WAS, []),
        (WAS.lerp(WEIGHT, 0.1) + 1e-3, []),
        (WAS.lerp(WEIGHT, -0.5), []),
    ],
)
def test_a_frozen_parameter_may_follow_a_trainable_one(now, expected):
    before, after = ranks_of(WAS, WEIGHT), ranks_of(now, WEIGHT)
    assert _followed_averages.of_frozen(before, after) == expected


def test_a_frozen_parameter_that_follows_on_one_rank_alone_follows_nothing():
    copies = [Part(WAS.dtype, (4, 3), [Run(0, 12)], WAS.reshape(-1)) for _ in range(2)]
    weight = Part(WAS.dtype, (4, 3), [Run(0, 12)], WEIGHT.reshape(-1), trainable=True)
    before = [{"t": each, "w": weight} for each in copies]
    moved = dataclasses.replace(copies[0], local=WEIGHT.reshape(-1))
    after = [{"t": moved, "w": weight}, before[1]]
    assert _followed_averages.of_frozen(before, after) == []


def test_a_parameter_of_few_elements_follows_beside_others_alone():
    def of(value):
        return [
            {
                "t": Part(torch.float32, (1,), [Run(0, 1)], torch.tensor([value])),
                "w": Part(torch.float32, (1,), [Run(0, 1)], torch.ones(1), trainable=True),
            }
        ]

    assert _followed_averages.of_frozen(of(0.0), of(0.1)) == []
