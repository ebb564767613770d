"""One rank of one phase, in a process of its own."""

import datetime
import importlib.util
import json
import os
import signal
import sys
import time
import traceback

import torch
import torch.distributed as dist

from ._phases import MEMORY
from .tensors import state_of, whole


class Rank:
    """It is the `observe` that run() calls at each stage.

    remembered, memory: what the check keeps here
    """

    def __init__(self, case, job, check, directory):
        self.case, self.job, self.check, self.directory = case, job, check, directory
        self.model = self.optimizer = self.content = self.remembered = self.memory = None
        self.keys = {"missing": [], "unexpected": []}
        self.faults = list(job.faults)

    def say(self, **record):
        """To the parent process, at once: a rank may be killed at any time."""
        with open(f"{self.directory}/{self.case.phase}.{self.case.rank}.said", "a") as file:
            file.write(json.dumps(record) + "\n")

    def fail(self, tensor, what):
        self.say(fail=what, tensor=tensor)

    def __call__(
        self,
        stage,
        model=None,
        optimizer=None,
        state_dict=None,
        content=None,
        step=0,
        missing=None,
        unexpected=None,
    ):
        self.say(stage=stage)
        if missing is not None or unexpected is not None:
            self.keys = {"missing": missing or [], "unexpected": unexpected or []}
        self.model, self.optimizer = model, optimizer
        name = f"{stage}@{step}" if step else stage
        with whole(model):
            self.look_at(name, model, content)
            if optimizer is not None:
                self.look_at(f"{name}.optimizer", state_of(model, optimizer))
            if state_dict is not None:
                self.look_at(f"{name}.state_dict", state_dict)
        self.strike(stage, step)

    def look_at(self, stage, model, content=None):
        here = (self.case.phase, stage)
        if here == self.check.reference:
            self.check.remember(self, model)
        if here == self.job.at and not self.check.at_the_end:
            self.content = content
            if self.check.reference:
                dist.barrier()
            self.check.look(self, model)
            self.say(checked=True)

    def strike(self, stage, step):
        """What happens to this rank now that it has reached a stage, if anything does."""
        for fault in list(self.faults):
            phase, rank, when, at_step, act = fault
            if (phase, rank, when) != (self.case.phase, self.case.rank, stage):
                continue
            if at_step not in (None, step):
                continue
            self.faults.remove(fault)
            self.say(struck=act)
            if act == "leave":
                os._exit(0)
            elif act == "slow":
                time.sleep(0.3)
            else:
                os.kill(os.getpid(), signal.SIGKILL if act == "kill" else signal.SIGSTOP)


def run_rank(case, job, check, directory):
    """Runs the job, and ends the process with code 1 if it raises."""
    with open(f"{directory}/{case.phase}.{case.rank}.log", "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    rank = Rank(case, job, check, directory)
    number, world_size = str(case.rank), str(case.world_size)
    os.environ.update(RANK=number, LOCAL_RANK=number, GLOO_SOCKET_IFNAME="lo")
    os.environ.update(WORLD_SIZE=world_size, LOCAL_WORLD_SIZE=world_size)
    try:
        run = load(job.subject).run
        store = dist.FileStore(f"{directory}/{case.phase}.rendezvous", case.world_size)
        dist.init_process_group(
            "gloo",
            store=store,
            rank=case.rank,
            world_size=case.world_size,
            timeout=datetime.timedelta(seconds=job.timeout_s),
        )
        dist.barrier()
        if job.at[0] != MEMORY:
            show_unwritten_memory()
        check.begin(rank)
        torch.manual_seed(case.seed)
        run(case, rank)
        dist.barrier()
        if check.at_the_end and case.phase == job.at[0]:
            check.look(rank, None)
            rank.say(checked=True)
        dist.destroy_process_group()
        rank.say(ended=True)
    except BaseException as error:  # noqa: BLE001 (SystemExit ends a rank too)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = " ".join(str(error).split())[:500]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        name = type(error).__name__
        rank.say(raised=f"{name}: {text} ({where})", type=name)
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def load(path):
    """The module of a Python file, which may import what lies beside it."""
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("subject", path)
    module = sys.modules["subject"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def show_unwritten_memory():
    """torch.empty gives NaN, and in integers the largest number, instead of what lies there."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
