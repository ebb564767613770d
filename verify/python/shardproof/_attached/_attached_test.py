"""An attached job in this process: what is followed, what is left alone."""

import copy
import gc
import json
import pickle
import weakref

import pytest
import torch
from torch import nn

from shardproof._attached import _attached_options, _followed
from shardproof._attached._followed import Followed
from shardproof._observing._evidence import Writer, on_one_axis


@pytest.fixture
def job(tmp_path):
    """Follows models of one rank. job.stages(): (name, step, of) of what is on record."""

    class Job(Followed):
        def __init__(self, stages=_attached_options.STAGES, every=0):
            self.folders, self.kinds = [], []
            super().__init__(stages, every, self.begin, lambda function: function)

        def begin(self, kind):
            self.kinds.append(kind)
            folder = tmp_path / f"model{len(self.folders)}"
            self.folders.append(folder)
            writer = Writer(folder, 0)
            writer.rank(rank=0)
            return on_one_axis(0, 1), writer

        def records(self, kind, number=0):
            lines = (self.folders[number] / "rank_0.facts.jsonl").read_text().splitlines()
            return [each for each in map(json.loads, lines) if each["record"] == kind]

        def stages(self, number=0):
            return [(r["name"], r["step"], r.get("of", "model"))
                    for r in self.records("stage", number)]  # fmt: skip

        def step(self, optimizer):
            self.before_step(optimizer)
            optimizer.step()
            self.after_step(optimizer)

    return Job


def trained(job, model=None, **options):
    """A followed job with a model and its optimizer."""
    model = model or nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    followed = job(**options)
    followed.wrapped(model)
    followed.made(optimizer)
    return followed, model, optimizer


def test_a_model_that_nothing_is_computed_with_is_observed_at_the_end(job):
    followed, model, optimizer = trained(job)
    teacher, planned = nn.Linear(2, 2), nn.Linear(2, 2, device="meta")
    followed.wrapped(teacher)
    followed.wrapped(planned)
    followed.step(optimizer)
    followed.ending()
    assert len(followed.folders) == 2 and followed.stages(1) == [("ready", 0, "model")]


def test_the_first_and_the_last_step_are_observed_and_each_fiftieth_if_asked(job):
    followed, model, optimizer = trained(job)
    for _ in range(4):
        followed.step(optimizer)
    followed.ending()
    steps = [step for name, step, of in followed.stages() if name == "stepped" and of == "model"]
    assert steps == [1, 4]
    followed, model, optimizer = trained(job, every=2)
    for _ in range(5):
        followed.step(optimizer)
    steps = [step for name, step, of in followed.stages() if name == "stepped" and of == "model"]
    assert steps == [1, 2, 4]


def test_ready_is_once_before_the_first_forward_and_leaves_no_hook(job):
    followed, model, _ = trained(job)
    model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    assert followed.stages()[0] == ("ready", 0, "model")
    assert [stage for stage, _, _ in followed.stages()].count("ready") == 2  # and the optimizer
    assert not model._forward_pre_hooks


def test_a_load_is_observed_before_anything_is_computed_with_it(job):
    followed, model, _ = trained(job)
    model(torch.ones(1, 2))
    model.load_state_dict({"weight": torch.zeros(2, 2), "bias": torch.zeros(2)})
    followed.loaded(model)
    model(torch.ones(1, 2))
    assert followed.stages()[-2] == ("restored", 0, "model")


def test_only_what_is_asked_for_is_observed(job):
    followed, model, optimizer = trained(job, stages=())
    model(torch.ones(1, 2))
    followed.saved(model.state_dict())
    followed.step(optimizer)
    assert [stage for stage, _, _ in followed.stages()] == ["stepped", "stepped"]


def test_a_copy_and_a_pickle_of_a_model_have_nothing_of_ours(job):
    followed, model, _ = trained(job)
    expected = nn.Linear.forward(model, torch.ones(1, 2))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(torch.ones(1, 2)), expected)
    assert b"shardproof" not in pickle.dumps(model)
    assert followed.folders == []  # neither is the model that is followed


