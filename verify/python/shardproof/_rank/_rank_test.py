import threading
import time

import pytest
import torch

from shardproof._observing import _imports, _random
from shardproof._rank import _rank
from shardproof._rank._rank import MemorySampler, _held_below, anonymous_bytes, load_subject

MIB = 1 << 20


def test_memory_that_is_written_is_counted():
    before = anonymous_bytes()
    kept = bytearray(b"x") * (64 * MIB)
    grown = anonymous_bytes() - before
    assert 60 * MIB < grown < 80 * MIB
    del kept


def test_a_peak_between_two_stages_is_seen_with_the_stage_it_fell_in():
    told = []

    class Writer:
        def memory(self, *_):
            pass

        def memory_summary(self, **fields):
            told.append(fields)

    sampler = MemorySampler(Writer())
    sampler.stage("loaded")
    kept = bytearray(b"x") * (64 * MIB)
    sampler.sample()
    del kept
    sampler.stage("ready")
    sampler.finish(own_bytes=7)
    (summary,) = told
    assert summary["peak_bytes"] - summary["idle_bytes"] > 50 * MIB
    assert (summary["peak_stage"], summary["own_shard_bytes"]) == ("loaded", 7)


def test_a_reading_belongs_to_the_stage_it_was_begun_in(monkeypatch):
    told = []
    begun = threading.Event()

    class Writer:
        def memory(self, *_):
            pass

        def memory_summary(self, **fields):
            told.append(fields)

    def slow_in_the_thread():
        if threading.current_thread() is threading.main_thread():
            return 1
        begun.set()
        time.sleep(0.05)
        return 100

    monkeypatch.setattr(_rank, "anonymous_bytes", slow_in_the_thread)
    sampler = MemorySampler(Writer())
    begun.wait()
    sampler._stop.set()
    sampler.stage("ready")
    sampler.finish(own_bytes=7)
    assert (told[0]["peak_bytes"], told[0]["peak_stage"]) == (100, "start")


def test_files_that_are_still_open_below_a_directory_are_named(tmp_path):
    (tmp_path / "save").mkdir()
    with open(tmp_path / "save/a", "w"), open(tmp_path / "save2", "w"):
        assert _held_below(str(tmp_path / "save")) == ["descriptor of save/a"]
    assert _held_below(str(tmp_path / "save")) == []


def test_a_subject_may_import_what_lies_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    (tmp_path / "beside_it.py").write_text("VALUE = 3\n")
    (tmp_path / "subject.py").write_text("from beside_it import VALUE\n")
    assert load_subject(str(tmp_path / "subject.py")).VALUE == 3
    with pytest.raises(FileNotFoundError):
        load_subject(str(tmp_path / "none.py"))


def test_a_job_that_asks_for_the_generators_state_is_known(monkeypatch, request):
    original = torch.get_rng_state
    monkeypatch.setattr(_random, "_asked", False)
    _random.listen()
    request.addfinalizer(lambda: _imports.replace(torch.get_rng_state, original))
    before = _random.digest()
    with torch.random.fork_rng(devices=[]):
        assert not _random.was_asked_for()
    assert torch.equal(torch.get_rng_state(), torch.default_generator.get_state())
    assert _random.was_asked_for()
    torch.rand(1)
    assert _random.digest() != before
