"""A check in the background on a few real Gloo ranks, in the loop of a training job."""

import threading
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

from shardproof._checking._background import GONE
from shardproof._checking._check import check
from shardproof._checking._ranks_test import DEADLINE, alike, model, run
from shardproof._judging import _own
from shardproof._judging._own import CHANGED

STEPS = 4


def wrapped(kind):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(made)
    if kind == "fsdp1":
        strategy = ShardingStrategy.SHARD_GRAD_OP
        return FullyShardedDataParallel(
            made, device_id=torch.device("cpu"), sharding_strategy=strategy, use_orig_params=True
        )
    fully_shard(made[0], reshard_after_forward=False)
    return fully_shard(made)


def slowly(rank, seconds):
    """What the thread of this rank reads takes a while."""
    digest_runs = _own._digest.digest_runs

    def late(local, runs):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
        return digest_runs(local, runs)

    _own._together._SMALL_BYTES = -1  # each is read alone
    _own._digest.digest_runs = late


def trained(rank, kind, options, slow=0.0, drift=None):
    if rank == 1 and slow:
        slowly(rank, slow)
    live = wrapped(kind)
    optimizer = torch.optim.AdamW(live.parameters(), lr=0.1, **options)
    told = []
    for step in range(STEPS):
        torch.manual_seed(10 * step + rank)
        live(torch.randn(8, 4)).square().sum().backward()
        dist.all_reduce(torch.ones(3))
        while told and not slow and not told[-1].done:  # a step of a real model takes longer
            time.sleep(0.001)
        optimizer.step()
        optimizer.zero_grad()
        if step == drift and rank == 1:
            with torch.no_grad():
                next(live.parameters()).view(-1)[1] += 1
        try:
            pending = check(live, optimizer=optimizer, background=True, deadline=DEADLINE)
        except AssertionError as error:
            return f"step {step}: {str(error).splitlines()[0].split(', on')[0]}"
        told.append(pending)
    outcomes = [each.result() for each in told]  # all but the last were told by the next call
    return [(each.tensors, each.comparisons > 10, each.inconclusive) for each in outcomes]


KINDS = ("ddp", "fsdp1", "fsdp2")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
def test_a_sound_job_makes_no_finding_and_is_compared(kind, options):
    if kind == "fsdp1" and options.get("fused"):
        options = {"foreach": False}
    told = run(partial(trained, kind=kind, options=options), 2)
    told = alike({rank: str(each) for rank, each in told.items()}, range(2))
    assert told.count("True") == STEPS and CHANGED not in told and GONE not in told


@pytest.mark.parametrize("kind", KINDS)
def test_where_a_rank_is_late_what_the_step_has_changed_is_not_compared(kind):
    told = run(partial(trained, kind=kind, options={"foreach": True}, slow=0.02), 2)
    told = alike({rank: str(each) for rank, each in told.items()}, range(2))
    assert told.startswith("[") and CHANGED in told


def test_a_drift_is_told_by_the_next_call_with_its_element():
    told = alike(run(partial(trained, kind="ddp", options={}, drift=1), 2), range(2))
    assert told.startswith("step 2: shardproof.check: 0.weight on rank 1: element 1 is 0x")


def unseen(rank):
    """Ranks read what `.data` changes at different moments: it looks as if they differed."""
    live, dist_done = model(), threading.Event()
    digest_runs = _own._digest.digest_runs
    if rank == 1:

        def waits(local, runs):
            if threading.current_thread() is not threading.main_thread():
                dist_done.wait(30)
            return digest_runs(local, runs)

        _own._together._SMALL_BYTES = -1  # each is read alone
        _own._digest.digest_runs = waits
    pending = check(live, background=True, deadline=DEADLINE)
    while rank != 1 and not pending.done:
        time.sleep(0.01)
    for parameter in live.parameters():
        parameter.data.add_(1)
    dist_done.set()
    return pending.result().inconclusive


def test_a_write_that_torch_does_not_count_makes_no_finding():
    assert alike(run(unseen)) == (f"0.bias and 3 more ({GONE})",)


def failing(rank):
    live = model()
    if rank == 1:
        live.named_modules = None
    check(live, background=True, deadline=DEADLINE)
    try:
        check(live, background=True, deadline=DEADLINE)
    except RuntimeError as error:
        return str(error)


def test_what_one_rank_cannot_read_all_raise_in_the_next_call():
    assert alike(run(failing)) == (
        "shardproof.check: cannot read the model: rank 1: TypeError: 'NoneType' object is not "
        "callable"
    )


def ended(rank):
    """The group ends while something is pending."""
    slowly(rank, 0.05)
    check(model(), background=True, deadline=DEADLINE)
    live = model()
    pending = check(live, background=True, deadline=DEADLINE)
    dist.destroy_process_group()
    pending._behind.thread.join()
    try:
        pending.result()
    except RuntimeError as error:
        return str(error)


def test_the_process_group_may_end_while_something_is_pending():
    assert alike(run(ended)) == ("shardproof.check: the process group of what is pending has ended")


def on_meshes(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    live = fully_shard(nn.Linear(4, 4), mesh=mesh)
    pending = check(live, background=True, deadline=DEADLINE)
    live(torch.ones(1, 4)).sum().backward()
    outcome = pending.result()
    return outcome.tensors, outcome.inconclusive


def test_hybrid_shards_are_read_while_they_are_gathered():
    assert alike(run(on_meshes, 4), range(4)) == (2, ())