def test_nothing_is_kept_alive(job):
    followed, model, optimizer = trained(job)
    followed.step(optimizer)
    followed.saved(model.state_dict())
    refs = [weakref.ref(each) for each in (model, model.weight, optimizer)]
    refs += [weakref.ref(each["momentum_buffer"]) for each in optimizer.state.values()]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)
    followed.ending()


def test_the_outermost_module_is_the_model(job):
    inner = nn.Linear(2, 2)
    followed = job()
    followed.wrapped(inner)
    outer = nn.Sequential(inner, nn.ReLU())
    followed.wrapped(outer)
    assert not inner._forward_pre_hooks
    followed.wrapped(inner)  # part of what is followed
    outer(torch.ones(1, 2))
    assert {r["name"] for r in followed.records("tensor")} == {"0.weight", "0.bias"}
    assert len(followed.folders) == 1


def test_what_is_loaded_before_it_is_wrapped_is_restored(job):
    inner = nn.Linear(2, 2)
    followed = job()
    followed.wrapped(inner)
    followed.loaded(inner)
    outer = nn.Sequential(inner)
    followed.wrapped(outer)
    outer(torch.ones(1, 2))
    assert [stage for stage, _, _ in followed.stages()] == ["ready", "restored"]
    assert {r["name"] for r in followed.records("tensor")} == {"0.weight", "0.bias"}


def test_chunks_of_one_optimizer_are_one_model_and_others_are_others(job):
    chunks, other = [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))], nn.Linear(3, 3)
    followed = job()
    for each in (*chunks, other):
        followed.wrapped(each)
    optimizer = torch.optim.SGD([p for each in chunks for p in each.parameters()])
    followed.made(optimizer)
    chunks[0](torch.ones(1, 2))
    other(torch.ones(1, 3))
    names = [{r["name"] for r in followed.records("tensor", number)} for number in (0, 1)]
    assert names == [{"weight", "bias", "0.weight", "0.bias"}, {"weight", "bias"}]


def test_what_is_plain_is_held_against_no_other_rank(job):
    followed, model, optimizer = trained(job)
    followed.step(optimizer)
    assert [r["stated"] for r in followed.records("groups")] == [False]


def test_an_inf_in_a_buffer_is_sound_and_a_nan_is_not(job):
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.tensor([-torch.inf, 0.0]))
    model.register_buffer("lost", torch.tensor([torch.nan, torch.inf]))
    followed = job()
    followed.wrapped(model)
    model(torch.ones(1, 2))
    counts = {r["name"]: (r["nan"], r["inf"]) for r in followed.records("state")}
    assert (counts["mask"], counts["lost"]) == ((0, 0), (1, 0))


def test_an_optimizer_of_what_a_wrapper_replaced_is_on_record(job):
    model = nn.Linear(2, 2)
    followed = job()
    former = followed.wrapping(model)
    stale = torch.optim.SGD(model.parameters())
    for name in ("weight", "bias"):
        setattr(model, name, nn.Parameter(getattr(model, name).detach().clone()))
    followed.wrapped(model, former)
    followed.made(stale)
    followed.step(stale)
    assert len(followed.records("optimizer")[0]["strangers"]) == 2
    followed, model, optimizer = trained(job)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})  # of its own
    followed.step(optimizer)
    assert not any(each.get("claims", True) for each in followed.records("optimizer"))


# ---- What no wrapper made


def stepped_alone(job, model, optimizer, steps=1):
    """A job that tells of its optimizer's steps, and of nothing else."""
    followed = job(every=1)
    followed.made(optimizer)
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        followed.step(optimizer)
    return followed


def test_a_model_that_nothing_wraps_is_found_by_what_is_stepped_and_has_no_hook(job):
    inner = nn.Linear(2, 2)
    model = nn.Sequential(inner, nn.ReLU())
    followed = stepped_alone(job, model, torch.optim.SGD(inner.parameters(), lr=0.1))
    assert followed.stages()[::2] == [("ready", 0, "model"), ("stepped", 1, "model")]
    assert {r["name"] for r in followed.records("tensor")} == {"0.weight", "0.bias"}
    assert not model._forward_pre_hooks and not inner._forward_pre_hooks
    assert followed.kinds == ["found Sequential"]


