"""A check in the background, of one process alone."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch
from torch import nn

import shardproof
from shardproof._checking._background import GONE
from shardproof._checking._check import Mismatch, check
from shardproof._digests import _digest
from shardproof._holdings._groups import Statement
from shardproof._judging import _own
from shardproof._judging._own import CHANGED, version_of


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))


@pytest.fixture
def gate(monkeypatch):
    """The thread stops before each tensor until it is opened; `reached` once it is there."""
    opened, reached, digest_runs = threading.Event(), threading.Event(), _digest.digest_runs

    def waiting(local, runs):
        if threading.current_thread() is not threading.main_thread():
            reached.set()
            assert opened.wait(30)
        return digest_runs(local, runs)

    monkeypatch.setattr(_own._together, "_SMALL_BYTES", -1)  # each is read alone
    monkeypatch.setattr(_own._digest, "digest_runs", waiting)
    opened.reached = reached
    yield opened
    opened.set()


def test_the_call_returns_before_anything_is_read_and_the_result_is_that_of_a_check(gate):
    live = model()
    pending = check(live, background=True)
    assert not pending.done
    gate.set()
    outcome = pending.result()
    assert pending.done and outcome == check(live) == pending.result() and outcome.tensors == 4


def test_what_is_wrong_is_told_by_the_next_call_and_by_the_result():
    live = model()
    with torch.no_grad():
        live[0].weight[1, 0] = float("inf")
    pending = check(live, background=True)
    with pytest.raises(Mismatch) as raised:
        check(live, background=True)
    (finding,) = raised.value.findings
    assert (finding.kind, finding.tensor, finding.index) == ("non-finite", "0.weight", 3)
    with pytest.raises(Mismatch):
        pending.result()
    check(live, finite=False)  # nothing is pending any more


def test_what_is_changed_before_it_was_read_is_not_compared(gate):
    live = model()
    pending = check(live, background=True)
    with torch.no_grad():
        for parameter in (live[0].weight, live[0].bias, live[1].bias):
            parameter += 1
    gate.set()
    with pytest.warns(UserWarning, match=CHANGED):
        outcome = pending.result()
    assert outcome.inconclusive == (f"0.bias and 2 more ({CHANGED})",)
    assert outcome.comparisons > 0


def test_a_write_that_torch_does_not_count_makes_no_finding(gate):
    """As those through `.data`. What the thread reads is wrong here, and what is there then is
    sound."""
    live = model()
    live[0].bias.data[0] = float("nan")
    pending = check(live, background=True)
    assert gate.reached.wait(30)
    gate.set()
    pending._behind.thread.join()
    live[0].bias.data[0] = 0
    with pytest.warns(UserWarning, match=GONE):
        outcome = pending.result()
    assert outcome.inconclusive == (f"0.bias ({GONE})",)
    live[0].bias.data[0] = float("nan")
    pending = check(live, background=True)
    live[0].bias.data[0] = float("nan")
    with pytest.raises(Mismatch, match="0.bias on rank 0: 1 NaN"):
        pending.result()


OPTIMIZERS = [
    (torch.optim.SGD, dict(lr=0.1, momentum=0.9, foreach=True)),
    (torch.optim.SGD, dict(lr=0.1, foreach=False)),
    (torch.optim.SGD, dict(lr=0.1, fused=True)),
    (torch.optim.Adam, dict(foreach=True)),
    (torch.optim.Adam, dict(foreach=False)),
    (torch.optim.AdamW, dict(fused=True)),
    (torch.optim.Adagrad, dict(fused=True)),
    (torch.optim.RMSprop, dict(foreach=True)),
    (torch.optim.LBFGS, dict()),
]


@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS)
def test_a_step_of_every_kind_is_seen(kind, options, gate):
    live = model()
    optimizer = kind(live.parameters(), **options)

    def loss():
        optimizer.zero_grad()
        value = live(torch.ones(4, 3)).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    pending = check(live, optimizer=optimizer, background=True)
    loss()
    other = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    other.step()
    assert not pending._behind._own.reading.stepped
    optimizer.step(loss)
    gate.set()
    with pytest.warns(UserWarning, match=CHANGED):
        outcome = pending.result()
    (line,) = outcome.inconclusive
    assert line == f"0.bias and {outcome.looked_at - 1} more ({CHANGED})"


def test_writes_through_data_are_not_counted():
    """If they ever are, the documentation is to say so."""
    live = nn.Linear(1, 1)
    (held, _) = _own.tensors_of(live, None, (), Statement()).values()
    before = version_of(held)
    live.bias.data.add_(1)
    assert version_of(held) == before
    live.bias.detach().add_(1)
    assert version_of(held) > before


def test_with_every_the_next_call_tells_whether_it_looks_or_not():
    live = model()
    with torch.no_grad():
        live[0].bias[0] = float("nan")
    pending = check(live, every=3, background=True)
    with pytest.raises(Mismatch):
        check(live, every=3, background=True)
    passed = check(live, every=3, background=True)
    assert pending.done and passed.done and not passed.result().looked
    with pytest.raises(Mismatch):
        check(live, every=3, background=True).result()


def test_with_a_budget_it_reads_a_window():
    live = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(300)])
    first = check(live, budget_s=10, background=True).result()
    assert 0 < first.looked_at < first.held == 300
    assert check(live, budget_s=10, background=True).result().looked_at > first.looked_at


def test_buffers_are_read_in_the_call_since_the_forward_writes_to_them(gate):
    live = nn.BatchNorm1d(2)
    pending = check(live, background=True)
    live(torch.ones(2, 2) * torch.arange(2))
    gate.set()
    assert pending.result().inconclusive == ()


def test_a_checkpoint_is_not_read_in_the_background(tmp_path):
    with pytest.raises(ValueError, match="against= reads files"):
        check(model(), background=True, against=tmp_path)


def test_what_cannot_be_read_is_told_by_the_result():
    with pytest.raises(RuntimeError, match="rank 0: TypeError: the model is a str"):
        check("no model", background=True).result()


def test_what_is_pending_keeps_no_model():
    live = model()
    gone = weakref.ref(live)
    check(live, background=True)
    del live
    for _ in range(50):
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.1)
    assert gone() is None


def test_a_process_that_ends_does_not_wait_for_the_reading():
    """The thread stops before its next tensor."""
    script = """
import time, torch, shardproof
from shardproof._judging import _own
digest_runs = _own._digest.digest_runs
_own._together._SMALL_BYTES = -1  # each is read alone
_own._digest.digest_runs = lambda *each: time.sleep(0.2) or digest_runs(*each)
shardproof.check(torch.nn.Sequential(*[torch.nn.Linear(1, 1) for _ in range(500)]), background=True)
"""
    begin = time.monotonic()
    package = os.path.dirname(os.path.dirname(shardproof.__file__))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": package},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 60 and "Traceback" not in done.stderr


def test_a_default_device_of_the_caller_does_not_disturb_the_result():
    live = model()
    with torch.no_grad():
        live[0].weight[1, 0] = float("inf")
    pending = check(live, background=True)
    pending._behind.thread.join()
    _digest._coverage.cache_clear()
    with torch.device("meta"), pytest.raises(Mismatch, match="0.weight"):
        pending.result()


def test_lists_within_lists_are_taken_as_in_the_call():
    live = model()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in live]
    pending = check(live, optimizer=[[optimizers[0]], optimizers[1]], background=True)
    assert pending.result().tensors == 4
