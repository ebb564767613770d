"""Tensors on a part of the job's mesh: what other parts hold under the same name is compared if
`mesh` says so, and told to be not compared else. Four ranks, dp 2 x tp 2."""

import contextlib
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard

from shardproof._checking._check import check
from shardproof._checking._ranks_test import DEADLINE, alike, run
from shardproof._judging._judge import APART

CPU = torch.device("cpu")
AXES = {"dp": [[0, 2], [1, 3]], "tp": [[0, 1], [2, 3]]}


def mesh_of(kind):
    root = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if kind == "slice":
        return root, root["tp"]
    for ranks in AXES["tp"]:  # new_group is called by all
        made = DeviceMesh("cpu", ranks, mesh_dim_names=("inner",) if kind == "named" else None)
        own = made if dist.get_rank() in ranks else locals().get("own")
    return AXES, own


def on_submesh(rank, root, mesh, drift, told):
    part = torch.arange(8.0).reshape(4, 2).chunk(2)[rank % 2].clone()
    norm, router = torch.ones(3), torch.ones(2)
    if drift and rank == 3:
        {"part": part, "norm": norm, "router": router}[drift].view(-1)[1] += 1
    live = nn.Module()
    live.part = nn.Parameter(DTensor.from_local(part, mesh, [Shard(0)], run_check=False))
    live.router = nn.Parameter(DTensor.from_local(router, mesh, [Replicate()], run_check=False))
    live.norm = nn.Parameter(norm)
    try:
        outcome = check(live, deadline=DEADLINE, **({"mesh": root} if told else {}))
    except AssertionError as error:
        return str(error).splitlines()[0].split(", on")[0]
    return outcome.inconclusive


DRIFTS = (None, "part", "norm", "router")


def job(rank, kind):
    root, mesh = mesh_of(kind)
    found = {(drift, told): on_submesh(rank, root, mesh, drift, told)
             for drift in DRIFTS for told in (False, True)}  # fmt: skip
    return tuple(found.items())


@pytest.mark.parametrize("kind", ["slice", "named", "unnamed"])
def test_what_lies_apart_is_compared_if_the_mesh_says_so_and_else_told_to_be_not(kind):
    found = dict(alike(run(partial(job, kind=kind), 4), range(4)))
    for drift, element in (("part", 5), ("norm", 1), ("router", 1)):
        expected = f"shardproof.check: {drift} on rank 3: element {element} is 0x"
        assert found[drift, True].startswith(expected), found
    assert found[None, True] == ()
    apart = (f"norm and 2 more ({APART})",)
    assert found[None, False] == found["part", False] == apart
    for drift in ("norm", "router"):  # which differ from rank 2, on the same mesh
        assert found[drift, False].startswith(f"shardproof.check: {drift} on rank 3: element 1 is")


def flat(rank):
    """Two models of FSDP1, over two ranks each, with a buffer of their own."""
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    torch.manual_seed(rank // 2)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model.register_buffer("scale", torch.rand(3))
    wrapped = FullyShardedDataParallel(model, process_group=groups[rank // 2], device_id=CPU)
    check(wrapped, deadline=DEADLINE)
    with torch.no_grad():
        model.scale += rank == 3
    with contextlib.suppress(AssertionError):
        check(wrapped, deadline=DEADLINE)
        return "nothing"
    return "told"


def test_a_buffer_beside_flat_parameters_is_of_their_ranks():
    assert alike(run(flat, 4), range(4)) == "told"


def flat_and_padded(rank):
    model = FullyShardedDataParallel(nn.Linear(5, 1, bias=False), device_id=CPU)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 5)).sum().backward()
    optimizer.step()
    check(model, optimizer=optimizer, deadline=DEADLINE)
    return tuple(tuple(each.shape) for each in optimizer.state_dict()["state"][0].values())


def test_state_of_one_parameter_that_fills_a_flat_one_is_cut_as_it_is():
    assert alike(run(flat_and_padded, 2), range(2)) == ((), (3,), (3,))  # with what fills it up
