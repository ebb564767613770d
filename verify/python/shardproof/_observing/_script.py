"""`shardproof.observe` in a script of one's own: evidence of a job that no launcher of ours
started."""

import atexit
import json
import multiprocessing.util
import os
import pathlib
import sys

import torch.distributed as dist
from torch import nn

from .._holdings import _dtensor
from .._holdings._groups import axis_names
from .._memory import _tracer, _watcher
from .._memory._stage import StageMemory
from .._phases import VALUES
from ._evidence import Place, begun_by_script, on_one_axis
from ._observer import Observer

_NOT_A_SUBJECT = "an observed script does not promise this"
_CANNOT = ("identity", "keys", "host_bound", "save", "saved_files", "train", "collectives")

_session = None


def _leave_session():
    """The evidence is of the process that was forked, which goes on with it."""
    global _session
    _session = None


os.register_at_fork(after_in_child=_leave_session)


def observe(stage, model=None, *, to=None, checkpoint=None, factory="", who=False, **what):
    """Records this rank's part of a training job. Call it on every rank.

    observe("start"), before a model is made, only starts to sample memory; without it, sampling
    starts at the first call. who: at the first call, True also records who allocates and holds the
    most memory, which takes time.

    model: an nn.Module, or the list of modules of a pipeline stage. stage, and optimizer=,
    state_dict=, content=, step=, missing=, unexpected=, names=, also=, group=, groups=, mesh= and
    layout=: as in a subject's `observe` (Observer).

    The first call decides where the evidence goes: `to`, else $SHARDPROOF_EVIDENCE, else
    "shardproof-evidence" in the current directory. It also decides which checkpoint (a directory
    of safetensors, or one file) the values at "ready" are compared with; without one, ranks are
    only compared with each other. If the checkpoint has no config.json that names its model,
    factory="FILE.py:FUNCTION" names a function that builds it. `shardproof report DIRECTORY` builds
    that model once more in the plainest way, and judges.

    It allocates nothing of the tensors' size and makes no collective.
    \\raises OSError if the evidence cannot be written, ValueError for a call that makes no sense.
    """
    global _session
    if what.get("averages") is not None:
        raise ValueError("observe: averages= can be judged only in a subject of `verify`")
    if stage == "start" and model is None and not what:
        _watch(who)
        return
    if _session is None:
        _session = _Session(model, to, checkpoint, factory, who)
    _session.observer(stage, model=model, **what)


def end_session():
    """Ends the evidence of this process, as its end would: the next call begins anew."""
    global _session
    if _session is not None:
        _session.close()
    _session = None


def _watch(who):
    return _watcher.start(_tracer.Tracer() if who else None)


class _Session:
    """The evidence of this process, from the first call until it ends."""

    def __init__(self, model, to, checkpoint, factory, who):
        joined = dist.is_available() and dist.is_initialized()
        rank = dist.get_rank() if joined else int(os.environ.get("RANK", 0))
        world_size = dist.get_world_size() if joined else int(os.environ.get("WORLD_SIZE", 1))
        place = _place_of(model, rank, world_size)
        folder = pathlib.Path(to or os.environ.get("SHARDPROOF_EVIDENCE", "shardproof-evidence"))
        self._pid = os.getpid()
        self._writer = begun_by_script(folder, place)
        if rank == 0:
            write_run(folder, place, checkpoint, factory=factory)
        self.observer = Observer(self._writer, place, "values", [])
        self.observer.watch_memory(StageMemory(self._writer, _watch(who)))
        self._before = sys.excepthook
        sys.excepthook = self._record_error
        atexit.register(self._end)
        # What multiprocessing has forked ends without atexit's functions.
        self._finalizer = multiprocessing.util.Finalize(None, self._end, exitpriority=0)

    def close(self):
        self._end()
        self._finalizer.cancel()
        atexit.unregister(self._end)
        if sys.excepthook == self._record_error:
            sys.excepthook = self._before

    def _end(self):
        if os.getpid() != self._pid:  # a fork has what was registered, and ends without it
            return
        _watcher.stop()
        if not self._writer.ended:
            self._writer.end()

    def _record_error(self, kind, error, trace):
        if os.getpid() == self._pid:
            self._writer.error(self.observer.stage, error)
        self._before(kind, error, trace)


def _place_of(model, rank, world_size) -> Place:
    """On the largest mesh that the model is distributed over, if all ranks are on it."""
    chunks = model if isinstance(model, list | tuple) else [model]
    meshes = [
        parameter.device_mesh
        for chunk in chunks
        if isinstance(chunk, nn.Module)
        for parameter in chunk.parameters()
        if _dtensor.is_a("DTensor", parameter)
    ]
    mesh = max(meshes, key=lambda each: each.ndim, default=None)
    if mesh is None or mesh.size() != world_size or mesh.get_coordinate() is None:
        return on_one_axis(rank, world_size)
    names = axis_names(mesh.mesh_dim_names, mesh.ndim)
    axes = [{"name": name, "size": size} for name, size in zip(names, mesh.shape, strict=True)]
    return Place(rank, world_size, axes, list(mesh.get_coordinate()))


def write_run(folder, place, checkpoint, why="a script that calls shardproof.observe", factory=""):
    """The run's own file beside the evidence of its ranks. Any of them may write it."""
    script = os.path.abspath(sys.argv[0])
    model = {"checkpoint": os.path.abspath(checkpoint) if checkpoint else "no checkpoint"}
    if factory:
        model["factory"] = os.path.abspath(factory)
    case = {
        "schema": 1,
        "why": why,
        "subject": script if script.endswith(".py") else "script.py",
        "model": model,
        "mesh": place.axes,
        "strategy": "plain",
    }
    phase = {
        "name": VALUES, "mode": "values", "strategy": "plain", "mesh": place.axes, "skipped": "",
        "world_size": place.world_size, "ranks": [],
    }  # fmt: skip
    run = {"schema": 1, "case": case, "cannot": dict.fromkeys(_CANNOT, _NOT_A_SUBJECT),
           "phases": [phase]}  # fmt: skip
    path = folder / "run.json"
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(run, indent=1) + "\n")
    partial.rename(path)
    (folder / "oracle.json").unlink(missing_ok=True)  # of an earlier run