def test_a_step_of_copies_is_observed_once_the_next_begins(job):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    copies = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    followed = job(every=1)
    followed.made(optimizer)
    optimizer.param_groups[0]["params"] = copies
    for copied in copies:
        copied.grad = torch.ones_like(copied)
    followed.step(optimizer)
    assert [stage for stage, _, _ in followed.stages()] == ["ready", "ready"]
    optimizer.param_groups[0]["lr"] = 0.05  # by a schedule
    followed.saved(model.state_dict(), is_checkpoint=True)
    followed.step(optimizer)
    rates = [each["groups"][0]["options"]["lr"] for each in followed.records("optimizer")]
    assert rates == ["0.1", "0.05", "0.1"]  # the last as it was in that step
    assert [(s, n) for s, n, _ in followed.stages()][-2:] == [("stepped", 1)] * 2
    followed.ending()
    assert [(s, n) for s, n, _ in followed.stages()][-2:] == [("stepped", 2)] * 2


def test_a_step_that_goes_group_by_group_is_one(job):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
    copies = [nn.Parameter(p.detach().clone()) for p in model.parameters()]
    followed = job(every=1)
    followed.made(optimizer)
    groups = list(optimizer.param_groups)
    for _ in range(2):
        for group, copied in zip(groups, copies, strict=True):
            copied.grad = torch.ones_like(copied)
            group["params"] = [copied]
            optimizer.param_groups = [group]
            followed.step(optimizer)
    followed.ending()
    stages = [(s, n) for s, n, what in followed.stages() if what == "model"]
    assert stages == [("ready", 0), ("stepped", 1), ("stepped", 2)]


