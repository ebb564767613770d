"""`check` on a few real Gloo ranks: whatever happens on one, all come to the same end in time."""

import contextlib
import multiprocessing
import os
import pathlib
import queue
import sys
import time
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

from shardproof._checking._check import check
from shardproof._judging import _own, _transport

WORLD = 3
DEADLINE = 60.0
SHORT = 4.0  # where it is to pass


def run(job, world=WORLD, seconds=60):
    """{rank: what job(rank) returned, or what it raised as text}. Ranks are forked from a process
    that has computed nothing: autograd's threads do not survive that. Ranks that end without a word
    are not in it."""
    context = multiprocessing.get_context("forkserver")
    tests = pathlib.Path(__file__).parents[1].glob("*/*_ranks_test.py")
    context.set_forkserver_preload([f"shardproof.{each.parent.name}.{each.stem}" for each in tests])
    # The process that forks them finds modules by this: Python 3.11 does not hand it sys.path.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    found, store = context.Queue(), dist.TCPStore("127.0.0.1", 0, is_master=True)
    ranks = [
        context.Process(target=_rank, args=(rank, world, job, found, store.port), daemon=True)
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(seconds)
    said = {}
    with contextlib.suppress(queue.Empty):
        while True:
            rank, what = found.get(timeout=0.1)
            said[rank] = what
    return said


def _rank(rank, world, job, found, port):
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    dist.barrier()  # a rank that dies while others still connect to it is not what is tried here
    try:
        what = job(rank)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
    found.put((rank, what))
    found.close()
    found.join_thread()
    os._exit(0)  # a group that lost a rank does not end by itself


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def alike(said, ranks=range(WORLD)):
    assert set(said) == set(ranks), said
    assert len(set(said.values())) == 1, said
    return next(iter(said.values()))


def late(rank, warm, comes):
    """Rank 2 comes to a check once the others have given up, or not at all."""
    if warm:
        check(model(), deadline=SHORT)
    begin = time.monotonic()
    if rank == 2:
        time.sleep(1.5 * SHORT)
    if rank != 2 or comes:
        with pytest.raises(TimeoutError, match=f"within {SHORT:g} s") as caught:
            check(model(), deadline=SHORT)
        assert "\n" not in str(caught.value)
    waited = time.monotonic() - begin
    assert waited < (3 if rank == 2 else 2) * SHORT
    dist.barrier()
    if warm and not comes:  # rank 2 finds the group closed that the others have given up
        with pytest.raises(TimeoutError):
            check(model(), deadline=SHORT)
        dist.barrier()
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group(range(WORLD)))  # the job goes on
    changed = model()
    outcome = check(changed, deadline=SHORT)
    with torch.no_grad():
        changed[1].bias[1] += rank == 1
    with pytest.raises(AssertionError) as found:
        check(changed, deadline=SHORT)
    return outcome.tensors, total.item(), str(found.value).split(", on")[0]


@pytest.mark.parametrize(("warm", "comes"), [(False, False), (True, False), (True, True)])
def test_a_rank_that_does_not_come_is_waited_for_until_the_deadline(warm, comes):
    tensors, total, found = alike(run(partial(late, warm=warm, comes=comes)))
    assert (tensors, total) == (4, WORLD)
    assert found.startswith("shardproof.check: 1.bias on rank 1: element 1 is 0x")


def killed(rank, where):
    check(model(), deadline=DEADLINE)
    if rank == 2:
        if where == "reading":
            _own._together._SMALL_BYTES = -1  # each is read alone
            _own._digest.digest_runs = lambda *_: os._exit(1)
        else:
            _transport.Transport.everybody = lambda *_: os._exit(1)
    try:
        check(model(), deadline=DEADLINE)
    except TimeoutError as error:
        assert "ranks ended" in str(error) and "\n" not in str(error)
        return "TimeoutError"


@pytest.mark.parametrize("where", ["reading", "judging"])
def test_a_rank_that_is_killed_ends_the_check_of_the_others(where):
    assert alike(run(partial(killed, where=where)), (0, 1)) == "TimeoutError"


