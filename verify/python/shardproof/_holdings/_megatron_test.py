"""What Megatron-LM hangs on its modules, parameters and optimizers, faked."""

import sys
import types

import pytest
import torch
from torch import nn

from shardproof._holdings import _layout, _megatron
from shardproof._holdings._groups import Groups, Statement
from shardproof._holdings._model import read
from shardproof._holdings._optimizer import groups_in, optimizer_tensors, optimizers_in

# tp 2 x dp 2 x pp 2 of eight ranks, as Megatron orders them; of experts tp 1 x dp 2.
RANK = 5
GROUPS = {"tp": [4, 5], "dp": [5, 7], "pp": [1, 5]}
EXPERT_GROUPS = {"tp": [5], "dp": [5, 7]}


class Parallel(types.ModuleType):
    """megatron.core.parallel_state"""

    is_there = True

    def model_parallel_is_initialized(self):
        return self.is_there

    def get_tensor_model_parallel_group(self):
        return GROUPS["tp"]

    def get_pipeline_model_parallel_group(self):
        return GROUPS["pp"]

    def get_data_parallel_group(self, with_context_parallel):
        assert with_context_parallel
        return GROUPS["dp"]

    def get_expert_tensor_parallel_group(self):
        return EXPERT_GROUPS["tp"]

    def get_expert_data_parallel_group(self):
        return EXPERT_GROUPS["dp"]


@pytest.fixture(autouse=True)
def parallel_state(monkeypatch):
    state = Parallel("megatron.core.parallel_state")
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    monkeypatch.setattr(_megatron, "dist", types.SimpleNamespace(
        get_process_group_ranks=list, get_rank=lambda: RANK))  # fmt: skip
    return state


class Layer(nn.Module):
    """One of megatron.core's."""

    def __init__(self, number):
        super().__init__()
        self.layer_number = number
        self.weight, self.norm = nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(3))
        self.weight.tensor_model_parallel, self.weight.partition_dim = True, 0


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


Layer.__module__ = Wrapper.__module__ = "megatron.core.somewhere"


def model():
    return Wrapper(nn.ModuleDict({"layers": nn.ModuleList([Layer(3), Layer(4)])}))


def held(of, **named):
    found = read(of, Statement(rank=RANK, world_size=8, **named))
    return {each.name: each for each in found.tensors}, found


def test_its_groups_are_taken_where_nobody_said_any():
    found, _ = held(model())
    assert found["layers.2.norm"].groups == Groups((5,), (4, 5, 6, 7))
    assert found["layers.3.weight"].groups == Groups((4, 5), (5, 7), (4, 5, 6, 7))
    assert found["layers.3.weight"].shape == (8, 3)


def test_layers_have_their_numbers_in_the_whole_model_and_wrappers_no_name():
    found, _ = held(model())
    assert sorted(found) == [f"layers.{n}.{name}" for n in (2, 3) for name in ("norm", "weight")]
    assert found["layers.2.norm"].unique


class LastStage(Wrapper):
    def __init__(self, shared):
        super().__init__(nn.Linear(3, 4, bias=False))
        self.output_layer = nn.Linear(3, 4, bias=False)
        self.output_layer.weight.shared_embedding = shared


@pytest.mark.parametrize("shared, name", [
    (True, "embedding.word_embeddings.weight"), (False, "output_layer.weight"),
])  # fmt: skip
def test_a_tied_output_layer_has_the_name_of_the_embedding_that_it_is_equal_to(shared, name):
    found, _ = held(LastStage(shared))
    assert name in found


def test_a_list_of_chunks_is_compared_too():
    found, _ = held([model()])
    assert found["layers.2.norm"].groups == Groups((5,), (4, 5, 6, 7))


def test_what_the_caller_says_holds():
    found, _ = held(model(), group=[4, 5])
    assert found["layers.2.norm"].groups == Groups((5,), (4, 5))
    mesh = {"tp": [[4, 5]], "dp": [[0, 1, 2, 3, 4], [5, 6, 7]]}
    found, _ = held(model(), mesh=mesh)
    assert found["layers.2.weight"].groups.alike == (5, 6, 7)


def test_other_models_and_a_megatron_without_groups_change_nothing(parallel_state):
    plain = nn.Linear(2, 2)
    assert held(plain)[0]["weight"].groups == Groups((5,), tuple(range(8)))
    parallel_state.is_there = False
    assert held(model())[0]["layers.2.norm"].groups == Groups((5,), tuple(range(8)))


