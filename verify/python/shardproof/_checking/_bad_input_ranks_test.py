"""What a caller may get wrong: every rank comes to the same end, in one line."""

import threading

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Shard

from shardproof._checking._check import check
from shardproof._checking._ranks_test import DEADLINE, alike, model, run
from shardproof._judging import _own
from shardproof._judging._own import CHANGED
from shardproof._stored._checkpoint import SEAL_DIGEST, SEAL_SCHEMA
from shardproof._stored._manifest import Manifest

TP = {"tp": [[0, 1, 2]]}
MANIFEST = Manifest({"schema": SEAL_SCHEMA, "digest": SEAL_DIGEST, "tensors": {}, "values": {}})
# What ranks 0, 1 and 2 say, and how the line begins that all of them are told.
CASES = {
    "groups that overlap": (
        [{"groups": {"*": [0, 1]}}, {"groups": {"*": [1, 2]}}, {"groups": {"*": [1, 2]}}],
        "AssertionError: shardproof.check: 0.bias on ranks 0, 1: rank 0 says that ranks [0, 1]",
    ),
    "groups that leave a rank out, which says nothing": (
        [{"groups": {"*": [0, 1]}}, {"groups": {"*": [0, 1]}}, {}],
        "AssertionError: shardproof.check: 0.bias on ranks 0, 2: rank 2 says that ranks [0, 1, 2]",
    ),
    "groups that cover": ([{"group": [0, 1]}, {"group": [0, 1]}, {"group": [2]}], "sound"),
    "a group that a rank is not in": (
        [{"group": [0, 1]}] * 3,
        "RuntimeError: shardproof.check: cannot read the model: rank 2: ValueError: group: rank 2",
    ),
    "a group for a tensor, of which a rank that has it is not": (
        [{"groups": {"0.*": [0, 1]}}] * 3,
        "RuntimeError: shardproof.check: cannot read the model: rank 2: ValueError: groups: rank",
    ),
    "a group of ranks that are not there": (
        [{}, {"group": [1, 7]}, {}],
        "RuntimeError: shardproof.check: cannot read the model: rank 1: ValueError: group: the job",
    ),
    "a layout that names nothing": (
        [{"mesh": TP, "layout": {"nothing.*": {"tp": Shard(0)}}}] * 3,
        "RuntimeError: shardproof.check: groups or layout: no tensor of any rank is named",
    ),
    "a layout along a dim that the tensor lacks": (
        [{"mesh": TP, "layout": {"0.bias": {"tp": Shard(1)}}}] * 3,
        "RuntimeError: shardproof.check: cannot read the model: rank 0: ValueError: layout of 0.b",
    ),
    "a layout along an axis that is not there": (
        [{"mesh": TP, "layout": {"0.bias": {"ep": Shard(0)}}}] * 3,
        "RuntimeError: shardproof.check: cannot read the model: rank 0: ValueError: there is no ax",
    ),
    "a layout that is no dict": (
        [{"layout": "local"}] * 3,
        "RuntimeError: shardproof.check: cannot read the model: rank 0: ValueError: layout is of",
    ),
    "one pattern to ignore, of no name": ([{"ignore": "nothing.*"}, {}, {}], "sound"),
    "a layout that one rank does not say": (
        [{"mesh": TP, "layout": {"0.bias": {"tp": Shard(0)}}}] * 2 + [{"mesh": TP}],
        "AssertionError: shardproof.check: 0.bias on rank 2: it is a parameter torch.float32 [4],",
    ),
    "a manifest that one rank was not given": (
        [{"against": MANIFEST}, {"against": MANIFEST}, {}],
        "RuntimeError: shardproof.check: against= is not given on rank 2 and a manifest on rank 0",
    ),
    "a map that one rank was not given": (
        [{"against": MANIFEST, "map": ["a -> b"]}, {"against": MANIFEST}, {}],
        "RuntimeError: shardproof.check: map= is not given on rank 1 and given on rank 0",
    ),
    "a budget on one rank": (
        [{}, {"budget_s": 1.0}, {}],
        "RuntimeError: shardproof.check: budget_s= is given on rank 1 and not given on rank 0",
    ),
    "the text of a manifest": (
        [{"against": MANIFEST.to_json()}] * 3,
        "RuntimeError: shardproof.check: rank 0 cannot read the checkpoint: expected a path or a M",
    ),
    "a manifest as a dict": (
        [{"against": {"manifest": 3}}] * 3,
        "RuntimeError: shardproof.check: rank 0 cannot read the checkpoint: expected a path or a M",
    ),
    "another model on one rank": (
        [{}, {}, {"ignore": ["0.bias"]}],
        "AssertionError: shardproof.check: 0.bias on rank 2: there is no such tensor",
    ),
}


def told(rank):
    found = []
    for said, _ in CASES.values():
        try:
            check(model(), deadline=DEADLINE, **said[rank])
            found.append("sound")
        except (AssertionError, RuntimeError) as error:
            kind = "AssertionError" if isinstance(error, AssertionError) else "RuntimeError"
            found.append(f"{kind}: {error}")
    return tuple(found)


@pytest.fixture(scope="module")
def lines():
    return dict(zip(CASES, alike(run(told)), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_are_told_the_same(case, lines):
    assert lines[case].startswith(CASES[case][1])
    assert lines[case].startswith("AssertionError") or "\n" not in lines[case]
    assert "and rank \n" not in lines[case]


def changing(rank):
    """On rank 1 another thread changes a tensor while the check reads."""
    live = model()
    digest_runs = _own._digest.digest_runs

    def meanwhile(local, runs):
        def change():
            with torch.no_grad():
                live[1].bias.add_(1)

        thread = threading.Thread(target=change)
        thread.start()
        thread.join()
        return digest_runs(local, runs)

    if rank == 1:
        _own._together._SMALL_BYTES = -1  # each is read alone
        _own._digest.digest_runs = meanwhile
    return check(live, deadline=DEADLINE).inconclusive


def test_what_another_thread_changes_is_not_compared():
    assert alike(run(changing)) == (f"1.bias ({CHANGED})",)


TINY = 100_000
TINY_DEADLINE = 200.0


def tiny(rank):
    made = nn.Module()
    for number in range(TINY):
        made.register_parameter(f"p{number}", nn.Parameter(torch.zeros(1), requires_grad=False))
    if rank == 1:
        made.p77777.data += 1
    try:
        check(made, deadline=TINY_DEADLINE)
    except AssertionError as error:
        return str(error).splitlines()[0].split(", on")[0]


def test_a_hundred_thousand_tensors_of_one_element():
    told = alike(run(tiny, 2, TINY_DEADLINE), range(2))
    assert told == "shardproof.check: p77777 on rank 1: element 0 is 0x3f800000"
