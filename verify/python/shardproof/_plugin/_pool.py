"""The standing processes of the pytest plugin, as pytest's own process has them.

One process, which imports torch once, forks ranks; a set of ranks stays from test to test. If one
of a set ends, hangs, or leaves what cannot be put back, the set ends as a whole: its ranks may have
fixtures that they made together.
"""

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import _channel

_SETS_MAX = 2  # of different sizes, at once
_IMPORTS_S = 300.0
_END_S = 5.0
_CLOSED_S = 0.01
_PACKET = 1 << 18
_BEGIN = (  # _zygote.py, with the modules that this process would find
    "import sys, json; sys.path[:], told = json.loads(sys.stdin.readline());"
    "from shardproof._plugin import _zygote; _zygote.main(*told)"
)


class NoRanks(Exception):
    """Why there can be no ranks: one line."""


class Skip(Exception):
    """Why a test does not apply on this machine: one line."""


class Rank:
    """One process. status: how it has ended, as waitpid says; None as long as it runs."""

    def __init__(self, number, rank, folder):
        self.number, self.rank = number, rank
        self.files = [str(folder / f"{number}.{name}") for name in ("stdout", "stderr", "stack")]
        for file in self.files:
            open(file, "wb").close()
        self.channel = self.pid = self.thread = self.status = None

    def clear_files(self):
        for file in self.files:
            os.truncate(file, 0)

    def close(self):
        self.channel.close()
        for file in self.files:
            with contextlib.suppress(OSError):
                os.unlink(file)


class Pool:
    """config: pytest's."""

    def __init__(self, config):
        self._config = config
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="shardproof-pytest-"))
        self._process = self._control = None
        self._ready = self._only_torch = False
        self._gpus = None
        self._ranks: dict[int, Rank] = {}
        self._sets: dict[int, list[Rank]] = {}  # by size, the one used last at the end; 0: a plain
        self._count = 0

    def start(self, only_torch=False):
        """Begins the imports, without waiting for them."""
        if self._process is not None:
            return
        self._control, theirs = _channel.packet_pair()
        names = [] if only_torch else _installed_modules(self._config)
        plugins = None if only_torch else self._config.option.plugins
        command = [sys.executable, "-c", _BEGIN]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
                       "MKL_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()], start_new_session=True, env=environment,
        )  # fmt: skip
        self._only_torch = only_torch
        line = json.dumps([sys.path, [theirs.fileno(), os.getpid(), names, plugins]])
        with self._process.stdin as stdin, contextlib.suppress(OSError):
            stdin.write(line.encode() + b"\n")
        theirs.close()

    def check_backend(self, backend, world):
        """\\raises Skip if it is one for GPUs and there are too few, NoRanks."""
        self._wait_until_ready()
        if "nccl" in backend and self._gpus is None:
            raise Skip(f"backend {backend}: this torch has no NCCL")
        if "nccl" in backend and self._gpus < world:
            raise Skip(f"backend {backend} needs {world} GPUs, and there are {self._gpus}")

    def ranks(self, world) -> list[Rank]:
        """world: how many; 0 for a plain process. \\raises NoRanks."""
        self._wait_until_ready()
        found = self._sets.pop(world, None) or self._fork(world)
        self._sets[world] = found
        while len(self._sets) > _SETS_MAX:
            self.end_set(next(size for size in self._sets if size != world), at_once=False)
        for each in found:
            each.clear_files()
        return found

    def wait(self, ranks, seconds):
        """Yields (rank, message) of what has come within so many seconds; for one that has ended
        the message is None. Leaves after the first that come. \\raises NoRanks."""
        channels = [each.channel for each in ranks if each.status is None]
        readable, _, _ = select.select([self._control, *channels], [], [], max(0.0, seconds))
        for each in ranks:
            if each.channel in readable:
                try:
                    messages = each.channel.arrived()
                except _channel.Closed:
                    messages = []
                    time.sleep(_CLOSED_S)  # it is readable until the process has ended
                for message in messages:
                    yield each, message
        if self._control in readable:
            ended = self._hear()
            for each in ranks:
                if each.number in ended:
                    with contextlib.suppress(_channel.Closed):
                        for message in each.channel.arrived():
                            yield each, message
                    yield each, None

    def end_set(self, world, at_once=True):
        """Those of one size. Not at once: their fixtures are ended first, if there is time."""
        ranks = self._sets.pop(world, [])
        if not at_once:
            self._let_end(ranks)
        for each in ranks:
            self._end_rank(each)

    def _let_end(self, ranks):
        for each in ranks:
            with contextlib.suppress(_channel.Closed):
                each.channel.send(end=True)
        end = time.monotonic() + _END_S
        with contextlib.suppress(NoRanks):
            while any(each.status is None for each in ranks) and time.monotonic() < end:
                if select.select([self._control], [], [], 0.1)[0]:
                    self._hear()

    def _end_rank(self, rank):
        if rank.status is None and self._say(kill=rank.number):
            end = time.monotonic() + _END_S
            while rank.status is None and time.monotonic() < end and self._control is not None:
                if select.select([self._control], [], [], 0.1)[0]:
                    with contextlib.suppress(NoRanks):
                        self._hear()
        self._ranks.pop(rank.number, None)
        rank.close()

    def close(self, at_once=False):
        """Ends all processes. Fixtures that are still there are ended first, if there is time."""
        if not at_once:
            self._let_end([each for ranks in self._sets.values() for each in ranks])
        self._end_process()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_process(self):
        """The one that forks; all others end with it."""
        if self._process is None:
            return
        self._control.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for each in self._ranks.values():
            each.close()
        self._process = self._control = None
        self._ready = False
        self._ranks.clear()
        self._sets.clear()

    def _wait_until_ready(self):
        self.start()
        end = time.monotonic() + _IMPORTS_S
        while not self._ready:
            if not select.select([self._control], [], [], max(0.0, end - time.monotonic()))[0]:
                self._end_process()
                raise NoRanks(f"the imports of torch took more than {_IMPORTS_S:g} s")
            self._hear()

    def _fork(self, world) -> list[Rank]:
        made = []
        for rank in range(max(1, world)):
            self._count += 1
            each = Rank(self._count, rank, self._folder)
            ours, theirs = _channel.pair()
            each.channel = _channel.Channel(ours)
            self._ranks[each.number] = each
            self._say([theirs], fork=each.number, files=each.files)
            theirs.close()
            made.append(each)
        for each in made:
            setup = _setup(self._config, each.rank, world, each.number)
            with contextlib.suppress(_channel.Closed):
                each.channel.send(**setup)
        return made

    def _say(self, fds=(), **message) -> bool:
        """Whether the process that forks is there to hear it."""
        import socket

        data = json.dumps(message).encode()
        try:
            socket.send_fds(self._control, [data], [each.fileno() for each in fds])
        except OSError:
            return False
        return True

    def _hear(self) -> set[int]:
        """\\returns the numbers of ranks that have ended. \\raises NoRanks."""
        try:
            data = self._control.recv(_PACKET)
        except OSError:
            data = b""
        if not data:
            had_begun = self._ready
            self._end_process()
            when = "while tests ran" if had_begun else "before it was ready"
            raise NoRanks(f"the process that starts ranks ended {when}")
        message = json.loads(data)
        if "refusal" in message:
            self._refused(message)
        if "ready" in message:
            self._ready, self._gpus = True, message["gpus"]
        if "forked" in message and message["forked"] in self._ranks:
            self._ranks[message["forked"]].pid = message["pid"]
        if "ended" in message and message["ended"] in self._ranks:
            self._ranks[message["ended"]].status = message["status"]
            return {message["ended"]}
        return set()

    def _refused(self, message):
        """Some module starts threads when it is imported: then each rank imports it itself."""
        again = message.get("threads", 0) > 1 and not self._only_torch
        self._end_process()
        if not again:
            raise NoRanks(message["refusal"])
        self.start(only_torch=True)


