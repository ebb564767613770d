"""Tensors on a part of the job's mesh: what other parts hold under the same name is compared if
`mesh` says so, and told to be not compared else. Four ranks, dp 2 x tp 2."""

from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from shardproof._check import check
from shardproof._judge import APART
from shardproof._ranks_test import DEADLINE, alike, run

AXES = {"dp": [[0, 2], [1, 3]], "tp": [[0, 1], [2, 3]]}


def mesh_of(kind):
    root = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    if kind == "slice":
        return root, root["tp"]
    for ranks in AXES["tp"]:  # new_group is called by all
        made = DeviceMesh("cpu", ranks, mesh_dim_names=("inner",) if kind == "named" else None)
        own = made if dist.get_rank() in ranks else locals().get("own")
    return AXES, own


def job(rank, kind, drift, told, optimizer=False):
    root, mesh = mesh_of(kind)
    whole = torch.arange(8.0).reshape(4, 2)
    part = whole.chunk(2)[rank % 2].clone()
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


KINDS = ("slice", "named", "unnamed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drift", [None, "part", "norm"])
def test_without_a_mesh_what_lies_apart_is_told_to_be_not_compared(kind, drift):
    told = alike(run(partial(job, kind=kind, drift=drift, told=False), 4), range(4))
    if drift == "norm":  # which differs within the mesh of rank 3, too
        assert told == "shardproof.check: norm on rank 3: element 1 is 0x40000000"
    else:
        assert told == (f"norm and 2 more ({APART})",)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drift", [None, "part", "norm", "router"])
def test_with_the_mesh_of_the_job_they_are_compared(kind, drift):
    told = alike(run(partial(job, kind=kind, drift=drift, told=True), 4), range(4))
    element = {"part": 5, "norm": 1, "router": 1}.get(drift)
    start = f"shardproof.check: {drift} on rank 3: element {element} is 0x"
    assert told == () if drift is None else told.startswith(start)
