"""An attached job, on one of its processes: what its hooks tell is observed, and a failure of ours
stays ours."""

import contextlib
import functools
import multiprocessing.process
import os
import pathlib
import sys
import threading

from .._observing import _hooks
from . import _attached_evidence, _attached_report
from ._attached_options import from_environment

_job = None


def attach():
    """Listens to this process, if the environment says that its job is attached. Once."""
    global _job
    options = from_environment()
    if options is None or _job is not None:
        return
    _job = Job(options)
    if options.who:
        _job.watch_memory()  # what Python allocates is traced from the beginning
    _hooks.install(_job)
    os.register_at_fork(after_in_child=_start_anew)
    bootstrap = multiprocessing.process.BaseProcess._bootstrap

    @functools.wraps(bootstrap)
    def bootstrapped(process, *arguments, **named):
        """A process of multiprocessing ends where nothing else would tell."""
        code = bootstrap(process, *arguments, **named)
        strict = end(code)
        return code or strict

    multiprocessing.process.BaseProcess._bootstrap = bootstrapped


def watch_memory():
    """This process is the job's own, and no helper of it: its memory is watched from now on."""
    if _job is not None:
        _job.watch_memory()


def end(code: int, error: BaseException | None = None) -> int:
    """The job's part in this process is over. code: what it exits with. \\returns the exit code
    that findings ask for with --strict, else 0."""
    return _job.end(code, error) if _job is not None else 0


def end_command() -> int:
    """After end(), in the process of the command that attached: says so if nothing was there to
    observe. \\returns as end(), of all jobs that it started."""
    return _job.end_command() if _job is not None else 0


def _start_anew():
    """A fork has no part in what its parent has observed."""
    _job.reset()