def _setup(config, rank, world, number) -> dict:
    """What a rank needs to have a session like this one."""
    options = {name: value for name, value in vars(config.option).items() if _is_plain(value)}
    options.pop("file_or_dir", None)
    name = f"plain-{number}" if world == 0 else f"rank{rank}-{number}"
    options.update(
        plugins=[*config.option.plugins, "no:terminal"], capture="no", usepdb=False, trace=False,
        maxfail=0, keyword="", markexpr="", xmlpath=None, log_file=None, log_cli=False,
        numprocesses=None, dist="no", tx=[], pyargs=False, lf=False, failedfirst=False,
        stepwise=False, stepwise_skip=False, cacheclear=False, cacheshow=False, newfirst=False,
        setupplan=False, setuponly=False, setupshow=False, showfixtures=False,
        show_fixtures_per_test=False, collectonly=False, version=0, help=False, looponfail=False,
        basetemp=str(base_folder(config) / name), report_log=None,
    )  # fmt: skip
    return {
        "options": options, "args": config.args, "directory": str(config.invocation_params.dir),
        "environment": dict(os.environ), "path": sys.path, "arguments": sys.argv,
        "rank": rank, "world": world,
    }  # fmt: skip


def base_folder(config) -> pathlib.Path:
    """Where pytest keeps the temporary files of this run."""
    return config._tmp_path_factory.getbasetemp()


def _is_plain(value) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, str | int | float | bool)


def _installed_modules(config) -> list[str]:
    """What this process has imported of installed packages, but for pytest and its plugins, which
    a session imports itself."""
    kept_out = {"_pytest", "pytest", "pluggy", "xdist", "execnet", "coverage"}
    for plugin in config.pluginmanager.get_plugins():
        name = getattr(plugin, "__name__", None) or type(plugin).__module__
        kept_out.add(name.partition(".")[0])
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        installed = "/site-packages/" in file or "/dist-packages/" in file
        if installed and name.partition(".")[0] not in kept_out:
            found.append(name)
    return found


def signal_text(status: int) -> str:
    """How a process has ended, for people."""
    if not os.WIFSIGNALED(status):
        return f"ended with exit code {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(number).name}"
    return f"was killed by signal {number}"
