"""What a wrapper keeps equal, and which buffers of a DDP were put anew since its last forward pass
began."""

import torch
from torch import nn
from torch.distributed._composable import replicate

from shardproof._holdings._replicas import buffers_anew, parameters_alike


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("table", torch.zeros(2))


def wrapped(module):
    """As a DDP is after a forward pass, without ranks."""
    ddp = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(ddp)
    ddp.module = module
    ddp._module_parameters = list(module.parameters())
    ddp.named_module_buffers = dict(module.named_buffers())
    return ddp


def test_a_buffer_that_is_another_object_of_the_same_kind_was_put_anew():
    ddp = wrapped(Net())
    assert buffers_anew(ddp.modules()) == set()
    ddp.module.mean = 0.9 * ddp.module.mean
    ddp.module.table = torch.zeros(3)  # another table, and no statistic
    assert buffers_anew(nn.ModuleList([ddp]).modules()) == {id(ddp.module.mean)}


def test_a_model_that_was_loaded_has_none():
    ddp = wrapped(Net())
    ddp.module.load_state_dict(Net().state_dict(), assign=True)
    assert ddp.module.mean is not ddp.named_module_buffers["mean"]
    assert buffers_anew(ddp.modules()) == set()


def test_what_nothing_wraps_has_none():
    assert buffers_anew(Net().modules()) == set()


def test_replicate_keeps_equal_what_it_was_not_told_to_ignore():
    """Before its first forward pass, at which a DDP is made."""
    model = nn.ModuleDict({"shared": nn.Linear(2, 2), "own": nn.Linear(2, 2)})
    replicate(model, ignored_modules=[model["own"]])
    assert [name for name, _ in parameters_alike(model)] == ["shared.weight", "shared.bias"]
