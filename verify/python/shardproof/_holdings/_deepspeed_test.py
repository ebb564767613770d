"""What DeepSpeed's ZeRO optimizers have, and hang on parameters, faked."""

import enum
import sys
import types

import pytest
import torch
from torch import nn

from shardproof._holdings import _deepspeed
from shardproof._holdings._groups import Groups, Statement
from shardproof._holdings._layout_test import elements_of
from shardproof._holdings._model import read
from shardproof._holdings._optimizer import groups_in, optimizer_tensors

RANK, RANKS = 1, [0, 1]


@pytest.fixture(autouse=True)
def ranks(monkeypatch):
    monkeypatch.setattr(_deepspeed, "dist", types.SimpleNamespace(
        get_process_group_ranks=list, get_rank=lambda: RANK))  # fmt: skip


class Status(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2


def held(model):
    return read(model, Statement(rank=RANK, world_size=2))


def state_of(model, optimizer):
    return {h.name: h for h in optimizer_tensors(held(model), optimizer, RANK)}


def net():
    return nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 3, bias=False))


class Flat:
    """DeepSpeedZeroOptimizer of stage 1 or 2: parameters are views of one flat tensor."""

    def __init__(self, parameters):
        flat = torch.arange(18.0)  # 8, 2 and 6 elements, and padding: 9 for each rank
        at = 0
        for parameter in parameters:
            parameter.data = flat[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        own = torch.arange(9.0, 18.0)
        self.bit16_groups, self.bit16_groups_flat = [parameters], [flat]
        self.single_partition_of_fp32_groups = [own]
        self.real_dp_process_group = [RANKS]
        self.state = {own: {"exp_avg": own + 100, "step": torch.tensor(2.0)}}
        self.optimizer = types.SimpleNamespace(state=self.state)
        self.param_groups = [{"params": [own]}]


def test_of_stages_1_and_2_a_rank_has_stretches_of_parameters():
    model = net()
    found = state_of(model, Flat(list(model.parameters())))
    keys = ("exp_avg", "main_param", "step")
    assert sorted(found) == [f"{n}.{key}" for n in ("0.bias", "1.weight") for key in keys]
    bias = found["0.bias.exp_avg"]
    assert (elements_of(bias.runs), bias.local.tolist()) == ([1], [109])
    assert bias.groups == Groups((0, 1), (1,), (0, 1))
    weight = found["1.weight.exp_avg"]
    assert weight.local.tolist() == [110, 111, 112, 113, 114, 115]
    assert weight.groups == Groups((1,), (1,))  # rank 0 has no element of it
    assert found["0.bias.step"].groups.alike == (0, 1)


class AcceleratedOptimizer(torch.optim.Optimizer):
    """Accelerate's, which has its own way with each engine."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.state, self.param_groups = optimizer.state, optimizer.param_groups


class DeepSpeedOptimizerWrapper(AcceleratedOptimizer):
    pass


def test_in_accelerates_wrapper_it_is_cut_as_by_itself():
    model = net()
    parameters = list(model.parameters())
    wrapper = DeepSpeedOptimizerWrapper(Flat(parameters))
    assert sorted(state_of(model, wrapper)) == sorted(state_of(model, wrapper.optimizer))
    assert [held for _, held in groups_in(wrapper)] == [parameters]


def test_a_group_that_is_not_being_stepped_now_has_no_options():
    parameters = list(net().parameters())
    optimizer = Flat(parameters[:2])
    other = torch.zeros(3)
    optimizer.bit16_groups.append(parameters[2:])
    optimizer.single_partition_of_fp32_groups.append(other)
    shown = {"params": [other], "lr": 0.1}
    optimizer.param_groups = [shown]
    assert _deepspeed.groups_of(optimizer) == [({}, parameters[:2]), (shown, parameters[2:])]


class Experts(nn.Module):
    """One of deepspeed.moe's, with experts 2 and 3 of four."""

    def __init__(self):
        super().__init__()
        self.deepspeed_experts, self.num_local_experts = nn.ModuleList([net(), net()]), 2
        for parameter in self.parameters():
            parameter.allreduce, parameter.group_name = False, "ep_size_2"


Experts.__module__ = "deepspeed.moe.experts"


def test_experts_have_their_numbers_and_their_group(monkeypatch):
    groups = types.ModuleType("deepspeed.utils.groups")
    groups._get_expert_parallel_group_dict = lambda: {"ep_size_2": [0, RANK]}
    groups._get_expert_data_parallel_group_dict = lambda: {"ep_size_2": [RANK, 3]}
    monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", groups)
    found = {each.name: each for each in held(Experts()).tensors}
    assert found["deepspeed_experts.3.0.bias"].groups == Groups((RANK,), (RANK, 3))
    assert "deepspeed_experts.0.0.bias" not in found


class Partitioned:
    """DeepSpeedZeroOptimizer_Stage3."""

    def __init__(self, parameters, kept=()):
        own, at = torch.arange(50.0), 0
        self.fp16_groups, self.fp32_partitioned_groups_flat = [parameters], [own]
        self.grad_position, self.sub_group_to_group_id = {}, {0: 0}
        for parameter in parameters:
            part = -(-parameter.numel() // 2)
            padded = nn.functional.pad(parameter.data.reshape(-1), (0, 2 * part))
            parameter.ds_numel, parameter.ds_shape = parameter.numel(), parameter.shape
            parameter.ds_tensor = padded[RANK * part : (RANK + 1) * part]
            parameter.ds_tensor.ds_numel = part
            parameter.ds_process_group, parameter.ds_status = RANKS, Status.AVAILABLE
            if not any(parameter is each for each in kept):
                parameter.ds_status = Status.NOT_AVAILABLE
                parameter.data = torch.empty(0)
            self.grad_position[id(parameter)] = [0, at, part]
            at += part
        self.state = {own: {"exp_avg": own + 100, "step": torch.tensor(2.0)}}
        self.optimizer = types.SimpleNamespace(state=self.state)
        self.param_groups = [{"params": [own]}]

    def get_param_id(self, parameter):
        return id(parameter)


def test_of_stage_3_a_rank_has_a_stretch_of_the_parameter_itself():
    model = nn.Linear(3, 3)
    values = model.weight.detach().reshape(-1).clone()
    found = state_of(model, Partitioned(list(model.parameters()), kept=[model.bias]))
    own = {each.name: each for each in held(model).tensors}
    weight = own["weight"]
    assert (weight.shape, elements_of(weight.runs)) == ((3, 3), [5, 6, 7, 8])  # padded by one
    assert torch.equal(weight.local, values[5:])
    assert weight.groups == Groups((0, 1), (1,))
    assert (own["bias"].shape, own["bias"].groups) == ((3,), Groups((1,), (0, 1)))
    assert elements_of(found["weight.exp_avg"].runs) == [5, 6, 7, 8]
    assert found["weight.exp_avg"].groups == Groups((0, 1), (1,))
    assert (elements_of(found["bias.exp_avg"].runs), found["bias.exp_avg"].local.tolist()) == (
        [2], [105],
    )  # fmt: skip


def test_a_part_that_is_not_in_memory_is_told():
    model = nn.Linear(3, 3, bias=False)
    Partitioned(list(model.parameters()))
    model.weight.ds_tensor.data = torch.empty(0)
    (weight,) = held(model).tensors
    assert weight.unreadable == "its part is not in memory"


def test_an_engine_gives_no_name():
    class Engine(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)

    Engine.__module__ = "deepspeed.runtime.engine"
    assert [each.name for each in held(Engine()).tensors] == ["bias", "weight"]


def test_groups_have_the_models_parameters():
    model, other = net(), nn.Linear(3, 3)
    ((_, own),) = groups_in(Flat(list(model.parameters())))
    assert [id(each) for each in own] == [id(each) for each in model.parameters()]
    ((_, own),) = groups_in(Partitioned(list(other.parameters())))
    assert [id(each) for each in own] == [id(each) for each in other.parameters()]
