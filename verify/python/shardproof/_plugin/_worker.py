"""A rank of the pytest plugin: a pytest session of its own, which runs the tests it is told to.

It stays from test to test. Each test has a process group of its own; what else a test may change is
put back (_restore.py), and what cannot be is told, so that the next test gets new ranks.
"""

import contextlib
import faulthandler
import gc
import os
import sys
import threading
import time
import traceback

import pytest

from .._package import is_ours
from . import _job, _restore, _stack
from ._channel import Channel, Closed

_NO_PLUGINS = ("lfplugin", "nfplugin", "stepwiseplugin")  # pytest's own process chooses the tests


def main(end, stack_fd):
    """end: the socket to pytest. stack_fd: where a signal writes the stacks of all threads."""
    faulthandler.register(_stack.SIGNAL, file=stack_fd, all_threads=True, chain=False)
    channel = Channel(end)
    own = os.getpid()
    os.register_at_fork(after_in_child=channel.close)
    try:
        setup = channel.receive()
        _take_place(setup)
        channel.send(hello=own, thread=threading.main_thread().ident)
        _session(setup, channel)
    except Closed:
        pass
    except BaseException as error:
        if os.getpid() == own:
            traceback.print_exc()
            with contextlib.suppress(Closed):
                channel.send(broken=f"{type(error).__name__}: {error}")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _take_place(setup):
    """Where pytest itself is, with its environment, and streams that hold nothing back."""
    os.chdir(setup["directory"])
    os.environ.clear()
    os.environ.update(setup["environment"])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    sys.path[:] = setup["path"]
    sys.argv[:] = setup["arguments"]
    sys.stdin = open(os.devnull)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = _restore.stream_to(fd)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // max(1, setup["world"])))


def _session(setup, channel):
    from _pytest.config import Config
    from _pytest.debugging import pytestPDB

    pytestPDB.set_trace = _no_terminal
    config = Config.fromdictargs(setup["options"], setup["args"])
    config.shardproof_rank = setup["rank"]  # pytest_plugin.py does what ranks need alone
    serving = Serving(channel, setup)
    config.pluginmanager.register(serving, "shardproof-rank")
    config.pluginmanager.register(_Silent(), "terminalreporter")
    config.hook.pytest_cmdline_main(config=config)


class Serving:
    """The hooks of a rank's session, which pytest finds by their names."""

    def __init__(self, channel, setup):
        self._channel = channel
        self._setup = setup
        self._pid = os.getpid()
        self._items = {}
        self._path = None
        self._collecting: list[str] = []
        self.job = None

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config):
        plugin = config.pluginmanager.get_plugin("logging-plugin")
        for name in ("caplog_handler", "report_handler"):
            if (handler := getattr(plugin, name, None)) is not None:
                handler.addFilter(_is_worth_reading)
        for name in _NO_PLUGINS:
            if (plugin := config.pluginmanager.get_plugin(name)) is not None:
                config.pluginmanager.unregister(plugin)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session):
        return True  # each test's file when it is asked for

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        self._serve(session)
        return True

    @pytest.hookimpl(tryfirst=True, hookwrapper=True)
    def pytest_runtest_call(self, item):
        with _restore.kept():
            yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        self._leave_if_forked(call.excinfo.value if call.excinfo else None)
        if call.excinfo:
            _end_trace_at_caller(call.excinfo.tb)

    def pytest_collectreport(self, report):
        if report.failed:
            self._collecting.append(report.longreprtext)

    def pytest_runtest_logreport(self, report):
        data = report._to_json()
        self._channel.send(report=data, at=time.monotonic())

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        if when != "runtest":
            return  # pytest's own process has warned of the same
        category = warning_message.category
        self._channel.send(
            warning=str(warning_message.message), category=category.__name__,
            module=category.__module__, filename=warning_message.filename,
            lineno=warning_message.lineno, when=when, nodeid=nodeid, location=location,
        )  # fmt: skip

    def _serve(self, session):
        """Until pytest has no more for this rank."""
        while "end" not in (order := self._channel.receive()):
            if "run" in order:
                self._run(session, order["run"])
            elif "call" in order:
                self._call(session, order["call"])
        _tear_down(session, None)

    def _leave_if_forked(self, error):
        """Ends a process that the test has forked and that came out of it."""
        if os.getpid() != self._pid:
            if isinstance(error, SystemExit):
                os._exit(error.code if isinstance(error.code, int) else error.code is not None)
            if error is not None:
                sys.stderr.write(f"a process that the test forked raised {error!r}\n")
            os._exit(0 if error is None else 1)

    def _run(self, session, order):
        try:
            item = self._item(session, order)
            following = self._following(session, item, order["next"])
            _tear_down(session, item)
        except Exception as error:
            self._channel.send(broken=_told(error))
            return
        self._channel.send(collected=True)
        self.job = job = _job.Job(order, self._channel)
        try:
            job.begin()
        except Exception as error:
            self._channel.send(broken=f"no process group: {_told(error)}")
            return
        self._channel.send(begun=True)
        self._channel.receive()  # all ranks are here: none that is still on its way loses one
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        except BaseException as error:  # such as pytest.exit
            self._leave_if_forked(error)
            self._channel.send(exit=str(error) or type(error).__name__)
        self._channel.send(done=True, observed=job.observed)
        self._channel.receive()  # all ranks are done: none waits for what this one sends
        self._channel.send(closed=True, left=job.end())

    def _item(self, session, order):
        """\\raises LookupError if this rank has no such test."""
        self._collect(session, order["path"])
        if order["nodeid"] not in self._items:
            why = "".join(f"\n{each}" for each in self._collecting)
            raise LookupError(f"this rank finds no test {order['nodeid']} in its file{why}")
        return self._items[order["nodeid"]]

    def _collect(self, session, path):
        if self._path != path:
            _tear_down(session, session)
            self._collecting.clear()
            found = session.perform_collect([path])
            self._items, self._path = {item.nodeid: item for item in found}, path
            gc.collect()
            gc.freeze()  # a test's end collects what the test has made, and not all that is there

    def _following(self, session, item, name):
        """What pytest is to keep fixtures for: the next test, if it is of this file."""
        if name == "unknown":
            return item.parent
        if name is None:
            return None
        return self._items.get(name, session)

    def _call(self, session, order):
        """A function of the test's module, for the fixture `reference`, in no process group."""
        try:
            self._collect(session, order["path"])
            _job.call(order)
            self._channel.send(called=True)
        except BaseException as error:
            self._channel.send(called=False, why=_told(error), trace=traceback.format_exc())


def _end_trace_at_caller(trace):
    """What `shardproof.check` raises is told by its message: the traceback ends where the test, or
    what it calls, has called it."""
    caller = None
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            caller = trace
        trace = trace.tb_next
    if caller is not None:
        caller.tb_next = None


class _Silent:
    """The terminal of a session that has none: plugins write to it, and nothing comes of it."""

    def __init__(self):
        from _pytest._io import TerminalWriter

        self._tw = TerminalWriter(open(os.devnull, "w"))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def _is_worth_reading(record) -> bool:
    """Torch logs every save, and every error of a collective once more."""
    return not record.name.startswith("c10d-")


def _no_terminal(*args, **kwargs):
    raise RuntimeError("a rank has no terminal: it cannot stop in a debugger")


def _told(error) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _tear_down(session, following):
    """Ends fixtures that are wider than the tests that were, and not of the one that follows."""
    session._setupstate.teardown_exact(following)
