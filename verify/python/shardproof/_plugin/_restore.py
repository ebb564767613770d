"""What a test may change in a process that other tests have after it, and how it is put back."""

import contextlib
import io
import os
import random
import signal
import sys
import threading
import time
import warnings

import torch

_THREADS_END_S = 0.2
# Processes that Python and torch start once and keep.
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
_COMMAND_MAX = 60
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGHUP)


def seed():
    """The same random numbers for every test, on all ranks, whatever ran before."""
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


@contextlib.contextmanager
def kept():
    """What the body of a test changes of its process is put back."""
    streams = [os.dup(fd) for fd in (0, 1, 2)]
    names = ("stdin", "stdout", "stderr")
    objects = [getattr(sys, name) for name in names]
    environment, directory, path = dict(os.environ), _directory(), list(sys.path)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    settings = _Settings()
    try:
        yield
    finally:
        for fd, saved in enumerate(streams):
            os.dup2(saved, fd)
            os.close(saved)
        for name, each in zip(names, objects, strict=True):
            if getattr(sys, name) is not each or each.closed:
                setattr(sys, name, each if not each.closed else _reopened(name))
        _put_back(os.environ, environment)
        if directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(directory)
        sys.path[:] = path
        signal.alarm(0)
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        settings.put_back()


def _directory():
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _put_back(now, before):
    if dict(now) != before:
        now.clear()
        now.update(before)


def _reopened(name):
    fd = ("stdin", "stdout", "stderr").index(name)
    return stream_to(fd) if fd else open(os.devnull)


def stream_to(fd):
    """Text for a descriptor, none of which is held back: a rank may end at any time."""
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


class _Settings:
    """Torch's own, of this process and this thread."""

    def __init__(self):
        self._dtype = torch.get_default_dtype()
        self._device = torch.get_default_device()
        self._threads = torch.get_num_threads()
        self._grad = torch.is_grad_enabled()
        self._precision = torch.get_float32_matmul_precision()
        self._deterministic = torch.are_deterministic_algorithms_enabled()
        self._warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        self._fill = torch.utils.deterministic.fill_uninitialized_memory
        self._autocast = torch.is_autocast_enabled("cpu")

    def put_back(self):
        torch.set_default_dtype(self._dtype)
        if torch.get_default_device() != self._device:
            torch.set_default_device(self._device if self._device.type != "cpu" else None)
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        torch.set_grad_enabled(self._grad)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_float32_matmul_precision(self._precision)
        now = torch.are_deterministic_algorithms_enabled()
        now_warns = torch.is_deterministic_algorithms_warn_only_enabled()
        if (now, now_warns) != (self._deterministic, self._warn_only):
            torch.use_deterministic_algorithms(self._deterministic, warn_only=self._warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = self._fill
        torch.set_autocast_enabled("cpu", self._autocast)


class Left:
    """What a test leaves behind that cannot be put back: threads and processes."""

    def __init__(self):
        self._threads = set(threading.enumerate())
        self._processes = set(_children())

    def found(self) -> list[str]:
        """A word for each kind; none if it is gone within a moment."""
        end = time.monotonic() + _THREADS_END_S
        while (threads := self._new_threads()) and time.monotonic() < end:
            time.sleep(0.01)
        found = [f"the thread {each.name}" for each in threads]
        left = {pid: _command_of(pid) for pid in set(_children()) - self._processes}
        return found + [
            f"the process {command or pid}"
            for pid, command in left.items()
            if not any(helper in command for helper in _HELPERS)
        ]

    def _new_threads(self):
        new = [each for each in threading.enumerate() if each not in self._threads]
        return [each for each in new if each.is_alive() and not _is_harmless(each)]


def _is_harmless(thread) -> bool:
    """Progress bars have one that stays."""
    return type(thread).__module__.partition(".")[0] == "tqdm"


def _children() -> list[int]:
    """Those that run. Whose they are will wait for those that have ended."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as children:
            found += [pid for pid in map(int, children.read().split()) if _runs(pid)]
    return found


def _command_of(pid) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = " ".join(words)
    if any(helper in text for helper in _HELPERS) or len(text) <= _COMMAND_MAX:
        return text
    return text[:_COMMAND_MAX] + "..."


def _runs(pid) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
