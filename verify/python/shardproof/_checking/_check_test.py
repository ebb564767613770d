"""The judgement, which is the same on every rank, on made-up records; and one process alone."""

import dataclasses
import math
import warnings

import pytest
import torch
from torch import nn

from shardproof._checking._check import Mismatch, check
from shardproof._digests import _digest, _together
from shardproof._holdings import _layout
from shardproof._holdings._groups import Groups
from shardproof._holdings._layout import Placement
from shardproof._holdings._record import Record
from shardproof._judging._finding import Finding, fold
from shardproof._judging._judge import APART, judge, with_sides
from shardproof._judging._outcome import conclude
from shardproof._judging._verdict import Verdict

SHAPE = (4, 2)
SHARD = (Placement("shard", 0),)


def record(**fields):
    """One rank's record of a float32 [4, 2], whole and sound unless said otherwise. Its groups are
    those of `together`, unless given."""
    common = dict(kind="parameter", dtype="torch.float32", shape=SHAPE, placements=())
    common |= dict(meta=False, unreadable="", aliases="", digest=(7, 8), groups=Groups((), ()))
    runs = _layout.local_runs(SHAPE)
    return Record(**common | {"coverage": _digest.coverage(runs, 4)} | fields)


def shard(rank, **fields):
    runs = _layout.local_runs(SHAPE, SHARD, (2,), (rank,))
    return record(placements=SHARD, coverage=_digest.coverage(runs, 4), **fields)


def together(*of_ranks):
    """Records of "w" as those of ranks 0, 1, ...: shards make it up, others are replicas."""
    ranks = tuple(range(len(of_ranks)))
    grouped = []
    for rank, one in enumerate(of_ranks):
        if one is not None and one.groups == Groups((), ()):
            groups = Groups(ranks, (rank,)) if one.placements else Groups((rank,), ranks)
            one = dataclasses.replace(one, groups=groups)
        grouped.append({"w": one} if one else {})
    return grouped


def found(*of_ranks):
    """(kind, ranks) of each finding about "w"."""
    judgement = judge(together(*of_ranks))
    assert judgement.comparisons > 0
    return [(finding.kind, finding.ranks) for finding in judgement.findings]


def test_equal_replicas_are_sound():
    assert found(record(), record(), record()) == []


def test_the_rank_that_differs_from_the_majority_is_named():
    assert found(record(), record(digest=(1, 8)), record()) == [("differs", (1,))]


def test_shards_that_make_it_up_are_sound_and_are_not_held_against_each_other():
    assert found(shard(0, digest=(1, 1)), shard(1, digest=(2, 2))) == []


def test_two_halves_of_the_same_are_incomplete():
    assert found(shard(0), shard(0)) == [("incomplete", (0, 1))]


def two_by_two(digests):
    """Two replicas of two shards: rank r has shard r % 2 of replica r // 2."""
    return [
        shard(
            rank % 2,
            digest=digests[rank],
            groups=Groups(
                (rank - rank % 2, rank - rank % 2 + 1), (rank % 2, rank % 2 + 2), (0, 1, 2, 3)
            ),
        )
        for rank in range(4)
    ]


def test_of_two_replicas_of_shards_the_one_rank_that_differs_is_named():
    assert found(*two_by_two([(0, 0), (1, 0), (0, 0), (1, 0)])) == []
    assert found(*two_by_two([(0, 0), (1, 0), (0, 0), (9, 0)])) == [("differs", (3,))]


def test_replicas_that_are_cut_otherwise_are_held_against_each_other_whole():
    whole = [record(digest=(5, 5), groups=Groups((rank,), (0, 1, 2, 3))) for rank in (0, 1)]
    halves = [
        shard(rank, digest=digest, groups=Groups((2, 3), (0, 1, 2, 3)), )
        for rank, digest in ((0, (2, 2)), (1, (3, 3)))
    ]  # fmt: skip
    halves = [dataclasses.replace(half, placements=()) for half in halves]
    assert found(*whole, *halves) == []
    halves[1] = dataclasses.replace(halves[1], digest=(4, 3))
    assert found(*whole, *halves) == [("differs", (2, 3))]


