"""The round trip that `shardproof verify --generate` runs, as PyTorch's own tests would have it.

One MultiProcessTestCase a model: 4 ranks over Gloo load a full state dict into FSDP2's shards, save it with
torch.distributed.checkpoint, load it into a fresh model and compare every shard. Run by cases.py.
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
from torch.testing._internal.common_distributed import MultiProcessTestCase
from torch.testing._internal.common_utils import run_tests

CASES = int(os.environ.get("ROUND_TRIP_CASES", "3"))


def model_of(case, seed):
    """A small model of another shape for every case, with the initial values of the seed."""
    torch.manual_seed(seed)
    width = 3 + case % 7
    return torch.nn.Sequential(torch.nn.Linear(width, 9), torch.nn.LayerNorm(9), torch.nn.Linear(9, width))


class RoundTrip(MultiProcessTestCase):
    @property
    def world_size(self):
        return 4

    def setUp(self):
        super().setUp()
        self._spawn_processes()

    def check(self, case):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        mesh = init_device_mesh("cpu", (self.world_size,))
        source = model_of(case, 0).state_dict()
        model = fully_shard(model_of(case, 1), mesh=mesh)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        # A copy: on rank 0 its values are replaced by shards.
        set_model_state_dict(model, dict(source) if self.rank == 0 else {}, options=options)
        directory = os.path.join(tempfile.gettempdir(), os.path.basename(self.file_name) + ".saved")
        dcp.save(get_model_state_dict(model), checkpoint_id=directory)
        restored = fully_shard(model_of(case, 2), mesh=mesh)
        state = get_model_state_dict(restored)
        dcp.load(state, checkpoint_id=directory)
        set_model_state_dict(restored, state)
        for name, tensor in restored.state_dict().items():
            full = tensor.full_tensor()
            assert torch.equal(full, source[name]), name
        dist.destroy_process_group()


for number in range(CASES):
    setattr(RoundTrip, f"test_{number}", lambda self, number=number: self.check(number))

if __name__ == "__main__":
    sys.exit(run_tests())