def raising(rank, where):
    check(model(), deadline=DEADLINE)
    broken = model()
    if rank == 1 and where == "reading":
        broken.named_modules = None
    transport = _transport.Transport(DEADLINE)
    if rank == 1 and where == "judging":
        transport.receiver.read = None
    said = ""
    try:
        check(broken, deadline=DEADLINE)
    except RuntimeError as error:
        said = str(error)
    if rank == 1 and where == "judging":
        del transport.receiver.read
    check(model(), deadline=DEADLINE)  # nothing is left of the failure
    return said


@pytest.mark.parametrize(("where", "what"), [("reading", "read the model"), ("judging", "judge")])
def test_a_rank_that_raises_is_told_by_all_and_the_next_check_is_sound(where, what):
    text = alike(run(partial(raising, where=where)))
    assert text == (
        f"shardproof.check: cannot {what}: rank 1: TypeError: 'NoneType' object is not callable"
    )


def repeated(rank):
    made, found = model(), []
    for call in range(4):
        if call == 2 and rank == 1:
            with torch.no_grad():
                made[1].weight[0, 2] += 1
        if call == 3:
            made.add_module("more", nn.Linear(1, 1, bias=rank == 0))
        try:
            found.append(check(made, deadline=DEADLINE).tensors)
        except AssertionError as error:
            found.append(str(error))
    return repr(found)


def test_what_changes_between_calls_is_seen():
    text = alike(run(repeated))
    assert text.startswith("[4, 4, 'shardproof.check: 1.weight on rank 1: element 2 is 0x")
    assert "more.bias on ranks 1, 2: there is no such tensor" in text


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield


MODES = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "meta": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": deterministic,
}


def within(rank, mode):
    made = model()
    found = []
    for drifts in (False, True):
        with torch.no_grad():
            made[0].bias[1] += drifts and rank == 2
        with MODES[mode]():
            try:
                found.append(check(made, deadline=DEADLINE).comparisons)
            except AssertionError as error:
                found.append(str(error).split(", on")[0])
    return repr(found)


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_of_the_caller_makes_no_difference(mode):
    text = alike(run(partial(within, mode=mode)))
    assert ", 'shardproof.check: 0.bias on rank 2: element 1 is 0x" in text and text[1] != "0"


def tiny(rank):
    made = nn.ParameterList([nn.Parameter(torch.tensor(float(i))) for i in range(2000)])
    outcome = check(made, deadline=DEADLINE)
    return outcome.tensors, outcome.inconclusive


def test_many_tensors_of_one_element_are_sound():
    assert alike(run(tiny, 2), range(2)) == (2000, ())


def everything(rank):
    made = nn.ParameterList([nn.Parameter(torch.full((2,), float(i + rank))) for i in range(3000)])
    names = {f"{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}": made[i]
             for i in range(3000)}  # fmt: skip
    try:
        check(nn.ParameterDict(names), deadline=DEADLINE)
    except AssertionError as error:
        return error.count, len(error.findings), str(error)


def test_where_everything_differs_what_travels_is_bounded():
    count, kept, text = alike(run(everything))
    assert count == 3000 and 1000 <= kept <= 1002 and text.count("\n") == 11
    assert "and 2990 more" in text


def with_budget(rank):
    """Stages of a pipeline have other names, and the window is the same on the circle of names."""
    names = [f"layers.{rank // 2}.{i}" for i in range(200)]
    made = nn.Module()
    for name in names:
        made.register_parameter(name.replace(".", "_"), nn.Parameter(torch.zeros(1)))
    told = {"mesh": {"pp": [[0, 2], [1, 3]], "dp": [[0, 1], [2, 3]]}, "deadline": DEADLINE}
    first = check(made, budget_s=1e-3, **told)
    assert 0 < first.looked_at < first.held == 200
    with torch.no_grad():
        made.get_parameter(names[77].replace(".", "_")).add_(rank == 3)
    try:
        for _ in range(1100):
            check(made, budget_s=1e-3 * (1 + rank), **told)
    except AssertionError as error:
        return str(error).split(", on")[0]


def test_with_a_budget_all_ranks_look_at_the_same_and_find_it_in_the_end():
    text = alike(run(with_budget, 4), range(4))
    assert text == "shardproof.check: layers_1_77 on rank 3: element 0 is 0x3f800000"
