"""Runs every phase of a job on its ranks, and says what fails."""

import argparse
import dataclasses
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time

import torch

from ._phases import MEMORY
from .case import Case
from .ends import End
from .random_checkpoint import RandomCheckpoint
from .rank import run_rank

fork = multiprocessing.get_context("fork")  # ranks begin with torch imported, and no more
STOPPED_SECONDS = 3  # after which a rank that is stopped is ended, as whoever runs a job would
GRACE_SECONDS = 5  # for ranks that wait for one that has failed


@dataclasses.dataclass
class Job:
    """What is run. Paths are seen from the script's folder.

    subject: the file that has `def run(case, observe)`
    phases: {name: fields of its Case}, one after the other, each on ranks of its own
    at: (phase, stage) that the check looks at
    model: a JSON file that says of which tensors a model without a framework is made, or None
    checkpoint: what stands for the real one; None: that has to be given
    timeout_s, deadline_s: of a collective, and of a phase
    faults: [(phase, rank, stage, step or None, "kill", "stop", "leave" or "slow")]
    """

    subject: str
    phases: dict
    at: tuple
    model: str | None = None
    checkpoint: RandomCheckpoint | None = None
    timeout_s: float = 60
    deadline_s: float = 60
    faults: list = dataclasses.field(default_factory=list)

    def case(self, phase, rank, directory, checkpoint):
        """What run() is asked for on a rank."""
        fields = {"save_to": "saved", **self.phases[phase]}
        if self.model:
            with open(self.model) as file:
                fields["model"] = json.load(file)
        fields["save_to"] = f"{directory}/{fields['save_to']}"
        return Case(rank=rank, checkpoint=checkpoint, phase=phase, **fields)


def run_phase(job, check, phase, directory, checkpoint, deadline_s):
    """\\returns the End of every rank."""
    world_size = job.phases[phase]["world_size"]
    cases = [job.case(phase, rank, directory, checkpoint) for rank in range(world_size)]
    ranks = [fork.Process(target=run_rank, args=(case, job, check, directory)) for case in cases]
    for process in ranks:
        process.start()
    end = time.monotonic() + deadline_s
    grace, stopped = deadline_s if job.faults else GRACE_SECONDS, {}
    while alive := [process for process in ranks if process.exitcode is None]:
        left = end - time.monotonic()
        if left <= 0:
            break
        if job.faults:
            left = min(left, 0.1)
            end_stopped(alive, stopped)
        multiprocessing.connection.wait([process.sentinel for process in alive], left)
        if any(process.exitcode for process in ranks):
            end = min(end, time.monotonic() + grace)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
        process.join()
    return [End(phase, rank, code, said(directory, phase, rank)) for rank, code in enumerate(codes)]


def end_stopped(ranks, since):
    """Ends ranks that have been stopped for long. since: {process id: when it was first seen so}"""
    now = time.monotonic()
    for process in ranks:
        try:
            with open(f"/proc/{process.pid}/stat") as file:
                is_stopped = file.read().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:  # it has just ended
            continue
        if is_stopped and now - since.setdefault(process.pid, now) > STOPPED_SECONDS:
            process.kill()


def said(directory, phase, rank):
    try:
        with open(f"{directory}/{phase}.{rank}.said") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        return []


def last_words(directory, phase, rank):
    with open(f"{directory}/{phase}.{rank}.log", errors="replace") as file:
        lines = file.read().splitlines()[-6:]
    return "".join(f"\n    {line}" for line in lines)


def imported_once(job):
    """Modules that take long to import and are no part of what a rank does."""
    modules = ["torch.distributed.checkpoint"]
    if job.at[0] == MEMORY:  # what torch imports when it is first used is no memory of the model's
        modules += ["torch._dynamo", "torch._inductor"]
    if not job.model and importlib.util.find_spec("transformers"):
        modules.append("transformers.models.auto.modeling_auto")
    return modules


def make_checkpoint(job, directory):
    """In a process of its own: what it imports is no rank's. \\returns whether it could be made"""
    phase = job.at[0]

    def build():
        return job.case(phase, 0, directory, directory).build("meta")

    maker = fork.Process(target=job.checkpoint.write, args=(directory, build))
    maker.start()
    maker.join()
    return maker.exitcode == 0


def run_all(job, check, directory, checkpoint, deadline_s):
    """Every phase in turn. \\returns ({phase, rank, tensor, kind, what, raised} of what fails,
    troubles)"""
    if checkpoint is None:
        checkpoint = f"{directory}/checkpoint"
        if not make_checkpoint(job, checkpoint):
            return [], ["the checkpoint could not be made (see above)"]
    fails, troubles = [], []
    for phase in job.phases:
        for end in run_phase(job, check, phase, directory, checkpoint, deadline_s):
            found, trouble = check.judge(job, end)
            where = {"phase": phase, "rank": end.rank}
            fails += [
                {**where, "tensor": tensor, "kind": kind, "what": what, "raised": end.raised}
                for tensor, kind, what in found
            ]
            if trouble:
                words = last_words(directory, phase, end.rank)
                troubles.append(f"{who(job, where)}, in phase {phase}: {trouble}{words}")
        if troubles:
            break
    return fails, troubles


def who(job, fail):
    return f"rank {fail['rank']} of {job.phases[fail['phase']]['world_size']}"


def line_of(job, check, fail):
    """What fails, for people."""
    at = f"in phase {fail['phase']}"
    if not check.at_the_end:
        at = f"at `{job.at[1]}` of phase {fail['phase']}"
    place = " ".join(filter(None, (fail["tensor"], at)))
    return f"{who(job, fail)}, {place}: {fail['what']}"


def main(job, check, description):
    """Runs the job and prints what fails. \\returns the exit code of the script"""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=job.checkpoint is None,
        help="the real one, a directory of safetensors",
    )
    parser.add_argument("--deadline", metavar="SECONDS", type=float, default=job.deadline_s)
    parser.add_argument("--json", metavar="FILE", help="write what fails here, too")
    arguments = parser.parse_args()
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    job = dataclasses.replace(
        job,
        subject=os.path.join(folder, job.subject),
        model=job.model and os.path.join(folder, job.model),
    )
    if job.checkpoint and job.checkpoint.config:
        job.checkpoint.config = os.path.join(folder, job.checkpoint.config)
    torch.set_num_threads(1)
    for module in imported_once(job):
        importlib.import_module(module)
    check.prepare()
    with tempfile.TemporaryDirectory() as directory:
        fails, troubles = run_all(job, check, directory, arguments.checkpoint, arguments.deadline)
    for fail in fails:
        print("FAIL:", line_of(job, check, fail).replace(directory, "DIR"))
    for line in troubles:
        print("ERROR:", line.replace(directory, "DIR"))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(fails, file, indent=1)
    if not fails and not troubles:
        print("ok: did not reproduce")
    return 1 if fails else 2 if troubles else 0
