"""The process that forks the ranks of the pytest plugin: imports once, then forks what is asked
for.

Reads packets {"fork": number, "files": [stdout, stderr, stack]} with the descriptor of the rank's
channel, and {"kill": number}, from the socket whose descriptor is its argument; writes {"ready":
...} or {"refusal": why}, {"forked": number, "pid": pid} and {"ended": number, "status": wait
status}. It adopts what its ranks leave behind and ends it, and ends with its last rank when pytest
does.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PACKET = 1 << 18
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_TORCH = (
    "torch", "torch.distributed", "torch.distributed.checkpoint",
    "torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp",
    "torch.distributed.device_mesh", "torch.distributed.tensor", "torch._dynamo",
)  # fmt: skip


def preload(names, plugins) -> str:
    """Imports torch, and what pytest's own process has of installed packages. \\returns why not."""
    try:
        for name in _TORCH:
            importlib.import_module(name)
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    for name in names:
        with contextlib.suppress(BaseException):
            importlib.import_module(name)
    from .._checking import _check  # noqa: F401
    from .._judging import _transport  # noqa: F401
    from . import _worker  # noqa: F401

    if plugins is not None:
        with contextlib.suppress(BaseException):
            _import_plugins(plugins)
    return ""


def _import_plugins(names):
    """As pytest does, with assertions rewritten, so that a rank's session finds them imported."""
    from _pytest.config import Config

    options = {"plugins": names, "capture": "no", "noconftest": True}
    Config.fromdictargs(options, [])._ensure_unconfigure()


def _gpus() -> "int | None":
    """How many NCCL could use; None without it. Begins no work on them."""
    import torch

    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    return torch.cuda.device_count()


class Forker:
    def __init__(self, control: socket.socket):
        self._control = control
        self._ranks: dict[int, int] = {}  # pid: number
        self._pid = os.getpid()

    def say(self, **message):
        with contextlib.suppress(OSError):
            self._control.send(json.dumps(message).encode())

    def serve(self):
        """Until pytest ends."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while True:
            readable, _, _ = select.select([self._control, woken], [], [])
            if woken in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(woken, 4096)
            self._reap()
            if self._control in readable:
                data, fds, _, _ = socket.recv_fds(self._control, _PACKET, 4)
                if not data:
                    return
                self._obey(json.loads(data), fds)

    def end(self):
        """Ends all that descends from this process, however often that forks meanwhile."""
        while children := _children():
            for pid in children:
                _kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(children[0], 0)

    def _obey(self, order, fds):
        if "fork" in order:
            self._fork(order, fds[0])
            os.close(fds[0])
        for pid, number in list(self._ranks.items()):
            if number == order.get("kill"):
                _kill(pid)

    def _fork(self, order, fd):
        pid = os.fork()
        if pid:
            self._ranks[pid] = order["fork"]
            self.say(forked=order["fork"], pid=pid)
            return
        try:
            self._become_rank(order["files"])
            from . import _worker

            _worker.main(socket.socket(fileno=fd), os.open(order["files"][2], _APPEND))
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(70)
        os._exit(0)

    def _become_rank(self, files):
        """A session of its own, which Ctrl-C does not reach, and files for what it prints."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(70)
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._control.close()
        for number, path in enumerate(files[:2], 1):
            opened = os.open(path, _APPEND)
            os.dup2(opened, number)
            os.close(opened)

    def _reap(self):
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._ranks:
                    self._end_what_is_left(pid)
                    self.say(ended=self._ranks.pop(pid), status=status)

    def _end_what_is_left(self, pid):
        """By a rank that has ended: its process group, and what has come to us as orphans."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        for orphan in _children():
            if orphan not in self._ranks:
                _kill(orphan)


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def _kill(pid):
    """The process and its group, if it leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Of this process, by what /proc says of every process's parent."""
    own, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                if stat.read().rpartition(b")")[2].split()[1].decode() == own:
                    found.append(int(name))
    return found


def _end_with_pytest(parent):
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit
    for number in _ENDING:
        signal.signal(number, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest is told, and ends us


def _leave(number, frame):
    raise SystemExit


def main(fd: int, parent: int, names: list, plugins: "list | None"):
    """fd: the control socket; parent: pytest's pid; names: of modules to import beforehand;
    plugins: those of pytest's -p; None if those of pytest are not to be imported beforehand."""
    forker = Forker(socket.socket(fileno=fd))
    try:
        _end_with_pytest(parent)
        why = preload(names, plugins)
        threads = len(os.listdir("/proc/self/task"))
        if why or threads != 1:
            forker.say(refusal=why or f"{threads} threads run after the imports", threads=threads)
            return
        gc.collect()
        gc.freeze()  # so that the ranks' collectors do not touch, and copy, these pages
        forker.say(ready=True, gpus=_gpus())
        forker.serve()
    finally:
        try:
            for number in _ENDING:
                signal.signal(number, signal.SIG_IGN)
        finally:
            forker.end()
