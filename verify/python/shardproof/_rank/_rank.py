"""One rank of one launch of a subject.

The launcher starts it, reads its exit code, its stderr and its evidence. Exit codes: 0; 1 the
subject failed; 5 the verifier is at fault.
"""

import contextlib
import ctypes
import datetime
import gc
import importlib.util
import os
import pathlib
import socket
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

from .._holdings._groups import job_axes
from .._memory._pages import anonymous_bytes
from .._observing import _random
from .._observing._evidence import Place, Writer, coordinates_of, root_cause
from .._observing._observer import Observer
from .._twin._step_values import StepValues
from ..case import read_order
from ._collectives import CollectiveRecorder
from ._faults import Faults

_SAMPLE_SECONDS = 0.002
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of mallopt


def poison_fresh_memory():
    """Makes CPU allocations of LibTorch hold junk instead of what is there by luck."""
    library = ctypes.CDLL("libc10.so")
    flag = ctypes.c_bool.in_dll(library, "FLAGS_caffe2_cpu_allocator_do_junk_fill")
    flag.value = True


class MemorySampler:
    """Watches anonymous memory in a thread, and at every stage."""

    def __init__(self, writer: Writer):
        self._writer = writer
        self._stage = "start"
        self._begin = time.monotonic()
        self.idle = self.peak = anonymous_bytes()
        self.peak_stage = self._stage
        self._shown = -(1 << 20)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stage(self, name: str):
        self.sample()
        with self._lock:
            self._stage = name
            self._shown = -(1 << 20)  # a stage has a sample, whether or not it changes anything

    def sample(self):
        # Read under the lock: a reading of the thread belongs to the stage that it was made in.
        with self._lock:
            now = anonymous_bytes()
            if now > self.peak:
                self.peak, self.peak_stage = now, self._stage
            if abs(now - self._shown) < 1 << 20:
                return
            self._shown = now
            elapsed = (time.monotonic() - self._begin) * 1000
            self._writer.memory(elapsed, now, self._stage)

    def _watch(self):
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.sample()

    def finish(self, own_bytes: int):
        self._stop.set()
        self._thread.join()
        self.sample()
        self._writer.memory_summary(
            idle_bytes=self.idle, peak_bytes=self.peak, peak_stage=self.peak_stage,
            own_shard_bytes=own_bytes,
        )  # fmt: skip


def load_subject(path: str):
    """The module of a subject's file."""
    spec = importlib.util.spec_from_file_location("shardproof_subject", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["shardproof_subject"] = module
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    spec.loader.exec_module(module)
    return module


def only_rank_0_reads(subject, options: dict[str, str]) -> bool:
    """What READS of a subject's module says, with these options chosen (_declare.py)."""
    said = getattr(subject, "READS", {})
    conditions = [""] if isinstance(said, str) else list(said)
    chosen = {f"{name}={value}" for name, value in options.items()}
    return any(condition in chosen | {""} for condition in conditions)


def run_rank(order_path: str, rank: int) -> int:
    case, order = read_order(order_path, rank)
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 64 << 10)
    writer = Writer(order["evidence"], rank)
    sizes = list(case.mesh.values())
    place = Place(rank, case.world_size, order["mesh"], coordinates_of(rank, sizes),
                  job_axes(case.mesh, case.laid_over, rank))  # fmt: skip
    writer.rank(
        rank=rank, world_size=case.world_size, mesh=order["mesh"],
        coordinates=place.coordinates, subject=pathlib.Path(order["subject"]).stem or "script",
        mode=order["mode"], strategy=case.strategy, seed=case.seed,
    )  # fmt: skip
    writer.process(os.getpid(), socket.gethostname())
    observer = Observer(
        writer, place, order["mode"], order["captures"], is_of_subject=True
    )  # fmt: skip
    own = os.getpid()
    code = 0
    try:
        _run(case, order, writer, observer)
    except BaseException as error:  # SystemExit and KeyboardInterrupt end a rank too
        if os.getpid() != own:
            os._exit(1)
        writer.error(observer.stage, error)
        traceback.print_exc()
        print(root_cause(error), file=sys.stderr)
        code = 1
    if order["case"]["faults"]:
        gc.collect()  # what the error's frames held
        writer.leaks(_held_below(order["save_to"]))
    writer.end()
    return code