def test_of_steps_within_a_step_the_outermost_is_observed(job):
    model = nn.Linear(2, 2)
    followed, model, outer = trained(job, model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    followed.made(inner)
    followed.before_step(outer)
    followed.before_step(inner)
    followed.after_step(inner)
    assert "stepped" not in [stage for stage, _, _ in followed.stages()]
    followed.after_step(outer)
    assert followed.stages()[-2] == ("stepped", 1, "model")


def test_two_models_of_one_optimizer_may_have_the_same_names(job):
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    optimizer = torch.optim.SGD([p for each in models for p in each.parameters()], lr=0.1)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    followed = job()
    for each in models:
        followed.wrapped(each)
    followed.made(optimizer)
    followed.step(optimizer)
    names = {r["name"] for r in followed.records("tensor")}
    assert names == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert not any("unreadable" in r for r in followed.records("state"))


def test_models_that_no_module_holds_are_looked_for_so_often_and_no_more(job, monkeypatch):
    looks = []
    monkeypatch.setattr(
        "shardproof._attached._unwrapped.gc.get_objects", lambda: looks.append(1) or []
    )
    followed = job()
    for _ in range(20):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        followed.made(optimizer)
        followed.step(optimizer)
    assert len(looks) == 16 and followed.folders == []


# ---- What had to move


def stepping(job, make, model=None, **options):
    """A followed job, its weight before the first step, and a function that takes a step."""
    torch.manual_seed(0)
    model = model or nn.Linear(4, 4)
    followed = job(**options)
    followed.wrapped(model)
    optimizer = make(model.parameters())
    followed.made(optimizer)

    def step(before_it_is_told=lambda: None):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        followed.before_step(optimizer)
        optimizer.step()
        before_it_is_told()
        followed.after_step(optimizer)
        optimizer.zero_grad()

    return followed, model, model.weight.detach().clone(), step


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_weight_that_a_step_leaves_as_it_was_is_on_record(job, momentum):
    followed, model, old, step = stepping(job, lambda p: torch.optim.SGD(p, 0.1, momentum=momentum))
    step(lambda: model.weight.data.copy_(old))
    (said,) = followed.records("steps")
    assert [(each["name"], each["why"]) for each in said["still"]] == [("weight", "due")]
    assert (said["taken"], said["since"], "unsure" in said) == (1, "ready", False)


def test_steps_are_counted_between_two_observations(job):
    followed, model, old, step = stepping(job, lambda p: torch.optim.AdamW(p), every=3)
    for _ in range(6):
        step()
    followed.saved(model.state_dict())
    step()
    followed.ending()
    found = followed.records("steps")
    assert [each["taken"] for each in found] == [1, 2, 3, 1]
    assert [each["since"] for each in found] == ["ready", "stepped@1", "stepped@3", "stepped@6"]
    assert not any(each["still"] for each in found)


def test_values_that_are_put_back_before_the_end_may_be_the_best(job):
    followed, model, old, step = stepping(job, lambda p: torch.optim.AdamW(p))
    step()
    best = model.weight.detach().clone()
    step()
    model.weight.data.copy_(best)
    followed.ending()
    found = followed.records("steps")
    assert [each["why"] for each in found[-1]["still"]] == ["due"]
    assert "the job had ended" in found[-1]["unsure"]


def test_what_is_loaded_is_held_against_nothing_earlier(job):
    followed, model, old, step = stepping(job, lambda p: torch.optim.AdamW(p), stages=(), every=1)
    step()
    assert followed.records("steps") == []  # `ready` was not asked for
    state = copy.deepcopy(model.state_dict())
    step()
    assert len(followed.records("steps")) == 1
    model.load_state_dict(state)
    followed.loaded(model)
    step()
    assert len(followed.records("steps")) == 1


# ---- Saves


def saved_stages(followed):
    return [of for name, _, of in followed.stages() if name == "saved"]


def test_a_save_of_the_model_is_recognised_wherever_it_lies(job):
    followed, model, optimizer = trained(job)
    followed.saved({"epoch": 1, "rng": torch.ones(2)})
    assert followed.folders == []
    followed.step(optimizer)
    followed.saved({"epoch": 1, "rng": torch.ones(2)})
    assert saved_stages(followed) == []
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    followed.saved({"epoch": 1, "model": wrapped})
    assert saved_stages(followed) == ["model", "state_dict"]


class AppState:
    """As a job hands its model to DCP, which asks it for its state."""

    def state_dict(self):
        raise AssertionError("nobody else asks, since it may talk to other ranks")


@pytest.mark.parametrize(
    ("made_of", "is_checkpoint", "why"),
    [
        (lambda state: {name: value * 0.5 for name, value in state.items()}, False, "neither"),
        (lambda state: {name: value.double() for name, value in state.items()}, False, "dtype"),
        (lambda state: {"app": AppState()}, True, "through an object"),
    ],
)
def test_of_a_save_that_cannot_be_judged_the_reason_is_on_record(job, made_of, is_checkpoint, why):
    followed, model, optimizer = trained(job)
    followed.step(optimizer)
    followed.saved(made_of(model.state_dict()), is_checkpoint)
    assert saved_stages(followed) == ["model", *["optimizer"] * is_checkpoint, "state_dict"]
    last = followed.records("state")[-2:]
    assert {each["name"] for each in last} == {"weight", "bias"}
    assert all(why in each["unreadable"] and "digest" not in each for each in last)


def test_a_save_of_what_the_model_was_is_on_record_as_that(job):
    followed, model, optimizer = trained(job)
    model(torch.ones(1, 2))
    early = copy.deepcopy(model.state_dict())
    for _ in range(2):
        followed.step(optimizer)
    followed.saved(early)
    assert saved_stages(followed) == ["model", "state_dict"]
    digests = [r["digest"] for r in followed.records("state") if r["name"] == "weight"]
    assert digests[-1] == digests[0] and digests[-2] != digests[0]


def test_a_save_of_less_than_the_model_reads_nothing_of_it(job, monkeypatch):
    followed, model, optimizer = trained(job)
    followed.before_step(optimizer)
    before = followed.stages()
    with monkeypatch.context() as patched:
        patched.setattr(_followed._model, "read", None)
        followed.saved({"step": 3, "losses": {"loss": torch.ones(3)}})
        followed.saved([torch.ones(2)])
    assert followed.stages() == before
    followed.saved({"model": model.state_dict()})
    assert followed.stages() != before
