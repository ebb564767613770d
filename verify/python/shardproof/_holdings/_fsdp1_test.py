"""FSDP1 in a world of this process alone, which is enough for it to be flat."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from shardproof._holdings import _model, _optimizer


@pytest.fixture(autouse=True)
def world(tmp_path):
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def stepped(model, flat):
    model = FullyShardedDataParallel(
        model, use_orig_params=not flat, sharding_strategy=ShardingStrategy.NO_SHARD,
        device_id=torch.device("cpu"),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, 4, 4)).sum().backward()
    optimizer.step()
    read = _model.read(model)
    held = {each.name: each for each in read.tensors}
    return held | {each.name: each for each in _optimizer.optimizer_tensors(read, optimizer, 0)}


@pytest.mark.parametrize("flat", [False, True])
def test_memory_in_another_order_is_not_read(flat):
    model = nn.Conv2d(3, 3, 3).to(memory_format=torch.channels_last)
    held = stepped(model, flat)
    for name in ("weight", "weight.exp_avg"):
        assert held[name].local is None and "channels_last" in held[name].unreadable
        assert held[name].shape == (3, 3, 3, 3)
    assert held["bias"].local is not None and held["bias.exp_avg"].local is not None


@pytest.mark.parametrize("flat", [False, True])
def test_memory_in_its_order_is_read(flat):
    model = nn.Conv2d(3, 3, 3)
    expected = model.weight.detach().clone()
    held = stepped(model, flat)
    assert held["weight"].local.shape == expected.shape
    assert held["weight.exp_avg"].local.numel() == expected.numel()
    assert not any(each.unreadable for each in held.values())
