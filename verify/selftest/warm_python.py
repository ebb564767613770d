#!/usr/bin/env -S python3 -I -S
"""A Python for --python that has imported torch before it is started.

Every command of a test would pay for the imports of its standing process (shardproof/_warm.py),
seconds of processor each. One server, started by a fixture, imports once; what is asked to be a
standing process is forked from it, with its own arguments, environment, directory and pipes.
Whatever else this is asked to run, and all if there is no server, the real Python runs.

    warm_python.py start | stop      starts the server, or ends it
    warm_python.py ...               as python3 ..., the real one being $SHARDPROOF_TORCH_PYTHON

The server is found by a name made of $SHARDPROOF_BUILD. Idle for ten minutes, it ends by itself.
"""

import array
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

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
    standing = len(arguments) > 1 and arguments[0] == "-c" and STANDING in arguments[1]
    connection = connected() if standing else None
    if connection is None:
        real = os.environ["SHARDPROOF_TORCH_PYTHON"]
        os.execv(real, [real, *arguments])
    order = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    pipes = array.array("i", [0, 1, 2])
    connection.sendmsg([json.dumps(order).encode()],
                       [(socket.SOL_SOCKET, socket.SCM_RIGHTS, pipes)])  # fmt: skip
    for number in pipes:
        os.close(number)  # they are the fork's: their end is told when that closes them
    connection.recv(1)  # until the fork is gone
    os._exit(0)


def become(connection):
    """A fork of the server as what the connection asks for."""
    data, pipes, _, _ = socket.recv_fds(connection, MESSAGE_MAX, 3)
    if not data:
        return
    order = json.loads(data)
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["directory"])
    first = [path for path in order["environment"].get("PYTHONPATH", "").split(":") if path]
    sys.path[:] = first + [path for path in sys.path if path not in first]
    sys.argv[:] = ["-c", *order["arguments"][2:]]
    exec(order["arguments"][1], {"__name__": "__main__"})


def accept_all(server):
    """Imports, then forks for whoever connects, until nobody has for a long time."""
    from shardproof._warm import preload

    preload()
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
            try:
                become(connection)
            finally:
                os._exit(0)
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