def test_names_of_other_stages_are_no_absence_and_one_name_is_one_tensor():
    own = record(groups=Groups((0,), (0,)), unique=True)
    other = record(groups=Groups((1,), (1,)), unique=True)
    judgement = judge([{"a": own}, {"b": other}])
    assert judgement.findings == [] and judgement.comparisons > 0
    assert found(own, other) == []
    other = dataclasses.replace(other, digest=(1, 1))
    assert found(own, other) == [("ambiguous", (1,))]


def test_groups_that_contradict_each_other_are_told():
    records = [record(groups=Groups((rank,), alike)) for rank, alike in ((0, (0, 1)), (1, (1,)))]
    assert found(*records) == [("groups", (0, 1))]


class Counted(tuple):
    """Ranks that count how often somebody goes through them."""

    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


def test_equal_groups_are_looked_at_once_and_not_for_each_rank():
    everyone = Counted(range(200))
    groups = [Groups((rank,), everyone, everyone) for rank in everyone]
    records = [record(groups=each) for each in groups]
    Counted.times = 0
    assert found(*records) == [] and 0 < Counted.times < 10
    records[7] = record(groups=Groups((7,), (7, 8), everyone))
    assert found(*records) == [("groups", (0, 7))]


@pytest.mark.parametrize("said", [{"group": [0, 7]}, {"groups": {"*": [0, 7]}},
                                  {"mesh": {"tp": [[0, 7]]}}])  # fmt: skip
def test_ranks_that_the_job_does_not_have_are_told(said):
    with pytest.raises(RuntimeError, match="the job has no rank 7"):
        check(nn.Linear(1, 1), **said)


def test_what_changes_while_it_is_read_is_not_compared(monkeypatch):
    model = nn.Linear(2, 2)
    digest_runs = _digest.digest_runs

    def meanwhile(local, runs):
        with torch.no_grad():
            model.bias.add_(1)
        return digest_runs(local, runs)

    monkeypatch.setattr(_together, "_SMALL_BYTES", -1)  # each is read alone
    monkeypatch.setattr(_digest, "digest_runs", meanwhile)
    with pytest.warns(UserWarning, match="not compared: bias .it was changed while it was read"):
        outcome = check(model)
    assert len(outcome.inconclusive) == 1


def test_what_nobody_said_the_group_of_is_not_compared_and_is_no_finding():
    judgement = judge([{"w": record(groups=None)}, {"w": record(groups=None, digest=(1, 1))}])
    assert judgement.findings == []
    assert judgement.uncompared == {"nothing says which ranks hold the same": ["w"]}
    judgement = judge([{"w": record(groups=None, nan=1)}, {}])
    assert [finding.kind for finding in judgement.findings] == ["non-finite"]


def test_codes_in_a_container_need_not_be_numbers():
    assert found(record(nan=3, numbers=False), record(nan=3, numbers=False)) == []


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (None, "absent"),
        (record(dtype="torch.bfloat16"), "unlike"),
        (record(shape=(2, 4)), "unlike"),
        (record(kind="buffer"), "unlike"),
        (record(meta=True), "meta"),
        (record(misfit="its placement gives it 4 elements, it holds 3"), "misfit"),
        (record(nan=1, first_non_finite=3), "non-finite"),
        (record(inf=1, first_non_finite=0), "non-finite"),
    ],
)
def test_each_kind_names_the_rank(odd, kind):
    assert found(record(), record(), odd) == [(kind, (2,))]


def test_ties_are_held_against_each_other():
    tied, other = record(aliases="embed"), record(aliases="w")
    assert found(tied, tied, other) == [("untied", (2,))]
    assert found(tied, tied, tied) == []


def test_what_cannot_be_read_is_uncompared_and_no_finding():
    judgement = judge(together(record(unreadable="a sparse tensor"), record()))
    assert judgement.findings == [] and judgement.uncompared == {"a sparse tensor": ["w"]}


