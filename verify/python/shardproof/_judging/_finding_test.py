"""Findings of one cause are told once."""

import pickle

import pytest

from shardproof._checking._check import Mismatch
from shardproof._judging._finding import Finding, bracketed, fold, merged
from shardproof._judging._places import Place


def differs(name, ranks=(1, 3)):
    return Finding("differs", name, ranks, "no")


def test_names_that_differ_in_numbers_only_are_one_cause():
    folds = fold([*(differs(f"layers.{i}.norm") for i in range(28)), differs("head")])
    assert [(one.count, one.names) for one in folds] == [(1, 1), (28, 28)]
    assert str(folds[1]) == (
        "layers.0.norm on ranks 1, 3: no; the same holds for 27 more tensors named layers.*.norm"
    )


def test_other_kinds_and_other_ranks_are_other_causes():
    others = [differs("l.1", (0,)), Finding("absent", "l.2", (1, 3), "no"), differs("l.3")]
    assert [one.names for one in fold(others)] == [1, 1, 1]


def test_nan_on_many_ranks_is_one_cause():
    (one,) = fold(Finding("non-finite", "w", (rank,), "1 NaN") for rank in range(3))
    assert (one.count, one.names, one.ranks) == (3, 1, (0, 1, 2))
    assert str(one) == "w on rank 0: 1 NaN; the same holds for ranks 1, 2"


def test_a_name_with_line_breaks_and_controls_is_one_line():
    odd = "new\nline\x1b[2J\u202e{}.größe"
    assert str(differs(odd, (1,))) == r"new\nline\x1b[2J\xe2\x80\xae{}.größe on rank 1: no"
    folds = fold(differs(odd.format(i)) for i in range(2))
    assert len(str(Mismatch(folds)).splitlines()) == 1


def test_what_two_judges_fold_is_put_together():
    first = fold(differs(f"l.{i}") for i in (2, 3))
    second = fold([differs("l.1"), differs("m")])
    joined = merged([*first, *second])
    assert [(one.findings[0].tensor, one.count, one.names) for one in joined] == [
        ("l.1", 3, 3), ("m", 1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((0, 2), "[0, 2]"),
        (tuple(range(1024)), "[0 to 1023]"),
        ((*range(0, 17), 40), "[0 to 16, 40]"),
        (tuple(range(0, 100, 2)), "[" + ", ".join(map(str, range(0, 32, 2)))
         + " and others, 50 in all]"),
    ],
)  # fmt: skip
def test_many_ranks_are_stretches(ranks, text):
    assert bracketed(ranks) == text


def test_ranks_are_named_by_what_they_share_on_the_mesh_and_by_where_they_are():
    places = {
        rank: Place({"dp": rank // 2, "tp": rank % 2}, f"host{rank // 2}", f"cuda:{rank % 2}")
        for rank in range(4)
    }
    text = str(Mismatch(fold([differs("w"), differs("v", (2,))]), None, places))
    assert "w on ranks 1, 3: no (these are the ranks of tp 1)" in text
    assert "v on rank 2: no\n" in text
    error = Mismatch(fold([differs("w")]), 5, places)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "rank 3 is at dp 1, tp 1, on host1 with cuda:1" in text and "rank 0 is" not in text
