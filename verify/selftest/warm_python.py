#!/usr/bin/env -S python3 -I -S
"""A Python that has imported torch before it is started, for tests.

Every command of a test would pay for the imports of its standing process
(shardproof/_rank/_warm.py), and every script for its own, seconds of processor each. One server,
started by a fixture, imports once; what asks for it is a fork of that, with its own arguments,
environment, directory and pipes. If there is no server the real Python runs,
$SHARDPROOF_TORCH_PYTHON.

    warm_python.py start | stop       starts the server, or ends it
    warm_python.py run SCRIPT ...     runs a script in a fork
    warm_python.py ...                a Python for --python: of what it is asked to run, only the
                                      standing process is a fork

A fork ends as a Python does, and this program ends as its fork did. The server listens in a folder
of $SHARDPROOF_BUILD that only its user may enter. Idle for ten minutes, it ends by itself.
"""

import array
import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import time

IDLE_SECONDS = 600
MESSAGE_MAX = 1 << 20
STANDING = "_warm import serve"
PR_SET_PDEATHSIG = 1
STATUS = "i"  # a wait status, as it travels


def folder():
    path = os.path.join(os.environ["SHARDPROOF_BUILD"], "warm_python")
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


@contextlib.contextmanager
def address():
    """The server's, by a descriptor: the path itself may be longer than an address."""
    inside = os.open(folder(), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{inside}/socket"
    finally:
        os.close(inside)


def connected():
    """A connection to the server; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with address() as at:
            connection.connect(at)
    except OSError:
        return None
    return connection


def be_python(arguments):
    """This process as the server's fork, or as the real Python. Does not return."""
    runs = arguments[:1] == ["run"]
    words = arguments[1:] if runs else arguments
    standing = len(words) > 1 and words[0] == "-c" and STANDING in words[1]
    connection = connected() if runs or standing else None
    order = {"words": words, "environment": dict(os.environ), "directory": os.getcwd()}
    pipes = array.array("i", [0, 1, 2])
    try:
        connection.sendmsg([json.dumps(order).encode()],
                           [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pipes)])  # fmt: skip
    except (AttributeError, OSError):  # there is no server, or it has just ended
        real = os.environ["SHARDPROOF_TORCH_PYTHON"]
        os.execv(real, [real, *words])
    for number in pipes:
        os.close(number)  # they are the fork's: their end is told when that closes them
    told = connection.recv(struct.calcsize(STATUS))
    status = struct.unpack(STATUS, told)[0] if told else signal.SIGKILL
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def keep(connection):
    """Forks for one connection, and tells how the fork ended; ends it if nobody waits any more."""
    data, pipes, _, _ = socket.recv_fds(connection, MESSAGE_MAX, 3)
    if not data:
        return
    keeper, pid = os.getpid(), os.fork()
    if pid == 0:
        connection.close()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            become(json.loads(data), pipes)
        return
    for pipe in pipes:
        os.close(pipe)
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.send(struct.pack(STATUS, status))
    os._exit(0)


def become(order, pipes):
    """This process as what is asked for."""
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    first = [path for path in order["environment"].get("PYTHONPATH", "").split(":") if path]
    sys.path[:] = first + [path for path in sys.path if path not in first]
    # The package may be another one there.
    for name in [name for name in sys.modules if name.partition(".")[0] == "shardproof"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    words = order["words"]
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv[:] = words
        sys.path.insert(0, os.path.dirname(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def serve():
    """Imports, then forks for whoever connects, until nobody has for a long time."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with address() as at:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(at)
        server.bind(at)
    server.listen(16)
    from shardproof._rank._warm import preload

    preload()
    with contextlib.suppress(ImportError):
        import peft  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that keep
    server.settimeout(IDLE_SECONDS)
    print("ready", flush=True)
    while True:
        try:
            connection, _ = server.accept()
        except TimeoutError:
            return
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            keep(connection)
            return  # to the end of the program, as any Python does
        connection.close()


def start():
    """Starts the server in the background, in place of one that an earlier run has left. Returns
    when it has imported."""
    stop()
    words = [os.environ["SHARDPROOF_TORCH_PYTHON"], __file__, "server"]
    with open(os.path.join(folder(), "log"), "wb") as log:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=log, start_new_session=True)  # fmt: skip
    return 0 if server.stdout.readline() == b"ready\n" else 1


def stop():
    """Ends the server, if there is one."""
    while (connection := connected()) is not None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        connection.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(struct.unpack("3i", peer)[0], signal.SIGTERM)
        time.sleep(0.01)  # until it has ended
    return 0


def main(arguments):
    programs = {"start": start, "stop": stop, "server": serve}
    if len(arguments) == 1 and arguments[0] in programs:
        return programs[arguments[0]]()
    return be_python(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
