"""Forward passes that communicate with other ranks."""

import types

import pytest

from . import _talks


def asked_by(*modules):
    """What is told of a collective that functions of these modules ask for, the last one first."""
    call = _talks.who
    for name in reversed(modules):
        scope = {"__name__": name, "inner": call}
        exec("def asks():\n    return inner()", scope)
        call = scope["asks"]
    return call()


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        (("user", "torch.distributed.nn.functional", "torch.autograd.function"), "asks"),
        (("torch.nn.parallel.distributed", "user", "torch.distributed.distributed_c10d"), "asks"),
        (("user", "torch.nn.modules._functions", "torch.distributed.c10d_logger"), "asks"),
        (("user", "torch.nn.parallel.distributed", "torch.distributed.distributed_c10d"), ""),
        (("user", "torch.nn.parallel.distributed", "torch._compile"), ""),
        (("torch.nn.parallel.distributed", "torch.nn.modules._functions", "torch._ops"), "asks"),
        (("user", "torch.distributed.fsdp._fully_shard", "torch.distributed.distributed_c10d"), ""),
    ],
)
def test_who_asks_for_a_collective(modules, said):
    assert asked_by(*modules) == said


@pytest.mark.parametrize(
    ("talks", "mesh", "is_told"),
    [("", {"dp_shard": 2}, False), ("SyncBN.forward", {"dp_shard": 2}, True),
     ("Row.forward", {"dp_shard": 2, "tp": 2}, False)],
)  # fmt: skip
def test_along_other_axes_than_those_of_data_ranks_have_one_batch(talks, mesh, is_told):
    batch = types.SimpleNamespace(talks=talks, case={"mesh": mesh})
    assert bool(_talks.told([[(batch, {})]])) == is_told
