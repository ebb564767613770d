"""One rank of PyTorch training with FSDP2 and AdamW that saves and loads its state by
torch.distributed.checkpoint, as its documentation says; and steps of torch.optim.AdamW. Each line
of input asks for one round and is answered by when it began and ended; see training.py.

    save DIRECTORY, load DIRECTORY   of the state after one step; what is loaded is compared with it
    foreach, fused                   a step by that implementation, gradients ready
"""

import json
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from fsdp_rank import empty_shards, join, load
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor

SETTINGS = {"lr": 1e-3, "weight_decay": 0.1}


class Job:
    """A model and its optimizer."""

    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), **SETTINGS)

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def tensors(self):
        """{name: what this rank has of it}"""
        found = {}
        for name, parameter in self.model.named_parameters():
            kept = {"": parameter, **self.optimizer.state[parameter]}
            for key, value in kept.items():
                value = value.detach()
                found[name, key] = value.to_local() if isinstance(value, DTensor) else value
        return found


class Rank:
    def __init__(self):
        self.directory, self.shapes, self.mesh = join()
        self.job = None
        self.steppers = {}

    def stepped(self):
        """The job after one step."""
        if self.job is None:
            self.job = Job(load(self.directory, self.shapes, self.mesh))
            for parameter in self.job.model.parameters():
                parameter.grad = parameter.detach() * 0.125
            self.job.optimizer.step()
            self.job.optimizer.zero_grad()
        return self.job

    def fresh(self):
        return Job(empty_shards(self.shapes, self.mesh))

    def save(self, directory):
        job = self.stepped()
        with Clock() as clock:
            state = job.state()
            clock.inner_begin()
            dcp.save(state, checkpoint_id=directory)
            clock.inner_end()
        return clock

    def load(self, directory):
        expected, job = self.stepped().tensors(), self.fresh()
        with Clock() as clock:
            state = job.state()
            clock.inner_begin()
            dcp.load(state, checkpoint_id=directory)
            clock.inner_end()
            set_state_dict(job.model, job.optimizer, model_state_dict=state["model"],
                           optim_state_dict=state["optimizer"])  # fmt: skip
        found = job.tensors()
        if found.keys() != expected.keys():
            raise SystemExit(f"dcp_rank: rank {dist.get_rank()}: other tensors than were saved")
        for name, tensor in expected.items():
            if not torch.equal(found[name], tensor):
                raise SystemExit(f"dcp_rank: rank {dist.get_rank()}: {name} is not what was saved")
        return clock

    def step(self, kind):
        if kind not in self.steppers:
            parameters = [
                torch.nn.Parameter(torch.full(shape, 0.01)) for shape, _ in self.shapes.values()
            ]
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.01)
            self.steppers[kind] = torch.optim.AdamW(parameters, **SETTINGS, **{kind: True})
        with Clock() as clock:
            self.steppers[kind].step()
        return clock


class Clock:
    """When all ranks began a block, and this one ended it; and a part of it."""

    def __enter__(self):
        dist.barrier()
        self.times = {"begin": time.monotonic_ns()}
        return self

    def __exit__(self, *_):
        self.times["end"] = time.monotonic_ns()

    def inner_begin(self):
        self.times["inner_begin"] = time.monotonic_ns()

    def inner_end(self):
        self.times["inner_end"] = time.monotonic_ns()


def main():
    rank = Rank()
    for line in sys.stdin:
        what, *given = line.split()
        clock = getattr(rank, what)(*given) if given else rank.step(what)
        print(json.dumps(clock.times), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
