import pytest
import torch
from torch import nn

from shardproof._holdings import _options
from shardproof._holdings._groups import Statement
from shardproof._holdings._holding import Holding, alias_groups, bytes_of
from shardproof._holdings._layout import Run
from shardproof._holdings._model import read, state_dict_tensors, tensors_of
from shardproof._holdings._optimizer import optimizer_tensors
from shardproof._holdings._record import parameter_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(3, 2)
        self.a = nn.Linear(3, 2, bias=False)
        self.register_buffer("kept", torch.arange(3))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.register_buffer("none", None)


def by_name(model):
    return {held.name: held for held in tensors_of(model)}


def test_parameters_and_buffers_in_byte_order_of_their_names():
    assert [held.name for held in tensors_of(Net())] == [
        "a.weight", "b.bias", "b.weight", "kept", "passing",
    ]  # fmt: skip
    letters = nn.ParameterDict({name: torch.zeros(1) for name in ("é", "a", "Zb")})
    assert [held.name for held in tensors_of(letters)] == ["Zb", "a", "é"]


def test_what_is_told_of_one():
    model = Net()
    model.a.weight.requires_grad_(False)
    held = by_name(model)
    assert (held["kept"].kind, held["kept"].persistent, held["kept"].dtype) == (
        "buffer", True, torch.int64,
    )  # fmt: skip
    assert not held["passing"].persistent
    assert not held["a.weight"].requires_grad and held["b.weight"].requires_grad
    assert held["a.weight"].shape == (2, 3) and held["a.weight"].runs == [Run(0, 6)]
    assert held["a.weight"].owner is model.a.weight


def test_what_users_hang_on_a_parameter_is_kept():
    model = Net()
    model.a.weight.sequence_parallel = True
    model.a.weight._hidden = 1
    model.a.weight.callback = print
    assert by_name(model)["a.weight"].attributes == {"sequence_parallel": "True"}


def test_a_tensor_on_meta_is_said_to_be():
    held = by_name(nn.Linear(2, 2, device="meta"))["weight"]
    assert held.is_meta and held.device == "meta" and not held.unreadable


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.zeros(2, 2).to_sparse(), "sparse"),
        (lambda: torch.complex(torch.ones(2), torch.ones(2)).conj(), "conjugate"),
        (lambda: nn.UninitializedBuffer(), "lazy"),
    ],
)
def test_what_has_no_plain_memory_is_unreadable_and_says_why(make, said):
    model = nn.Module()
    model.register_buffer("x", make())
    held = by_name(model)["x"]
    assert held.local is None and said in held.unreadable


def test_memory_that_was_freed_is_told():
    model = nn.Linear(4, 4)
    model.weight.untyped_storage().resize_(0)
    assert by_name(model)["weight"].unreadable == "its memory was freed"


def test_names_of_wrappers_are_left_out():
    inner = nn.Linear(1, 1)
    checkpointed, compiled = nn.Module(), nn.Module()
    checkpointed._checkpoint_wrapped_module = inner
    compiled._orig_mod = checkpointed
    top = nn.ModuleDict({"layer": compiled, "module": nn.Linear(1, 1, bias=False)})
    assert list(by_name(top)) == ["layer.bias", "layer.weight", "module.weight"]


def test_tensors_that_share_memory_have_one_group_others_their_own():
    model = Net()
    model.a.weight = model.b.weight
    whole = torch.zeros(10)
    for name, part in (("v1", whole[:5]), ("v2", whole[5:]), ("v3", whole[4:6])):
        model.register_buffer(name, part)
    groups = alias_groups(tensors_of(model))
    assert groups["a.weight"] == groups["b.weight"] != groups["b.bias"]
    assert groups["v1"] == groups["v2"] == groups["v3"]  # by way of v3
    del model.v3
    groups = alias_groups(tensors_of(model))
    assert groups["v1"] != groups["v2"]


def test_groups_are_numbered_in_the_order_of_names():
    assert list(alias_groups(tensors_of(Net())).values()) == [0, 1, 2, 3, 4]


