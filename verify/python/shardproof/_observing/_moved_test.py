"""What had to change over a step: sound jobs of many kinds are not accused, mistakes are named."""

import copy
import json

import pytest
import torch
from torch import nn

from shardproof._observing._evidence import Writer, on_one_axis
from shardproof._observing._observer import Observer


@pytest.fixture
def watch(tmp_path):
    """(observe, still()): an Observer, and {name: why} of what the last stage has on record."""
    writer = Writer(str(tmp_path), 0)
    writer.rank(rank=0)
    observe = Observer(writer, on_one_axis(0, 1), "values", [])

    def records():
        lines = (tmp_path / "rank_0.facts.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["record"] == "steps"]

    def still():
        return {each["name"]: each["why"] for each in records()[-1]["still"]}

    observe.records = records
    return observe, still


def net(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)


def loss_of(model, step):
    generator = torch.Generator().manual_seed(step)
    dtype = next(model.parameters()).dtype
    return model(torch.randn(5, 6, generator=generator).to(dtype)).square().mean()


def taken(observe, model, optimizer, steps=3, between=None, before_observing=None):
    """Trains and observes each step."""
    observe("ready", model=model, optimizer=optimizer)
    for step in range(1, steps + 1):
        loss_of(model, step).backward()
        if between:
            between(step)
        optimizer.step()
        optimizer.zero_grad()
        if before_observing:
            before_observing(step)
        observe("stepped", model=model, optimizer=optimizer, step=step)


def muon(model):
    matrices = [each for each in model.parameters() if each.dim() == 2]
    return [torch.optim.Muon(matrices, lr=0.01), torch.optim.AdamW(
        [each for each in model.parameters() if each.dim() != 2])]  # fmt: skip


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True, maximize=True),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "rate_in_tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, momentum=0.9, centered=True),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "rprop": lambda p: torch.optim.Rprop(p),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_any_optimizer_is_sound(watch, kind, dtype):
    observe, still = watch
    model = net(dtype)
    taken(observe, model, OPTIMIZERS[kind](model.parameters()))
    assert "due" not in still().values() and "counter" not in still().values()
    assert [each["taken"] for each in observe.records()] == [1, 1, 1]
    assert observe.records()[0]["held"] == 4


@pytest.mark.parametrize("lr", [0.0, 1e-12])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_no_rate_and_updates_that_are_rounded_away_are_sound(watch, kind, lr):
    observe, still = watch
    for step, dtype in ((0, torch.float32), (10, torch.bfloat16)):
        model = net(dtype)
        options = {"weight_decay": 0.01} if kind is torch.optim.AdamW else {}
        taken(observe, model, kind(model.parameters(), lr=lr, **options))
        without_state = kind is not torch.optim.AdamW and lr > 0
        assert set(still().values()) == ({"undecided"} if without_state else set())


def test_a_warmup_from_nothing_is_sound_wherever_it_is_observed(watch):
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    observe("ready", model=model, optimizer=optimizer)  # before the schedule is there
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 4)
    for step in (1, 2):
        loss_of(model, step).backward()
        optimizer.step()
        schedule.step()
        observe("stepped", model=model, optimizer=optimizer, step=step)
        assert still() == {}
    assert optimizer.param_groups[0]["lr"] > 0


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_is_sound(watch, fused):
    observe, still = watch
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    observe("ready", model=model, optimizer=optimizer)
    for step in range(1, 5):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, step)).backward()
        if step in (2, 4):
            model[0].weight.grad[1, 1] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        observe("stepped", model=model, optimizer=optimizer, step=step)
        assert still() == {}


