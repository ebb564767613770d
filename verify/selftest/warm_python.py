#!/usr/bin/env -S python3 -I -S
"""A Python that has imported torch before it is started, for tests.

Every command of a test would pay for the imports of its standing process (shardproof/_warm.py), and
every script for its own, seconds of processor each. One server, started by a fixture, imports once;
what asks for it is a fork of that, with its own arguments, environment, directory and pipes. If
there is no server the real Python runs, $SHARDPROOF_TORCH_PYTHON.

    warm_python.py start | stop       starts the server, or ends it
    warm_python.py run SCRIPT ...     runs a script in a fork
    warm_python.py ...                a Python for --python: of what it is asked to run, only the
                                      standing process is a fork

The server is found by a name made of $SHARDPROOF_BUILD. Idle for ten minutes, it ends by itself.
"""

import array
import contextlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

IDLE_SECONDS = 600
MESSAGE_MAX = 1 << 20
STANDING = "_warm import serve"


def address():
    return b"\0shardproof-warm-" + os.fsencode(os.path.realpath(os.environ["SHARDPROOF_BUILD"]))


def connected():
    """A connection to the server; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address())
    except OSError:
        return None
    return connection


def be_python(arguments):
    """This process as the server's fork, or as the real Python. Does not return."""
    runs = arguments[:1] == ["run"]
    words = arguments[1:] if runs else arguments
    standing = len(words) > 1 and words[0] == "-c" and STANDING in words[1]
    connection = connected() if runs or standing else None
    if connection is None:
        real = os.environ["SHARDPROOF_TORCH_PYTHON"]
        os.execv(real, [real, *words])
    order = {"words": words, "environment": dict(os.environ), "directory": os.getcwd()}
    pipes = array.array("i", [0, 1, 2])
    connection.sendmsg([json.dumps(order).encode()],
                       [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pipes)])  # fmt: skip
    for number in pipes:
        os.close(number)  # they are the fork's: their end is told when that closes them
    code = connection.recv(1)
    os._exit(code[0] if code else 1)


def become(connection):
    """A fork of the server as what the connection asks for. Returns its exit code."""
    data, pipes, _, _ = socket.recv_fds(connection, MESSAGE_MAX, 3)
    if not data:
        return 0
    order = json.loads(data)
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    first = [path for path in order["environment"].get("PYTHONPATH", "").split(":") if path]
    sys.path[:] = first + [path for path in sys.path if path not in first]
    words = order["words"]
    try:
        if words[0] == "-c":
            sys.argv[:] = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        else:
            sys.argv[:] = words
            sys.path.insert(0, os.path.dirname(words[0]))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def accept_all(server):
    """Imports, then forks for whoever connects, until nobody has for a long time."""
    from shardproof._warm import preload

    preload()
    with contextlib.suppress(ImportError):
        import peft  # noqa: F401
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    server.listen()
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
            code = become(connection)
            sys.stdout.flush()
            sys.stderr.flush()
            with contextlib.suppress(OSError):  # nobody waits for it any more
                connection.send(bytes([code]))
            os._exit(code)
        connection.close()


def start():
    """Starts the server in the background, in place of one that an earlier run has left. Returns
    when it has imported."""
    stop()
    words = [os.environ["SHARDPROOF_TORCH_PYTHON"], __file__, "server"]
    with open(os.path.join(os.environ["SHARDPROOF_BUILD"], "warm_python.log"), "wb") as log:
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=log, start_new_session=True)  # fmt: skip
    return 0 if server.stdout.readline() == b"ready\n" else 1


def stop():
    """Ends the server, if there is one."""
    while (connection := connected()) is not None:
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        os.kill(struct.unpack("3i", peer)[0], signal.SIGTERM)
        connection.close()
        time.sleep(0.01)  # until its address is free
    return 0


def main(arguments):
    if arguments == ["start"]:
        return start()
    if arguments == ["stop"]:
        return stop()
    if arguments == ["server"]:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(address())
        return accept_all(server)
    return be_python(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
