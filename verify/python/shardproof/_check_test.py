"""The judgement, which is the same on every rank, on made-up records; and one process alone."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from shardproof import _digest, _layout
from shardproof._check import Finding, Mismatch, _Record, check, judge
from shardproof._layout import Placement

SHAPE = (4, 2)
SHARD = (Placement("shard", 0),)


def record(**fields):
    """One rank's record of a float32 [4, 2], whole and sound unless said otherwise."""
    common = dict(kind="parameter", dtype="torch.float32", shape=SHAPE, placements=(), replica=())
    common |= dict(meta=False, unreadable="", aliases="", digest=(7, 8))
    runs = _layout.local_runs(SHAPE)
    return _Record(**common | {"coverage": _digest.coverage(runs, 4)} | fields)


def shard(rank, **fields):
    runs = _layout.local_runs(SHAPE, SHARD, (2,), (rank,))
    return record(placements=SHARD, coverage=_digest.coverage(runs, 4), **fields)


def found(*of_ranks, finite=True):
    """(kind, ranks) of each finding about "w"."""
    findings, comparisons, _ = judge([{"w": r} if r else {} for r in of_ranks], finite)
    assert comparisons > 0
    return [(finding.kind, finding.ranks) for finding in findings]


def test_equal_replicas_are_sound():
    assert found(record(), record(), record()) == []


def test_the_rank_that_differs_from_the_majority_is_named():
    assert found(record(), record(digest=(1, 8)), record()) == [("differs", (1,))]


def test_shards_that_make_it_up_are_sound_and_are_not_held_against_each_other():
    assert found(shard(0, digest=(1, 1)), shard(1, digest=(2, 2))) == []


def test_two_halves_of_the_same_are_incomplete():
    assert found(shard(0), shard(0)) == [("incomplete", (0, 1))]


def test_of_two_replicas_of_shards_the_sums_are_compared():
    sound = [shard(rank, replica=(r,), digest=(rank, 0)) for r in (0, 1) for rank in (0, 1)]
    assert found(*sound) == []
    sound[3] = dataclasses.replace(sound[3], digest=(9, 0))
    ((kind, ranks),) = found(*sound)
    assert kind == "differs" and ranks in ((2, 3), (0, 1))


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


def test_values_that_are_not_finite_may_be_allowed():
    assert found(record(nan=1), record(nan=1), finite=False) == []


def test_what_cannot_be_read_is_inconclusive_and_no_finding():
    records = [{"w": record(unreadable="a sparse tensor")}, {"w": record()}]
    findings, _, inconclusive = judge(records, True)
    assert findings == [] and inconclusive == ["w (a sparse tensor)"]


def test_optimizer_state_may_be_absent_where_nothing_of_its_parameter_is():
    state = record(kind="optimizer")
    empty = {"w": record(placements=SHARD, coverage=(0, 0))}
    full = {"w": record(placements=SHARD), "optimizer.w.exp_avg": state}
    assert judge([full, empty], True)[0] == []
    held = {"w": record(placements=SHARD)}
    kinds = {finding.kind for finding in judge([full, held], True)[0]}
    assert "absent" in kinds


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
    with pytest.raises(RuntimeError, match="rank 0: AttributeError"):
        check("no model")


def test_of_many_findings_the_message_has_ten_and_the_error_all():
    findings = [Finding("differs", f"w{i}", (1, 2), "no") for i in range(13)]
    error = Mismatch(findings)
    assert "w9 on ranks 1, 2: no" in str(error) and "w10" not in str(error)
    assert str(error).endswith("and 3 more") and len(error.findings) == 13