def test_a_closure_is_sound(watch):
    observe, still = watch
    for make in (torch.optim.LBFGS, torch.optim.SGD):
        model = net()
        optimizer = make(model.parameters(), lr=0.1)

        def closure(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = loss_of(model, 1)
            loss.backward()
            return loss

        observe("ready", model=model, optimizer=optimizer)
        for step in (1, 2):
            optimizer.step(closure)
            observe("stepped", model=model, optimizer=optimizer, step=step)
            assert still() == {}


def test_a_list_with_muon_is_sound(watch):
    observe, still = watch
    model = net()
    optimizers = muon(model)

    class All:
        state = {}
        optimizers = muon(model)

        def step(self):
            for each in self.optimizers:
                each.step()

        def zero_grad(self):
            model.zero_grad()

    both = All()
    taken(observe, model, both)
    assert still() == {} and observe.records()[-1]["taken"] == 1
    assert len(optimizers) == 2


class Branches(nn.Module):
    """Experts of which a step uses one, rows of which it uses a few, a part that is frozen."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.rows = nn.Embedding(40, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, step):
        rows = self.rows(torch.tensor([step % 3]))
        return self.frozen(self.experts[step % 2](rows)).square().mean()


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw", "adagrad", "rmsprop"])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_what_a_step_does_not_use_is_sound(watch, kind, every):
    observe, still = watch
    model = Branches()
    optimizer = OPTIMIZERS[kind](model.parameters())
    observe("ready", model=model, optimizer=optimizer)
    for step in range(1, 9):
        model(step).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % every == 0:
            observe("stepped", model=model, optimizer=optimizer, step=step)
            assert still() == {}, observe.records()[-1]


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_gradients_that_are_gathered_over_steps_are_sound(watch, kind):
    """Observed between two steps, with gradients of the next one."""
    observe, still = watch
    model = Branches()
    optimizer = OPTIMIZERS[kind](model.parameters())
    observe("ready", model=model, optimizer=optimizer)
    for micro in range(1, 13):
        (model(micro // 4) / 4).backward()
        observe("stepped", model=model, optimizer=optimizer, step=micro)
        assert "due" not in still().values(), observe.records()[-1]
        if micro % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


def test_what_a_job_clamps_masks_or_averages_is_sound(watch):
    observe, still = watch
    model = net()
    bound = 1e-3

    def put_back(step):
        with torch.no_grad():
            for each in model.parameters():
                each.clamp_(-bound, bound)
            model[0].weight.mul_(torch.eye(8, 6))

    put_back(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=5.0, momentum=0.9)
    taken(observe, model, optimizer, before_observing=put_back)
    assert "due" not in still().values()


def test_a_clamp_and_a_step_without_a_gradient_are_sound(watch):
    """As those of a critic, when the other model is stepped."""
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    taken(observe, model, optimizer, steps=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.01, 0.01)
    optimizer.zero_grad()
    optimizer.step()
    observe("stepped", model=model, optimizer=optimizer, step=3)
    assert "counter" not in still().values()


def test_what_is_restored_and_done_again_is_sound(watch):
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    taken(observe, model, optimizer, steps=1)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for turn in (2, 3):  # the same step twice, and nobody was told of the load
        loss_of(model, 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        observe("stepped", model=model, optimizer=optimizer, step=turn)
        assert "due" not in still().values()
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])


def test_optimizers_of_ones_own_are_not_accused(watch):
    observe, still = watch

    class Own(torch.optim.AdamW):
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["exp_avg"] = parameter.grad.clone()

    model = net()
    taken(observe, model, Own(model.parameters()), steps=1)
    assert set(still().values()) == {"undecided"}


def test_two_models_in_turn_are_sound(watch):
    """As of a GAN, or of an ensemble: under the same names, each with an optimizer."""
    observe, still = watch
    models = [net(), net()]
    optimizers = [torch.optim.AdamW(model.parameters()) for model in models]
    for step in range(1, 9):
        which = step % 2
        loss_of(models[which], step // 2).backward()
        optimizers[which].step()
        optimizers[which].zero_grad()
        observe("stepped", model=models[which], optimizer=optimizers[which], step=step)
        assert not observe.records() or still() == {}


def test_a_critic_that_is_observed_more_often_is_sound(watch):
    observe, still = watch
    model = nn.ModuleDict({"generator": net(), "critic": net()})
    optimizers = [torch.optim.RMSprop(each.parameters(), lr=0.01) for each in model.values()]
    observe("ready", model=model, optimizer=optimizers)
    for step in range(1, 11):
        for name, optimizer in zip(model, optimizers):
            if name == "critic" or step % 5 == 0:
                loss_of(model[name], step).backward()
                optimizer.step()
            optimizer.zero_grad()
        observe("stepped", model=model, optimizer=optimizers, step=step)
        assert still() == {}
    assert [each["taken"] for each in observe.records()] == [1] * 10


def test_state_that_is_made_anew_is_sound(watch):
    """Every three steps, before or after it is observed."""
    observe, still = watch
    for anew in (0, 1):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())
        observe("ready", model=model, optimizer=optimizer)
        for step in range(1, 13):
            loss_of(model, step).backward()
            optimizer.step()
            if step % 3 == anew:
                optimizer.state.clear()
            if step % 3 == 0:
                observe("stepped", model=model, optimizer=optimizer, step=step)
                assert still() == {}


def test_two_optimizers_that_are_observed_in_turn_are_sound(watch):
    observe, still = watch
    model = net()
    parts = [list(model[0].parameters()), list(model[2].parameters())]
    optimizers = [torch.optim.AdamW(each) for each in parts]
    observe("ready", model=model, optimizer=optimizers[0])
    for step in range(1, 3):
        loss_of(model, step).backward()
        optimizers[0].step()
    observe("stepped", model=model, optimizer=optimizers[1], step=2)
    observe("stepped", model=model, optimizer=optimizers[0], step=3)
    assert observe.records() == []


def test_parts_of_a_tensor_that_is_put_together_are_not_judged(watch):
    from torch.testing._internal.two_tensor import TwoTensor

    observe, still = watch
    model = net()
    value = model[0].weight.detach()
    model[0].weight = nn.Parameter(TwoTensor(value.clone(), value.clone()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observe("ready", model=model, optimizer=optimizer)
    optimizer.step()
    observe("stepped", model=model, optimizer=optimizer, step=1)
    assert still() == {}


def test_a_copy_of_an_optimizer_has_nothing_of_ours(watch):
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    observe("ready", model=model, optimizer=optimizer)
    other = copy.deepcopy(optimizer)
    assert not other._optimizer_load_state_dict_post_hooks
    other.load_state_dict(optimizer.state_dict())


# ---- Mistakes


@pytest.mark.parametrize(
    "kind", ["momentum", "adam", "adamw", "amsgrad", "fused", "rmsprop_momentum"]
)
@pytest.mark.parametrize("every", [1, 3])
def test_a_parameter_that_is_put_back_is_named(watch, kind, every):
    observe, still = watch
    model = net()
    old = model[2].weight.detach().clone()
    optimizer = OPTIMIZERS[kind](model.parameters())
    observe("ready", model=model, optimizer=optimizer)
    for step in range(1, 7):
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model[2].weight.copy_(old)
        if step % every == 0:
            observe("stepped", model=model, optimizer=optimizer, step=step)
            assert still() == {"2.weight": "due"}
    (said,) = observe.records()[-1]["still"]
    assert said["elements"] > 16 and " off " in said["detail"]


def test_without_state_the_gradient_of_the_step_tells(watch):
    observe, still = watch
    for make in (OPTIMIZERS["sgd"], OPTIMIZERS["nesterov"], OPTIMIZERS["adagrad"],
                 OPTIMIZERS["rmsprop"]):  # fmt: skip
        model = net()
        old = model[2].weight.detach().clone()
        optimizer = make(model.parameters())
        observe("ready", model=model, optimizer=optimizer)
        loss_of(model, 1).backward()
        optimizer.step()
        model[2].weight.data.copy_(old)
        observe("stepped", model=model, optimizer=optimizer, step=1)
        assert still() == {"2.weight": "due"}


def test_counters_that_do_not_count_are_named(watch):
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())

    def narrow(step):  # as a checkpoint in bf16 leaves them
        for state in optimizer.state.values():
            state["step"] = torch.tensor(256.0, dtype=torch.bfloat16)

    taken(observe, model, optimizer, steps=2, before_observing=narrow)
    assert set(still().values()) == {"counter"} and len(still()) == 4


def test_a_moment_that_does_not_move_is_named(watch):
    observe, still = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    taken(observe, model, optimizer, steps=1)
    old = optimizer.state[model[0].weight]["exp_avg"].clone()
    loss_of(model, 2).backward()
    optimizer.step()
    optimizer.state[model[0].weight]["exp_avg"].copy_(old)
    observe("stepped", model=model, optimizer=optimizer, step=2)
    assert still() == {"0.weight.exp_avg": "moment"}


class Handing:
    """As a framework wraps an optimizer, under a name of its own."""

    def __init__(self, inner):
        self.inner, self.state, self.param_groups = inner, inner.state, inner.param_groups


@pytest.mark.parametrize("shows", [False, True])
def test_a_step_whose_optimizer_is_not_observed_is_told(watch, shows):
    observe, _ = watch
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    observe("ready", model=model, optimizer=Handing(optimizer))
    loss_of(model, 1).backward()
    optimizer.step()
    observe("stepped", model=model, optimizer=Handing(optimizer) if shows else None, step=1)
    told = [(each["unsure"], each["taken"]) for each in observe.records() if not each["since"]]
    assert told == ([] if shows else [("AdamW", 1)])