def test_bytes_of_a_stretch_and_those_that_touch_are_joined():
    tensor = torch.arange(8, dtype=torch.uint8)
    held = Holding("x", "buffer", tensor.dtype, (16,), tensor, [], tensor)
    held.runs = [Run(0, 2, 2, 8, 0, 2), Run(2, 4, local_start=4)]
    assert bytes_of(held, 0, 16) == [(0, bytes([0, 1, 4, 5, 6, 7])), (8, bytes([2, 3]))]
    assert bytes_of(held, 1, 3) == [(1, bytes([1, 4]))]
    assert bytes_of(held, 9, 16) == [(9, bytes([3]))]
    assert bytes_of(held, 6, 8) == []


def test_bytes_are_counted_in_bytes_whatever_the_dtype():
    tensor = torch.tensor([1, 256], dtype=torch.int16)
    held = Holding("x", "buffer", tensor.dtype, (2,), tensor, [Run(0, 2)], tensor)
    assert bytes_of(held, 1, 4) == [(1, bytes([0, 0, 1]))]


def test_a_state_dict_keeps_its_tensors_only():
    state = {"b": torch.zeros(1), "a": torch.ones(2), "step": 3, 4: torch.zeros(1)}
    assert [held.name for held in state_dict_tensors(state, Statement())] == ["a", "b"]


def test_optimizer_state_is_named_by_the_parameter():
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = optimizer_tensors(read(model), optimizer, 0)
    assert [held.name for held in found] == ["weight.exp_avg", "weight.exp_avg_sq", "weight.step"]
    assert found[0].shape == (2, 2)


def test_state_of_a_parameter_that_the_model_does_not_have_is_told():
    stranger = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([stranger], momentum=0.9)
    stranger.sum().backward()
    optimizer.step()
    (held,) = optimizer_tensors(read(nn.Linear(1, 1)), optimizer, 0)
    assert held.name == "<parameter 0, not of the model>.momentum_buffer"


def test_state_of_what_an_optimizer_no_longer_steps_is_left_out():
    model, before = nn.Linear(2, 2, bias=False), nn.Parameter(torch.ones(2, 2))
    optimizer = torch.optim.Adagrad([before])  # has its state from the start
    optimizer.param_groups[0]["params"] = list(model.parameters())
    assert optimizer.state and optimizer_tensors(read(model), optimizer, 0) == []


class Projector:
    """What an optimizer may keep in its state: an object with a tensor, and a way to others."""

    def __init__(self, optimizer):
        self.rank, self.matrix, self.optimizer = 2, torch.ones(2, 2), optimizer


def test_optimizer_state_may_lie_in_arrays_and_objects_and_be_of_no_parameter():
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters())
    memory = torch.ones(2).numpy()
    memory.flags.writeable = False
    optimizer.state[model.weight] = {"projector": Projector(optimizer), "moved": memory}
    optimizer.state["all"] = {"norm": torch.ones(1)}
    assert [held.name for held in optimizer_tensors(read(model), optimizer, 0)] == [
        "<all>.norm", "weight.moved", "weight.projector[matrix]",
    ]  # fmt: skip


def test_two_optimizers_of_one_parameter_have_state_and_options_of_their_own():
    model = nn.Linear(2, 2, bias=False)
    both = [torch.optim.Adam(model.parameters(), lr=0.5), torch.optim.Adam(model.parameters())]
    for optimizer in both:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    second = "weight.<optimizer 2 of 2, Adam>"
    assert [held.name for held in optimizer_tensors(read(model), both, 0)] == [
        f"{of}.{name}" for of in (second, "weight") for name in ("exp_avg", "exp_avg_sq", "step")
    ]
    assert parameter_of(f"optimizer.{second}.step") == "weight"
    told = _options.held_of(read(model), both, Statement())
    assert told["weight.options"].local[0] == 0.5 and told[f"{second}.options"].local[0] == 0.001


