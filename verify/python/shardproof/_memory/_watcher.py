"""Watches how much host memory this process holds, and where the job is when it holds most.

A thread reads /proc/self/status. It is none of threading's, and it is not there while the process
forks, so the job and its forks are as they would be without it. Of the job's frames nothing is kept
alive: where its threads are is written down by faulthandler, which makes no frame objects.
"""

import _thread
import faulthandler
import os
import time

from ._seldom import Seldom
from ._stacks import stacks_in

INTERVAL_S = 0.010
_DUMP_GROWTH_BYTES = 8 << 20
_DUMP_GROWTH_PARTS = 32  # a dump each time that so much of what is held has been added
_CONTENTS_BYTES_MAX = 8192
_DUMP_BYTES_MAX = 1 << 20
_STOP_S = 5.0


def contents(name: str) -> bytes:
    """Of /proc/self/NAME."""
    file = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _CONTENTS_BYTES_MAX)
    finally:
        os.close(file)


def field(status: bytes, name: bytes) -> int:
    """Of /proc/self/status or smaps_rollup, in bytes; 0 if the kernel does not tell."""
    at = status.find(b"\n" + name + b":")
    if at < 0:
        return 0
    return int(status[at + len(name) + 2 : status.find(b" kB", at)]) << 10


class Peak:
    """The most since a stage, in bytes: of each, and of both together, which was at time_ms. dump:
    where all threads were when both were dumped_at, as faulthandler writes it."""

    def __init__(self, anonymous: int, shared: int, time_ms: float):
        self.anonymous, self.shared, self.time_ms = anonymous, shared, time_ms
        self.total = self.dumped_at = anonymous + shared
        self.dump = b""

    def add(self, anonymous: int, shared: int, time_ms: float):
        self.anonymous = max(self.anonymous, anonymous)
        self.shared = max(self.shared, shared)
        if anonymous + shared > self.total:
            self.total, self.time_ms = anonymous + shared, time_ms


class Watch:
    """tracer: has sample(), called at each reading, and is told when others are not to be seen."""

    def __init__(self, tracer=None):
        self.tracer = tracer
        self.failure = ""  # why there are no readings any more
        self._begun = time.monotonic()
        self._lock = _thread.allocate_lock()
        self._stop = self._stopped = None
        self._paused = False
        self._dumps = Seldom()
        self._thread = 0
        self._peak = Peak(*self.read(), 0.0)
        self.start()

    def read(self) -> tuple[int, int]:
        """\\returns anonymous and shared memory of this process, in bytes."""
        status = contents("status")
        return field(status, b"RssAnon"), field(status, b"RssShmem")

    def elapsed_ms(self) -> float:
        return (time.monotonic() - self._begun) * 1000

    # ---- The thread

    def start(self):
        if self._stop is None and not self.failure:
            self._stop, self._stopped = _thread.allocate_lock(), _thread.allocate_lock()
            self._stop.acquire()
            self._stopped.acquire()
            _thread.start_new_thread(self._run, (self._stop, self._stopped))

    def stop(self):
        stop, self._stop = self._stop, None
        if stop is not None:
            stop.release()
            self._stopped.acquire(timeout=_STOP_S)

    def _run(self, stop, stopped):
        try:
            self._thread = _thread.get_ident()
            while not stop.acquire(timeout=INTERVAL_S):
                self.sample()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        finally:
            stopped.release()

    def sample(self):
        with self._lock:
            if self._paused:
                return
            anonymous, shared = self.read()
            peak, total = self._peak, anonymous + shared
            peak.add(anonymous, shared, self.elapsed_ms())
            growth = max(_DUMP_GROWTH_BYTES, peak.dumped_at // _DUMP_GROWTH_PARTS)
            if total >= peak.dumped_at + growth and self._dumps.is_due():
                with self._dumps:
                    peak.dump, peak.dumped_at = self._dumped(), total
            if self.tracer is not None:
                self.tracer.sample()

    def _dumped(self) -> bytes:
        # A descriptor that was kept could be another's by now: jobs close what they do not know.
        file = os.memfd_create("shardproof-stacks", os.MFD_CLOEXEC)
        try:
            faulthandler.dump_traceback(file, all_threads=True)
            return os.pread(file, _DUMP_BYTES_MAX, 0)
        finally:
            os.close(file)

    # ---- At a stage

    def take(self) -> Peak:
        """The peak since the last stage; nothing is read until go_on()."""
        self.sample()
        with self._lock:
            self._paused = True
            return self._peak

    def go_on(self):
        """What was needed to observe the stage is no part of the next one's peak."""
        with self._lock:
            self._peak = Peak(*self.read(), self.elapsed_ms())
            if self.tracer is not None:
                self.tracer.begin()
            self._paused = False

    def stacks_of(self, peak: Peak) -> list[list[str]]:
        """Where the job was, innermost frame first; the main thread's frames come first."""
        return stacks_in(peak.dump, {self._thread})


_watch = None


def current() -> Watch | None:
    return _watch


def start(tracer=None) -> Watch:
    """The watch of this process, from now on."""
    global _watch
    if _watch is None:
        _watch = Watch(tracer)
        _at_forks()
    return _watch


def stop():
    """Nothing is read any more; what was read can still be taken."""
    if _watch is not None:
        _watch.stop()


_is_told_of_forks = False


def _at_forks():
    global _is_told_of_forks
    if not _is_told_of_forks:
        _is_told_of_forks = True
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget
        )


_was_running = False


def _before_fork():
    global _was_running
    _was_running = _watch is not None and _watch._stop is not None
    if _was_running:
        _watch.stop()


def _after_fork():
    if _was_running and _watch is not None:
        _watch.start()


def _forget():
    """A fork is a process of its own, of which nothing was asked."""
    global _watch
    _watch = None
