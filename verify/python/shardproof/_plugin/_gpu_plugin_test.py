"""The pytest plugin on ranks that have a GPU: over NCCL, and over Gloo where they share it."""

import pytest
import torch

from shardproof._plugin._outcomes_plugin_test import run

if not torch.cuda.is_available():
    pytest.skip("skipped: there is no GPU", allow_module_level=True)

TESTS = """
import math
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import shardproof as package

def trained(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Linear(64, 3)).to(device)
    fully_shard(model, mesh=init_device_mesh("cuda", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 40, device=device)).sum().backward()
    optimizer.step()
    return model, optimizer

@pytest.mark.shardproof(world=1, backend="nccl")
class TestNccl:
    def test_a_group(self):
        assert dist.get_backend() == "nccl"
        total = torch.ones(3, device="cuda")
        dist.all_reduce(total)
        assert total.tolist() == [1, 1, 1]

    def test_a_trained_model(self, shardproof):
        model, optimizer = trained("cuda")
        assert package.check(model, optimizer=optimizer).inconclusive == ()

    def test_a_nan(self, shardproof):
        model, _ = trained("cuda")
        with torch.no_grad():
            model[1].weight.to_local()[0, 5] = math.nan
        shardproof.check(model)


@pytest.mark.shardproof(world=64, backend="nccl")
def test_more_ranks_than_gpus():
    raise AssertionError

@pytest.mark.shardproof(world=2)
class TestShared:
    def test_a_model_on_a_shared_gpu(self, shardproof):
        model, optimizer = trained("cuda:0")
        assert package.check(model, optimizer=optimizer).inconclusive == ()

    def test_one_element(self, shardproof):
        scale = torch.nn.Parameter(torch.ones(9, device="cuda:0"))
        model = torch.nn.ParameterDict({"scale": scale})
        with torch.no_grad():
            scale[4] += dist.get_rank()
        shardproof.check(model)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return run(tmp_path_factory.mktemp("gpu"), TESTS, seconds=240)


@pytest.mark.parametrize(
    "name", ["test_a_group", "test_a_trained_model", "test_a_model_on_a_shared_gpu"]
)
def test_passes(ran, name):
    ran.is_told(name, "passed")


def test_names_a_nan_on_a_gpu(ran):
    ran.is_told("test_a_nan", "failure", "1.weight on rank 0: 1 NaN and 0 Inf")


def test_names_the_element_of_a_rank_that_shares_the_gpu(ran):
    ran.is_told("test_one_element", "failure", "scale on rank 1: element 4 is 0x40000000")


def test_more_ranks_than_gpus_are_skipped(ran):
    ran.is_told("test_more_ranks_than_gpus", "skipped", "backend nccl needs 64 GPUs")
