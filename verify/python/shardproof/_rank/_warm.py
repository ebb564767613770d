"""The standing process: imports once, then forks a rank for every order.

Reads lines {"begin": rank, "order": path, "stdout": path, "stderr": path} and {"end": rank} from
stdin; writes {"ready": true}, {"refusal": why}, {"rank": rank, "pid": pid} and
{"rank": rank, "status": wait status} to stdout.
Ends when stdin does, and its ranks with it.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys

from . import _rank

_PR_SET_PDEATHSIG = 1


def preload():
    """What nearly every subject imports; what is not installed is left to the subject to miss.

    Also what those import only when they are used: it would be imported in every rank of every
    phase.
    """
    import torch._dynamo
    import torch._inductor
    import torch.distributed.checkpoint
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.tensor  # noqa: F401

    try:
        import safetensors.torch  # noqa: F401
        from transformers import AutoModelForCausalLM  # noqa: F401
        from transformers.models.llama import modeling_llama  # noqa: F401
        from transformers.models.qwen3 import modeling_qwen3  # noqa: F401
    except ImportError:
        pass


class Forker:
    def __init__(self, say):
        self._say = say
        self._ranks: dict[int, int] = {}  # pid: rank
        self._parent = os.getpid()

    def obey(self, order: dict):
        if "begin" in order:
            self._begin(order)
        for pid, rank in list(self._ranks.items()):
            if rank == order.get("end"):
                _kill_group(pid)

    def _begin(self, order):
        pid = os.fork()
        if pid:
            _lead_group(pid)
            self._ranks[pid] = order["begin"]
            self._say({"rank": order["begin"], "pid": pid})
            return
        code = 5
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self._parent:
                os._exit(5)
            _lead_group(0)
            _become_rank(order)
            code = _rank.run_rank(order["order"], order["begin"])
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def reap(self):
        while self._ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self._ranks:
                _kill_group(pid)  # what the subject started and left behind
                self._say({"rank": self._ranks.pop(pid), "status": status})


def _lead_group(pid):
    """Parent and child both do, so that it is done whoever comes first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, 0)


def _kill_group(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _become_rank(order):
    """Files of its own instead of the pipes, and no signal handling of ours."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, path, flags in (
        (0, "/dev/null", os.O_RDONLY),
        (1, order["stdout"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, order["stderr"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        fd = os.open(path, flags, 0o666)
        os.dup2(fd, number)
        os.close(fd)


def serve():
    news = os.dup(1)
    os.dup2(2, 1)  # what an import prints is no news

    def say(record):
        os.write(news, json.dumps(record).encode() + b"\n")

    preload()
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        say({"refusal": f"{threads} threads run after the imports: forking is not safe"})
        return
    gc.collect()
    gc.freeze()  # so that the children's collector does not touch, and copy, these pages
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    say({"ready": True})
    forker = Forker(say)
    unread = b""
    while True:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        forker.reap()
        if 0 in readable:
            data = os.read(0, 65536)
            if not data:
                return
            unread += data
            *lines, unread = unread.split(b"\n")
            for line in lines:
                forker.obey(json.loads(line))
