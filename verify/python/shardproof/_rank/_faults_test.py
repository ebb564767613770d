import pytest

from shardproof._rank import _faults
from shardproof._rank._faults import Faults


@pytest.fixture
def job(monkeypatch):
    """(Faults of rank 1, what happened in order)."""
    happened = []
    for act in ("kill", "slow"):
        monkeypatch.setitem(_faults._ACTS, act, lambda act=act: happened.append(act))

    class Writer:
        def fault(self, **fields):
            happened.append(f"{fields['id']} {fields['detail']}")

    def of(*orders):
        common = {"where": "", "model": "", "rank": 1, "stage": ""}
        return Faults(Writer(), 1, [common | order for order in orders]), happened

    return of


def test_a_fault_is_on_record_before_it_acts_and_strikes_once(job):
    faults, happened = job({"id": "rank/kill", "act": "kill", "stage": "ready"})
    faults.observed("loaded", 0)
    assert happened == []
    faults.observed("ready", 0)
    faults.observed("ready", 1)
    assert happened == ["rank/kill at stage ready", "kill"]


def test_those_of_other_ranks_do_not_strike(job):
    faults, happened = job({"id": "rank/kill", "act": "kill", "stage": "ready", "rank": 0})
    faults.observed("ready", 0)
    assert happened == []


def test_a_step_may_be_asked_for(job):
    faults, happened = job({"id": "rank/slow", "act": "slow", "stage": "stepped", "step": 2})
    faults.observed("stepped", 1)
    assert happened == []
    faults.observed("stepped", 2)
    assert happened[-1] == "slow"


def test_collectives_are_counted_from_zero_and_are_no_stage(job):
    faults, happened = job({"id": "rank/slow", "act": "slow", "collective": 1})
    faults.observed("", 0)
    faults.before_collective("allreduce")
    assert happened == []
    faults.before_collective("broadcast")
    assert happened == ["rank/slow before a broadcast", "slow"]
