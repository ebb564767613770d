"""What travels comes back as it was, once, and the rank that judges a name is agreed."""

import dataclasses
import itertools
import pickle

import pytest

from shardproof._checking._check_test import SHARD, record
from shardproof._holdings._groups import Groups
from shardproof._holdings._record import judge_of, place_of
from shardproof._judging._wire import Receiver, Sender, packed, unpacked

WORLD = 4
RECORDS = {
    "a": record(digest=((1 << 64) - 1, 5), nan=2, first_non_finite=3),
    "b": record(groups=None, aliases="a", misfit="no", unreadable="why"),
    "c": record(placements=SHARD, groups=Groups((0, 1, 2, 3), (1,)), first_non_finite=0),
    "optimizer.a.exp_avg": record(groups=Groups((0,), (0, 2))),
}


def told(messages, receivers):
    """All that rank 2 told, read by those it told it."""
    found = {}
    for rank, message in enumerate(messages):
        records, _ = receivers[rank].read(2, message)
        assert all(judge_of(name, WORLD) == rank for name in records)
        found |= records
    return found


def test_records_arrive_as_they_were_and_then_their_numbers_suffice():
    sender, receivers = Sender(WORLD), [Receiver(WORLD) for _ in range(WORLD)]
    first = sender.messages(RECORDS)
    assert told(first, receivers) == RECORDS
    changed = RECORDS | {"a": dataclasses.replace(RECORDS["a"], digest=(3, 4), nan=0)}
    second = sender.messages(changed)
    assert told(second, receivers) == changed
    described = [[pickle.loads(each)[2] for each in messages] for messages in (first, second)]
    assert any(described[0]) and not any(described[1])


def test_what_was_changed_or_is_new_or_gone_is_noticed():
    sender, receivers = Sender(WORLD), [Receiver(WORLD) for _ in range(WORLD)]
    told(sender.messages(RECORDS), receivers)
    changed = {
        "a": dataclasses.replace(RECORDS["a"], shape=(2, 4)),
        "d": record(groups=Groups((3,), (3,))),
    }
    assert told(sender.messages(changed), receivers) == changed
    assert told(sender.messages(RECORDS), receivers) == RECORDS


def test_a_side_that_forgot_is_no_silent_mistake():
    sender, receiver = Sender(1), Receiver(1)
    receiver.read(0, sender.messages(RECORDS)[0])
    receiver.forget()
    with pytest.raises(LookupError, match="rank 0 has told 4 tensors, 0 are known"):
        receiver.read(0, sender.messages(RECORDS)[0])
    sender.forget()
    assert receiver.read(0, sender.messages(RECORDS)[0]) == (RECORDS, [])


def test_models_that_come_and_go_are_not_kept():
    sender, receiver = Sender(1), Receiver(1)
    for model in range(50):
        records = {f"{model}.{i}": record() for i in range(100)}
        assert receiver.read(0, sender.messages(records)[0])[0] == records
    assert sum(map(len, receiver._described)) <= 1500 and len(sender._numbers) <= 1500


def test_what_is_said_of_groups_travels_once_and_does_not_grow_with_them():
    def size(ranks, tensors):
        groups = Groups((0,), tuple(range(ranks)))
        return sum(map(len, Sender(1).messages({f"w{i}": record(groups=groups)
                                                for i in range(tensors)})))  # fmt: skip

    assert size(1 << 16, 1) - size(2, 1) < 16
    assert (size(1024, 101) - size(1024, 1)) / 100 < 200


def test_what_a_rank_tells_grows_with_its_tensors_and_not_with_ranks_times_tensors():
    def size(ranks):
        groups = Groups(tuple(range(ranks)), (0,))
        records = {f"layers.{i}.weight": record(groups=groups) for i in range(4000)}
        return sum(map(len, Sender(ranks).messages(records)))

    assert size(1024) - size(1) < 300 * 1024


def test_equal_parts_are_one_object():
    receiver = Receiver(2)
    message = {"w": record(groups=Groups((0, 1), (0, 1)))}
    (one, _), (other, _) = (receiver.read(source, Sender(2).messages(message)[judge_of("w", 2)])
                            for source in (0, 1))  # fmt: skip
    assert one["w"].groups is other["w"].groups and one["w"].shape is other["w"].shape


def test_patterns_reach_the_rank_that_judges_them():
    messages = Sender(WORLD).messages({}, ["x.*", "y"])
    found = [Receiver(WORLD).read(0, message)[1] for message in messages]
    assert sorted(itertools.chain(*found)) == ["x.*", "y"]
    assert "y" in found[judge_of("y", WORLD)]


@pytest.mark.parametrize(
    "ranks", [(), (5,), (0, 1, 2, 3), (1, 3, 5, 9), (3, 1), (0, 1, 8, 9, 16, 17), (7, 2, 2)]
)
def test_ranks_are_packed_and_unpacked(ranks):
    assert unpacked(packed(ranks)) == ranks


def test_names_are_spread_and_state_is_judged_with_its_parameter():
    judges = [judge_of(f"layers.{i}.weight", 16) for i in range(1600)]
    assert min(map(judges.count, range(16))) > 50
    assert place_of("optimizer.0.w.exp_avg") == place_of("0.w") != place_of("0.v")
    assert place_of("w") == 2347026877809978270