def test_experts_lie_along_axes_of_their_own():
    expert = model()
    for layer in expert.module["layers"]:
        layer.weight.allreduce = False
    found, _ = held(expert)
    assert found["layers.2.weight"].groups == Groups((5,), (5, 7))
    assert not found["layers.2.weight"].unique


def test_experts_of_ranks_that_nobody_named_are_compared_with_none(parallel_state):
    parallel_state.is_there = False
    expert = nn.Linear(2, 2)
    expert.weight.allreduce = False
    found, _ = held(expert)
    assert found["weight"].groups is None and found["bias"].groups is not None


def test_experts_have_their_numbers_in_the_whole_model():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_local_experts = 2
            self.ep_group = types.SimpleNamespace(rank=lambda: 3)
            self.local_experts = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])

    Experts.__module__ = "megatron.core.transformer"
    assert list(held(Experts())[0]) == ["local_experts.6.weight", "local_experts.7.weight"]


class Distributed:
    """A DistributedOptimizer of the parameters, in one buffer and one bucket at element 0."""

    def __init__(self, parameters, copies=None):
        places, end = {}, 0
        for parameter in parameters:
            places[parameter] = (end, end + parameter.numel(), 0)
            end += parameter.numel()
        bucket = types.SimpleNamespace(offset=0, grad_data=torch.zeros(end + end % 2))
        self.buffers = [types.SimpleNamespace(param_index_map=places, buckets=[bucket])]
        self.data_parallel_group = GROUPS["dp"]
        half = bucket.grad_data.numel() // 2
        mine = {p: max(0, min(end, half) - begin) for p, (begin, end, _) in places.items()}
        mine = {p: count for p, count in mine.items() if count}
        self.model_param_group_index_map = {p: (0, place) for place, p in enumerate(mine)}
        own = [torch.zeros(count, dtype=copies or p.dtype) for p, count in mine.items()]
        self.optimizer = types.SimpleNamespace(param_groups=[{"params": own}])
        self.state = {
            each: {"exp_avg": torch.zeros(len(each)), "step": torch.tensor(1.0)} for each in own
        }
        self.param_groups = self.optimizer.param_groups


class Chained:
    def __init__(self, *optimizers):
        self.chained_optimizers = list(optimizers)

    @property
    def state(self):
        return object()  # Megatron's is a kind of its own


def test_of_a_distributed_optimizer_each_rank_has_stretches():
    whole = model()
    optimizer = Distributed(list(whole.parameters()))  # 12, 3, 12, 3 elements: 15 for each rank
    found = {h.name: h for h in optimizer_tensors(held(whole)[1], Chained(optimizer), RANK)}
    assert sorted(found) == [
        f"layers.2.{name}.{key}" for name in ("norm", "weight") for key in ("exp_avg", "step")
    ]
    moment = found["layers.2.weight.exp_avg"]
    assert (moment.shape, moment.groups) == ((8, 3), Groups((4, 5), (5,)))
    assert found["layers.2.norm.exp_avg"].groups == Groups((5,), (4, 5))  # nothing on rank 7
    assert found["layers.2.norm.step"].groups == Groups((5,), (4, 5))


def test_copies_of_higher_precision_are_state():
    whole = model().to(torch.bfloat16)
    optimizer = Distributed(list(whole.parameters()), copies=torch.float32)
    found = {h.name: h for h in optimizer_tensors(held(whole)[1], optimizer, RANK)}
    assert found["layers.2.weight.main_param"].dtype == torch.float32


def test_a_chain_without_a_mapping_of_state_is_a_container():
    first = Distributed(list(model().parameters()))
    assert optimizers_in(Chained(first)) == [first]


def test_its_groups_have_the_parameters_of_other_ranks_too():
    whole = model()
    parameters = list(whole.parameters())
    (_, own), (options, rest) = groups_in(Distributed(parameters))
    assert [id(each) for each in [*own, *rest]] == [id(each) for each in parameters]
    assert options == {}


def test_a_parameter_of_megatron_fsdp_says_which_stretch_a_rank_has():
    part = types.SimpleNamespace(_local_tensor=torch.zeros(5), megatron_fsdp_slice=slice(3, 8))
    shard, replicate = _layout.Placement("shard"), _layout.Placement("replicate")
    assert _megatron.slice_of(part, [shard, replicate], (4, 2)) == (3, 8)
    assert _megatron.slice_of(part, [shard, shard], (4, 1)) == (3, 8)
    assert _megatron.slice_of(part, [shard, shard], (4, 2)) is None  # two axes cut it
    part._local_tensor = torch.zeros(0)
    assert _megatron.slice_of(part, [shard], (4,)) == (0, 0)
    assert _megatron.slice_of(torch.zeros(5), [shard], (4,)) is None