def _held_below(directory: str) -> list[str]:
    """Files that are still open where the subject saves. What else a framework keeps is its own
    affair."""
    held = []
    root = os.path.realpath(directory)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{number}")
            if path == root or path.startswith(root + os.sep):
                held.append(f"descriptor of {os.path.relpath(path, os.path.dirname(root))}")
    return sorted(held)


def _meet(case, order, timeout):
    """The store by which the ranks meet; and their variables, as torchrun sets them."""
    local = dict(LOCAL_RANK=str(case.rank), LOCAL_WORLD_SIZE=str(case.world_size))
    if "store_prefix" not in order:
        store = dist.FileStore(order["rendezvous"], case.world_size)
    else:  # ranks that somebody else started, on one host or several
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(address, port, is_master=False, timeout=timeout)
        store = dist.PrefixStore(order["store_prefix"], store)
        of_slurm = os.environ.get("SLURM_LOCALID", local["LOCAL_RANK"])
        local = dict(
            LOCAL_RANK=os.environ.get("LOCAL_RANK", of_slurm),
            LOCAL_WORLD_SIZE=os.environ.get("LOCAL_WORLD_SIZE", local["LOCAL_WORLD_SIZE"]),
        )
    os.environ.update(RANK=str(case.rank), WORLD_SIZE=str(case.world_size), **local)
    return store


def _run(case, order, writer, observer):
    if order.get("is_twin"):
        _run_twin(case, order, writer, observer)
        return
    if order.get("values_of_steps"):
        observer.step_values = StepValues(order["values_of_steps"], case.rank)
        observer.step_values.listen()
    _random.listen()  # like that, before a subject takes names from torch
    subject = load_subject(order["subject"])
    if case.strategy == "plain":
        case.options |= getattr(subject, "PLAIN", {})
    observer.waits_for_reader = case.rank != 0 and only_rank_0_reads(subject, case.options)
    timeout = datetime.timedelta(milliseconds=order["timeout_ms"])
    dist.init_process_group(
        "gloo", store=_meet(case, order, timeout), rank=case.rank, world_size=case.world_size,
        timeout=timeout,
    )  # fmt: skip
    dist.barrier()
    sampler = None
    if order["mode"] == "memory":
        sampler = MemorySampler(writer)
        observer.on_stage(sampler.stage)
    else:
        poison_fresh_memory()
    torch.manual_seed(case.seed)
    faults = Faults(writer, case.rank, order["faults"])
    observer.on_observed(faults.observed)
    recorder = contextlib.nullcontext()
    if case.world_size > 1 and "collectives" not in getattr(subject, "CANNOT", {}):
        also = {"also": observer.step_values.reduced} if observer.step_values else {}
        recorder = CollectiveRecorder(writer, faults.before_collective, **also)
        recorder.listen()
    own = os.getpid()
    with recorder:
        subject.run(case, observer)
    if os.getpid() != own:  # a process that the subject forked, and let come back from run
        os._exit(0)
    if observer.step_values:
        observer.step_values.ended()
    if sampler:
        sampler.finish(observer.own_bytes)
    dist.barrier()
    dist.destroy_process_group()


def _run_twin(case, order, writer, observer):
    # The job's ranks may have been started with these; the twin is one process.
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        os.environ.pop(name, None)
    from .._twin import _twin

    # A script of one's own runs as it is imported.
    subject = load_subject(order["subject"]) if order["subject"] else None
    poison_fresh_memory()
    torch.manual_seed(case.seed)
    if order.get("values_of_steps"):
        from .._twin import _step_by_step

        return _step_by_step.run(case, subject, writer, order["values_of_steps"])
    return _twin.run(case, subject, writer, observer)


def main(order_path: str, rank: str):
    """A rank that was started from nothing."""
    from ._warm import preload

    preload()  # before the first record: imports are no hang, however short the deadline
    code = run_rank(order_path, int(rank))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # nothing that a subject left running keeps the rank alive