def test_a_number_with_a_fraction_that_an_optimizer_keeps_may_be_a_ranks_own():
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.state[model.weight] = {"prev_loss": 0.5, "n_iter": 3}
    held = {each.name: each for each in optimizer_tensors(read(model), optimizer, 0, True)}
    assert held["weight.prev_loss"].drifts and not held["weight.n_iter"].drifts
    assert optimizer_tensors(read(model), optimizer, 0) == []


def test_counts_of_each_ranks_own_tokens_may_drift():
    model = nn.Module()
    model.register_buffer("local_tokens_per_expert", torch.zeros(4), persistent=False)
    model.register_buffer("expert_bias", torch.zeros(4))
    held = by_name(model)
    assert held["local_tokens_per_expert"].drifts and not held["expert_bias"].drifts


class ObserverBase(nn.Module):
    """Named as that of torch.ao and of torchao."""

    def __init__(self):
        super().__init__()
        self.register_buffer("min_val", torch.tensor(torch.inf))
        self.register_buffer("scale", torch.tensor([1.0, torch.inf]))
        self.register_buffer("eps", torch.tensor(1e-6))


class Observer(ObserverBase):
    pass


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("step", torch.tensor(0))


def test_a_buffer_that_is_assigned_anew_may_be_a_statistic():
    model = Mean()
    assert not by_name(model)["mean"].accumulates
    assert not by_name(model)["mean"].accumulates
    model.mean, model.step = 0.9 * model.mean, model.step + 1
    held = by_name(model)
    assert held["mean"].accumulates and not held["step"].accumulates


@pytest.mark.parametrize(
    ("counts", "can_be_one"),
    [
        (torch.zeros(4, dtype=torch.int64), True),
        (torch.zeros(4, dtype=torch.int32), True),
        (torch.zeros(1, dtype=torch.int64), False),  # a place in a queue
        (torch.zeros((), dtype=torch.int64), False),  # a number of steps
        (torch.zeros(4, dtype=torch.uint8), False),  # codes
        (torch.zeros(4, dtype=torch.bool), False),
    ],
)
def test_several_counts_that_are_added_to_may_be_a_statistic(counts, can_be_one):
    model = nn.Module()
    model.register_buffer("seen", counts)
    assert not by_name(model)["seen"].accumulates
    for _ in range(2):
        counts |= torch.ones_like(counts)
    assert by_name(model)["seen"].accumulates == can_be_one


def test_a_buffer_that_is_loaded_with_the_parameters_is_none():
    model = Mean()
    by_name(model)
    model.load_state_dict(Mean().state_dict(), assign=True)
    assert not by_name(model)["mean"].accumulates
    model.double()
    assert not by_name(model)["mean"].accumulates


def test_what_an_observer_has_seen_may_drift_and_is_infinite_at_first():
    held = by_name(Observer())
    assert held["min_val"].drifts and held["scale"].drifts and not held["eps"].drifts
    assert held["min_val"].may_be_infinite() and not held["scale"].may_be_infinite()
    assert not by_name(nn.BatchNorm1d(2))["running_var"].is_range


def test_what_is_made_of_0_and_inf_alone_is_a_mask_however_often_it_was_written():
    model = nn.Module()
    mask = torch.zeros(3, 3).masked_fill_(torch.ones(3, 3).triu(1).bool(), -torch.inf)
    model.register_buffer("mask", mask.mul_(1))
    scores = torch.zeros(3).add_(1).copy_(torch.tensor([-torch.inf, 0.5, 0]))
    model.register_buffer("scores", scores)
    held = by_name(model)
    assert held["mask"].accumulates and held["mask"].may_be_infinite()
    assert held["scores"].accumulates and not held["scores"].may_be_infinite()


def test_state_that_is_no_mapping_has_its_tensors():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.state[model.weight] = [torch.ones(2, 2), 3]
    optimizer.state[model.bias] = torch.ones(2)
    names = [held.name for held in optimizer_tensors(read(model), optimizer, 0)]
    assert names == ["bias.state", "weight.state[0]"]