class Job:
    """Told by _hooks."""

    def __init__(self, options):
        self.options = options
        self.reset()

    def reset(self):
        self._rank = self._world_size = self._folder = self._records = self._followed = None
        self._thread = self._watch = None
        self._earlier = []  # folders of jobs whose ranks were counted otherwise
        self._failed = self._over = self._left = self._paused = self._has_dropped = False

    def watch_memory(self):
        """A failure to do so ends nothing: what is held is then not told."""
        if self._watch is None:
            from .._memory import _tracer, _watcher

            with contextlib.suppress(OSError, RuntimeError):
                tracer = _tracer.Tracer() if self.options.who else None
                self._watch = _watcher.start(tracer)

    # ---- What the hooks tell

    def wrapping(self, modules):
        return self._tell(lambda to: [to.wrapping(module) for module in modules], quietly=True)

    def wrapped(self, modules, former):
        before = {key: ref for each in former or [] for key, ref in each.items()}
        self._tell(lambda to: [to.wrapped(module, before) for module in modules], binds=True)

    def made(self, optimizer):
        self._tell(lambda to: to.made(optimizer), binds=True)

    def loaded(self, module):
        self._tell(lambda to: to.loaded(module))

    def read(self, state):
        self._tell(lambda to: to.read(state))

    def before_step(self, optimizer):
        self._tell(lambda to: to.before_step(optimizer), binds=True)

    def after_step(self, optimizer):
        self._tell(lambda to: to.after_step(optimizer), quietly=True)

    def saved(self, state, is_checkpoint=False):
        self._tell(lambda to: to.saved(state, is_checkpoint), quietly=True)

    def change(self, make, module):
        """A module was imported, whose functions are to tell of what they do."""
        self._call(make, self, module)

    def joined(self, c10d):
        """The process group is there: this rank and its job have a name."""
        self._left = False
        place = c10d.get_rank(), c10d.get_world_size()
        if self._records is not None and place == (self._rank, self._world_size):
            self._guard(self._records.join_again)()
        elif not multiprocessing.process.current_process().daemon:
            self._guard(self._join)(c10d)

    def leaving(self):
        """The process group is about to go, after which its ranks cannot be asked for."""
        if self._followed is not None:
            self._tell(lambda to: to.ending(), quietly=True)
        if self._records is not None:
            self._guard(self._records.leave)()
        self._left = True

    @contextlib.contextmanager
    def paused(self):
        """Nothing that is told within is of the job's making."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # ---- How it is done

    def _tell(self, what, binds=False, quietly=False):
        """Calls what(Followed), in the thread of the job, unless torch is compiling or capturing
        what it is called from. binds: the first thread that tells so is the job's; what others tell
        is dropped. quietly: without a word of that."""
        if self._left or self._paused:
            return None
        if binds and self._thread is None:
            self._thread = threading.get_ident()
        if self._thread not in (None, threading.get_ident()):
            if not quietly:
                self._say_dropped()
            return None
        return self._guard(lambda: what(self._follow()))()

    def _say_dropped(self):
        if not (self._has_dropped or self._failed or self._over):
            self._has_dropped = True
            name = threading.current_thread().name
            print(
                f"shardproof: attached: what the thread {name} loads or trains is not observed: it "
                "is not the first that made or stepped a model or an optimizer",
                file=sys.stderr,
            )

    def _guard(self, function):
        """\\returns the function, whose failure is told once and ends our part, not the job."""

        @functools.wraps(function)
        def guarded(*arguments):
            if self._failed or self._over or _is_traced():
                return None
            return self._call(function, *arguments)

        return guarded

    def _call(self, function, *arguments):
        try:
            return function(*arguments)
        except Exception as error:
            self._fail(error)
            if self.options.strict:
                raise
        return None

    def _fail(self, error):
        from .._observing._evidence import root_cause

        self._failed = True
        goes_on = "shardproof: attached: the job goes on unobserved, after an error of Shardproof: "
        print(goes_on + root_cause(error), file=sys.stderr)
        if self._records is not None:
            what = f"shardproof could not observe: {root_cause(error)}"
            with contextlib.suppress(OSError):
                self._records.error(self._stage(), "internal", type(error).__name__, what)

    def _stage(self):
        return self._followed.stage if self._followed is not None else "start"

    def _follow(self):
        if self._followed is None:
            from ._followed import Followed

            options = self.options
            self.watch_memory()
            self._followed = Followed(
                options.stages, options.every, self._begin_model, self._guard, self._watch
            )
        return self._followed

    def _join(self, c10d):
        if self._records is not None:
            self._start_over()
        self._rank, self._world_size = c10d.get_rank(), c10d.get_world_size()
        name = _attached_evidence.name_of_job(c10d._get_default_store())
        self._record(name)
        self.watch_memory()

    def _start_over(self):
        """Ranks are counted anew, so what comes is a job with evidence of its own."""
        followed, self._followed = self._followed, None
        self._records.end(self._place(), 0)
        self._earlier.append(self._folder)
        for optimizer in followed.dismissed() if followed is not None else ():
            self._follow().made(optimizer)

    def _record(self, name):
        self._folder = pathlib.Path(self.options.folder) / name
        self._records = _attached_evidence.Records(
            self._folder, self._rank, self._world_size, self.options.launch
        )

    def _begin_model(self, kind):
        if self._records is None:  # no process group: a job of this process alone
            self._rank, self._world_size = 0, 1
            self._record(_attached_evidence.name_of_job())
        place = self._place()
        return place, self._records.add_model(place, kind)

    def _place(self):
        """On one axis: ranks of one job may have models on meshes of many kinds, which go on record
        with their tensors."""
        from .._observing._evidence import on_one_axis

        return on_one_axis(self._rank, self._world_size)

    def end(self, code, error) -> int:
        if code == 0 and error is None and self._followed is not None:
            self._tell(lambda to: to.ending(), quietly=True)
        self._over = True
        try:
            return self._end(code, error)
        except Exception as failure:  # the job is over: whatever it is, it keeps its exit code
            print(f"shardproof: attached, no report: {failure}", file=sys.stderr)
            return 1 if self.options.strict else 0

    def end_command(self) -> int:
        return 0 if self._failed else _attached_report.of_launch(self.options)

    def _end(self, code, error) -> int:
        if self._watch is not None:
            self._watch.stop()
        if self._records is not None:
            failure = None
            if error is not None or code != 0:
                from .._observing._evidence import root_cause

                kind = type(error).__name__ if error else "SystemExit"
                what = root_cause(error) if error else f"the process ended with exit code {code}"
                failure = (self._stage(), "subject", kind, what)
            self._records.end(self._place(), code, failure)
        folders = [*((each, False) for each in self._earlier), (self._folder, code != 0)]
        return max(
            _attached_report.report_if_last(self.options, each, failed=failed)
            for each, failed in folders
        )


def _is_traced() -> bool:
    """Whether what runs is being compiled, or captured for a GPU to repeat."""
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    if compiler is None:
        return False
    if compiler.is_compiling():
        return True
    cuda = getattr(torch, "cuda", None)
    return bool(cuda and cuda.is_initialized() and cuda.is_current_stream_capturing())