def test_optimizer_state_may_be_absent_where_nothing_of_its_parameter_is():
    groups = [Groups((0, 1), (rank,)) for rank in (0, 1)]
    state = record(kind="optimizer", groups=Groups((0,), (0, 1)))
    full = {"w": record(placements=SHARD, groups=groups[0]), "optimizer.w.exp_avg": state}
    empty = {"w": record(placements=SHARD, coverage=(0, 0), groups=groups[1])}
    assert judge([full, empty]).findings == []
    held = {"w": record(placements=SHARD, groups=groups[1])}
    assert "absent" in {finding.kind for finding in judge([full, held]).findings}


def test_a_rank_that_has_no_part_of_a_replica_is_no_side_to_look_at():
    groups = [Groups((0, 1), (0, 1, 2, 3)), Groups((2, 3), (0, 1, 2, 3))]
    records = [{}, {"w": record(groups=groups[0])}, {"w": record(groups=groups[1])}, {}]
    finding = Finding("differs", "w", (2, 3), "no")
    records[2]["w"] = dataclasses.replace(records[2]["w"], coverage=(1, 1))
    sides = with_sides(finding, records).sides
    assert (sides.one, sides.other) == ((2, 3), (0, 1))


@pytest.mark.parametrize(("value", "ranks"), [(torch.tensor(3.0), (0, 1)), (torch.ones(4), (0,))])
def test_state_that_is_not_cut_as_its_parameter_is_held_by_whom_it_can_be_equal(value, ranks):
    assert Groups((0, 1), (0,)).of_state(value, 0).alike == ranks


def test_a_part_of_a_shard_says_nothing_of_replicas_and_that_of_a_whole_tensor_does():
    assert not Groups((0, 1), (0, 2), (0, 1, 2, 3), shown=True).of_parts(0).shown
    assert Groups((0,), (0, 1), shown=True).of_parts(0).shown
    apart = [record(groups=Groups((rank,), (rank,), shown=rank == 1)) for rank in (0, 1)]
    judgement = judge([{"w": each} for each in apart])
    assert judgement.uncompared == {APART: ["w"]} and judgement.findings == []


def test_alone_a_sound_model_passes_and_says_how_much_it_looked_at():
    outcome = check(nn.Linear(2, 2))
    assert outcome.tensors == 2 and outcome.comparisons >= 2 and outcome.inconclusive == ()


def test_alone_a_nan_is_named_with_its_element():
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[1, 0] = math.nan
    with pytest.raises(Mismatch) as raised:
        check(model)
    (finding,) = raised.value.findings
    assert (finding.kind, finding.tensor, finding.ranks, finding.index) == (
        "non-finite", "weight", (0,), 2,
    )  # fmt: skip
    check(model, finite=False)
    check(model, ignore=["weig*"])


@pytest.mark.parametrize("deadline", [0, -1, math.inf, math.nan, "60"])
def test_a_deadline_that_makes_no_sense_is_refused(deadline):
    with pytest.raises(ValueError, match="deadline"):
        check(nn.Linear(1, 1), deadline=deadline)


def test_a_model_that_cannot_be_looked_at_is_told():
    with pytest.raises(RuntimeError, match="rank 0: TypeError: the model is a str"):
        check("no model")


def test_of_many_findings_the_message_has_ten_and_the_error_all():
    findings = [Finding("differs", f"{letter}.w", (1, 2), "no") for letter in "abcdefghijklm"]
    error = Mismatch(fold(findings))
    assert "j.w on ranks 1, 2: no" in str(error) and "k.w" not in str(error)
    assert str(error).endswith("and 3 more") and len(error.findings) == 13 == error.count


def test_a_warning_that_is_an_error_hides_no_finding_and_comes_after_all_ranks_were_asked():
    class Rank:
        rank = 0

    asked = []
    verdict = Verdict()
    verdict.uncompared = {"nobody said": (1, "b")}
    verdict.folds = fold([Finding("differs", "w", (1,), "no")])
    verdict.count = 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Mismatch):
            conclude(verdict, False, Rank, lambda: asked.append(1) or {})
        verdict.folds = []
        with pytest.raises(UserWarning, match="nobody said"):
            conclude(verdict, False, Rank, dict)
    assert asked == [1]
