"""What a process holds at a stage, where it was at its peak, and who holds and allocated it."""

import collections
import gc
import json
import mmap
import os
import sys
import threading
import time
import tracemalloc
import types

import pytest
import torch
from torch import nn

from shardproof._memory import _pages, _snapshot, _stage, _watcher
from shardproof._memory._holders import foreign, holders
from shardproof._memory._stacks import short, stacks_in
from shardproof._memory._stage import StageMemory
from shardproof._memory._tracer import Tracer
from shardproof._observing._evidence import Writer, on_one_axis
from shardproof._observing._observer import Observer

MIB = 1 << 20


@pytest.fixture
def watch():
    watch = _watcher.Watch()
    yield watch
    watch.stop()


@pytest.fixture
def observe(tmp_path, watch):
    """An Observer that has memory watched. observe.held(): what it has recorded of that."""
    writer = Writer(tmp_path, 0)
    observer = Observer(writer, on_one_axis(0, 1), "values", [])
    observer.watch_memory(StageMemory(writer, watch))

    def held():
        lines = (tmp_path / "rank_0.measures.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["record"] == "held"]

    observer.held = held
    return observer


def eventually(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def a_copy_that_goes(watch, mib=64):
    before = watch.read()[0]
    copy = [torch.ones(mib * MIB // 4)]
    eventually(lambda: watch._peak.anonymous >= before + (mib - 16) * MIB)
    eventually(lambda: watch._peak.dump)
    copy.clear()


def sums(record):
    return {one["of"]: one["bytes"] for one in record["tensors"]}


def test_a_peak_between_two_stages_is_seen_with_the_place_it_was_in(observe, watch):
    model = nn.Linear(4, 4)
    observe("loaded", model=model)
    a_copy_that_goes(watch)
    observe("ready", model=model)
    observe("stepped", model=model, step=1)
    _, ready, stepped = observe.held()
    assert ready["peak"]["anonymous_bytes"] >= ready["anonymous_bytes"] + 48 * MIB
    (stack, *_) = ready["peak"]["stacks"]
    assert any("_memory_test.py" in frame and frame.endswith("a_copy_that_goes") for frame in stack)
    assert not any("_watcher" in frame or "_observer" in frame for frame in stack)
    # The peak of one stage is not that of the next.
    assert stepped["peak"]["anonymous_bytes"] < ready["peak"]["anonymous_bytes"] - 40 * MIB


def test_tensors_are_counted_once_and_by_whose_they_are(observe):
    model = nn.Linear(512, 512, bias=False)
    model.tied = model.weight
    model.register_buffer("mask", torch.zeros(512, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
    before = sums_of_others()
    kept = torch.ones(MIB)
    views = [kept[:5], kept.view(2, -1)]
    observe("ready", model=model, optimizer=optimizer)
    found = sums(observe.held()[0])
    assert {found[kind] for kind in ("parameter", "buffer", "gradient", "optimizer")} == {MIB}
    assert abs(found["other"] - before - kept.nbytes) < MIB // 2
    del views


def sums_of_others():
    """Bytes of tensors that other tests have left: no model is accounted for."""
    gc.collect()
    return sum(size for _, size in foreign(set()).values()) - 4 * MIB


def test_others_are_looked_for_again_where_memory_came_that_no_model_accounts_for(
    observe, monkeypatch
):
    looks = []

    def looked(accounted):
        looks.append(1)
        return foreign(accounted)

    monkeypatch.setattr(_stage._holders, "foreign", looked)
    model = nn.Linear(4, 4)
    for _ in range(3):
        observe("ready", model=model)
    few = len(looks)  # the second may have brought what was imported late
    kept = torch.ones(8 * MIB)
    observe("ready", model=model)
    assert few < 3 and len(looks) == few + 1
    first, *_, last = map(sums, observe.held())
    assert last["other"] - first.get("other", 0) >= kept.nbytes - MIB
    assert observe.held()[1]["proportional"]["anonymous_bytes"] > 0


def test_an_optimizer_is_accounted_for_where_its_state_is_not_observed(observe):
    model = nn.Linear(512, 512, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 512)).sum().backward()
    optimizer.step()
    observe.note_optimizers(optimizer)
    observe("saved", model=model)
    assert sums(observe.held()[0])["optimizer"] == MIB


def test_mapped_tensors_are_not_anonymous_memory(observe, tmp_path):
    path = tmp_path / "mapped"
    path.write_bytes(b"\0" * 4 * MIB)
    model = nn.Module()
    model.register_buffer("mapped", torch.from_file(str(path), size=MIB, dtype=torch.float32))
    model.register_buffer("own", torch.zeros(MIB))
    model.mapped.sum()
    observe("ready", model=model)
    (buffers,) = [one for one in observe.held()[0]["tensors"] if one["of"] == "buffer"]
    assert buffers["bytes"] == 8 * MIB
    assert 3 * MIB <= buffers["anonymous_bytes"] <= 4 * MIB


def test_without_a_device_there_is_none_on_record(observe):
    observe("ready", model=nn.Linear(2, 2))
    if not torch.cuda.is_available():
        assert "devices" not in observe.held()[0]
        assert "pinned_bytes" not in observe.held()[0]


def test_shared_memory_is_told_apart_and_by_part(observe):
    shared = mmap.mmap(-1, 32 * MIB)
    shared[:] = b"x" * (32 * MIB)
    observe("ready", model=nn.Linear(2, 2))
    (record,) = observe.held()
    assert record["shared_bytes"] >= 32 * MIB
    assert record["proportional"]["shared_bytes"] >= 32 * MIB  # nobody else maps it
    child = os.fork()
    if child == 0:
        while shared[0] != ord("y"):
            sum(shared[:: mmap.PAGESIZE])  # both have its pages now
            time.sleep(0.01)
        os._exit(0)
    try:
        eventually(lambda: part_of_shared(observe) < 20 * MIB)
    finally:
        shared[0] = ord("y")
        os.waitpid(child, 0)


def part_of_shared(observe):
    observe("ready", model=nn.Linear(2, 2))
    record = observe.held()[-1]
    assert record["shared_bytes"] >= 32 * MIB
    return record["proportional"]["shared_bytes"]


def test_no_thread_of_the_watch_is_there_while_the_job_forks(monkeypatch):
    monkeypatch.setattr(_watcher, "_watch", None)
    watch = _watcher.start()
    try:
        threads = lambda: {int(name) for name in os.listdir("/proc/self/task")}
        with_it = threads()
        _watcher._before_fork()
        # A thread that was joined is listed for a moment still; others may come and go.
        eventually(lambda: with_it - threads())
        _watcher._after_fork()
        child = os.fork()
        if child == 0:
            os._exit(0 if _watcher.current() is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert watch._stop is not None  # and it goes on here
        assert not any("shardproof" in each.name.lower() for each in threading.enumerate())
    finally:
        watch.stop()


def test_a_watch_that_fails_says_so_and_ends_nothing(monkeypatch):
    watch = _watcher.Watch()
    monkeypatch.setattr(_watcher, "contents", lambda name: 1 / 0)
    eventually(lambda: watch.failure)
    assert "ZeroDivisionError" in watch.failure
    watch.stop()


def test_stacks_are_the_main_thread_and_those_that_do_not_wait():
    main = threading.main_thread().ident
    dump = f"""Thread 0x{7:016x} (most recent call first):
  File "/x/lib/threading.py", line 320 in wait
Thread 0x{8:016x} (most recent call first):
  File "/x/y/loads.py", line 3 in load
Thread 0x{9:016x} (most recent call first):
  File "/x/y/watch.py", line 3 in run
Current thread 0x{main:016x} (most recent call first):
  File "{_watcher.__file__}", line 8 in sample
  File "/x/y/train.py", line 30 in loaded
  File "<frozen runpy>", line 88 in _run_code
"""
    assert stacks_in(dump.encode(), {9}) == [["y/train.py:30 loaded"], ["y/loads.py:3 load"]]


def test_a_file_is_named_by_its_package():
    assert short(torch.nn.functional.__file__) == "torch/nn/functional.py"
    assert short(json.__file__) == "json/__init__.py"
    assert short(os.path.join(os.getcwd(), "train.py")) == "train.py"


class Keeper:
    def __init__(self, state):
        self.state = state


def test_holders_are_named():
    def told(known=()):
        gc.collect()
        return {each["what"]: each for each in holders(foreign(set(known)), 2 * MIB)}

    def of_a_closure(big):
        return lambda: big.sum()

    def of_a_generator(big):
        yield
        yield big

    local = {"a": torch.ones(MIB), "b": [torch.ones(MIB)]}
    loader = Keeper(collections.OrderedDict(a=torch.ones(MIB)))  # as torch.load gives states
    closure = of_a_closure(torch.ones(MIB))
    generator = of_a_generator(torch.ones(MIB))
    next(generator)
    hidden = types.ModuleType("hidden_module")
    hidden.__file__ = "/x/y/hidden_module.py"
    hidden.CACHE = [Keeper({"w": torch.ones(MIB)})]
    sys.modules["hidden_module"] = hidden
    try:
        found = told()
        here = "test_holders_are_named"
        assert found[f"`local` in {here}"]["bytes"] == 8 * MIB
        assert found[f"`local` in {here}"]["count"] == 2
        assert found[f"`loader` in {here}"]["bytes"] == 4 * MIB
        assert "_memory_test.py:" in found[f"`local` in {here}"]["stack"][0]
        assert any(what.startswith(("`closure` in", "closure of")) for what in found), found
        assert any("generator" in what for what in found), found
        assert any("Keeper" in what or "CACHE" in what for what in found), found
        assert f"`local` in {here}" not in told(
            each.untyped_storage().data_ptr() for each in (local["a"], local["b"][0])
        )
    finally:
        del sys.modules["hidden_module"]
    del closure, loader


def test_looking_for_holders_keeps_nothing_alive(watch):
    big = torch.ones(16 * MIB)
    assert any("`big`" in each["what"] for each in holders(foreign(set()), 8 * MIB))
    before = watch.read()[0]
    del big
    assert watch.read()[0] < before - 48 * MIB


def test_what_python_has_allocated_at_its_peak_is_told_by_stack():
    was = tracemalloc.is_tracing()
    tracer = Tracer()
    try:
        tracer.begin()
        held = bytearray(48 * MIB)
        tracer.sample()
        del held
        tracer.sample()
        largest = tracer.found()[0]
        assert largest["bytes"] >= 48 * MIB
        assert "_memory_test.py:" in largest["stack"][0]
        tracer.begin()
        assert tracer.found() == []
    finally:
        if not was:
            tracemalloc.stop()


def frame(line, name="load", file="/x/y/train.py"):
    return {"filename": file, "line": line, "name": name}


def event(action, addr, size, time_us, *frames):
    return {"action": action, "addr": addr, "size": size, "time_us": time_us, "stream": 0,
            "frames": list(frames)}  # fmt: skip


def a_snapshot(*events):
    """One block is live now: 100 bytes at 1000, allocated in line 1."""
    blocks = [{"size": 100, "state": "active_allocated", "frames": [frame(1)], "address": 1000},
              {"size": 50, "state": "inactive", "frames": [], "address": 1100}]  # fmt: skip
    segments = [{"device": 0, "address": 1000, "total_size": 150, "blocks": blocks}]
    return {"segments": segments, "device_traces": [list(events)]}


def test_the_largest_at_the_peak_of_a_device_are_told_by_stack():
    found, last = _snapshot.at_peak(a_snapshot(
        event("alloc", 1000, 100, 10, frame(1)),
        event("alloc", 5000, 700, 11, frame(2, "copy"), frame(9, "main")),
        event("alloc", 6000, 200, 12, frame(2, "copy"), frame(9, "main")),
        event("free_requested", 5000, 700, 13),
        event("free_completed", 5000, 700, 13),
        event("free_requested", 6000, 200, 14),
        event("free_completed", 6000, 200, 14),
        event("alloc", 7000, 300, 15, frame(3)),
        event("free_requested", 7000, 300, 16),
        event("free_completed", 7000, 300, 16),
    ))  # fmt: skip
    assert [(each["bytes"], each["count"], each["stack"]) for each in found] == [
        (900, 2, ["y/train.py:2 copy", "y/train.py:9 main"]), (100, 1, ["y/train.py:1 load"]),
    ]  # fmt: skip
    assert last == 16
    later, _ = _snapshot.at_peak(
        a_snapshot(event("alloc", 5000, 700, 11, frame(2)), event("free_requested", 5000, 700, 13)),
        after_us=13,
    )
    assert [each["bytes"] for each in later] == [100]


def test_a_history_that_was_cut_short_still_gives_the_peak():
    found, _ = _snapshot.at_peak(a_snapshot(event("free_requested", 5000, 700, 13)))
    assert [(each["bytes"], each["stack"]) for each in found] == [
        (700, []), (100, ["y/train.py:1 load"]),
    ]  # fmt: skip


def test_pages_of_a_range_are_told_apart():
    size = 64 * mmap.PAGESIZE
    own = torch.zeros(size, dtype=torch.uint8) + 1
    anonymous, elsewhere = _pages.resident_bytes(own.data_ptr(), own.nbytes)
    assert (anonymous, elsewhere) == (size, 0)
    shared = mmap.mmap(-1, size)
    shared[:] = b"x" * size
    view = torch.frombuffer(shared, dtype=torch.uint8)
    assert _pages.resident_bytes(view.data_ptr(), size) == (0, size)
    assert _pages.resident_bytes(view.data_ptr(), 0) == (0, 0)
