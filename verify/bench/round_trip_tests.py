"""The round trip that `shardproof verify --generate` runs, as PyTorch's own tests would have it.

Ranks over Gloo (4) load a full state dict into FSDP2's shards, save it with
torch.distributed.checkpoint, load it into a fresh model and compare every shard; each test has
another model. Run by cases.py and pytest_plugin.py:

    round_trip_tests.py Continuous    one MultiProcContinuousTest: its ranks are started once
    round_trip_tests.py Spawned       one MultiProcessTestCase: its ranks are started for each test
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.common_distributed import MultiProcContinuousTest, MultiProcessTestCase
from torch.testing._internal.common_utils import run_tests

CASES = int(os.environ.get("ROUND_TRIP_CASES", "3"))
WORLD = int(os.environ.get("ROUND_TRIP_WORLD", "4"))


def model_of(case, seed):
    """A small model of another shape for every case, with the initial values of the seed."""
    torch.manual_seed(seed)
    width = 3 + case % 7
    return torch.nn.Sequential(
        torch.nn.Linear(width, 9), torch.nn.LayerNorm(9), torch.nn.Linear(9, width)
    )


def round_trip(case, rank, directory):
    mesh = init_device_mesh("cpu", (WORLD,))
    source = model_of(case, 0).state_dict()
    model = fully_shard(model_of(case, 1), mesh=mesh)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    # A copy: on rank 0 its values are replaced by shards.
    set_model_state_dict(model, dict(source) if rank == 0 else {}, options=options)
    dcp.save(get_model_state_dict(model), checkpoint_id=directory)
    restored = fully_shard(model_of(case, 2), mesh=mesh)
    state = get_model_state_dict(restored)
    dcp.load(state, checkpoint_id=directory)
    set_model_state_dict(restored, state)
    for name, tensor in restored.state_dict().items():
        full = tensor.full_tensor()
        assert torch.equal(full, source[name]), name


def directory_beside(name, case):
    return os.path.join(tempfile.gettempdir(), f"{os.path.basename(name)}.saved-{case}")


class Continuous(MultiProcContinuousTest):
    world_size = WORLD
    device_type = "cpu"

    @classmethod
    def backend_str(cls):
        return "gloo"

    def check(self, case):
        round_trip(case, self.rank, directory_beside(f"continuous-{os.getppid()}", case))


class Spawned(MultiProcessTestCase):
    @property
    def world_size(self):
        return WORLD

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def check(self, case):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        round_trip(case, self.rank, directory_beside(self.file_name, case))
        dist.destroy_process_group()


for kind in (Continuous, Spawned):
    for number in range(CASES):
        setattr(kind, f"test_{number}", lambda self, number=number: self.check(number))

if __name__ == "__main__":
    sys.exit(run_tests())
