"""Whose part a rank holds, from what ranks say."""

from shardproof._against._misplaced import _found, _Said

# Digests of two parts, each at its place and at the other's.
FIRST, FIRST_AT_1 = (3, 3), (4, 4)
SECOND, SECOND_AT_0 = (7, 7), (5, 5)
WHOLE = (10, 10)


def at(place, own, elsewhere):
    return _Said((place,), own, {(1 - place,): elsewhere})


def test_two_that_hold_each_others_parts_on_every_replica():
    said = {
        rank: at(0, SECOND_AT_0, SECOND) if rank % 2 == 0 else at(1, FIRST_AT_1, FIRST)
        for rank in range(4)
    }
    assert _found(said, WHOLE) == ((0, 1, 2, 3), "ranks 0 and 1 hold each other's parts")
    assert _found({rank: said[rank] for rank in (2, 3)}, WHOLE) == (
        (2, 3), "ranks 2 and 3 hold each other's parts",
    )  # fmt: skip


def test_a_part_that_is_anothers_on_every_replica():
    said = {rank: at(0, FIRST, FIRST_AT_1) for rank in (0, 2)}
    said |= {rank: at(1, FIRST_AT_1, FIRST) for rank in (1, 3)}
    assert _found(said, WHOLE) == ((0, 1, 2, 3), "ranks 0 and 1 hold the same part")


def test_parts_of_which_nothing_is_known():
    assert _found({0: at(0, (1, 1), (2, 2)), 1: at(1, (8, 8), (9, 9))}, WHOLE) is None
