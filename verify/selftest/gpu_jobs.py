#!/usr/bin/env python3
"""An FSDP2 job before check, observe, seal and a checkpoint, with the ranks' tensors on one device:
gpu_jobs.py DEVICE BACKEND WORLD FOLDER

Prints one line of JSON: {what was asked: what every rank said alike}. FOLDER gets `evidence`, and
the checkpoint `saved`. Of a GPU, `copied` counts what digests of the model copy to the host.
"""

import datetime
import json
import os
import sys

import shardproof
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DEADLINE_S = 60
WIDTH = 512  # a rank's part of a weight is far larger than what a digest comes to


class Net(nn.Module):
    """scale: a plain tensor beside sharded ones, alike on all ranks."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH + 1) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH + 1)
        self.register_buffer("scale", torch.ones(WIDTH + 1))

    def forward(self, x):
        return sum(self.norm(layer(x)) * self.scale for layer in self.layers)


def built(device):
    torch.manual_seed(0)
    return Net().to(device)


class Job:
    def __init__(self, device, world, folder):
        self.device, self.folder = device, folder
        self.mesh = init_device_mesh(device, (world,), mesh_dim_names=("dp_shard",))
        self.model = built(device)
        self.observe("built", model=self.model)
        for layer in self.model.layers:
            fully_shard(layer, mesh=self.mesh)
        fully_shard(self.model, mesh=self.mesh)
        self.observe("sharded", model=self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def observe(self, stage, **more):
        shardproof.observe(stage, to=f"{self.folder}/evidence", **more)

    def step(self):
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
        self.model(x.to(self.device)).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def check(self, **more):
        try:
            outcome = shardproof.check(self.model, deadline=DEADLINE_S, **more)
        except shardproof.Mismatch as mismatch:
            return str(mismatch)
        return "sound" + "".join(f"; {line}" for line in outcome.inconclusive)

    def local(self, name):
        tensor = self.model.get_parameter(name)
        return getattr(tensor, "_local_tensor", tensor).detach()


def asked(job, world):
    """(what, what came of it), in order."""
    yield "fresh", job.check()
    yield "sealed", job.check(against=shardproof.seal(built(job.device)))
    job.observe("ready", model=job.model, optimizer=job.optimizer)
    for _ in range(2):
        job.step()
    yield "trained", job.check(optimizer=job.optimizer)

    model_state, optimizer_state = get_state_dict(job.model, job.optimizer)
    saved = f"{job.folder}/saved"
    dcp.save({"model": model_state, "optim": optimizer_state}, checkpoint_id=saved)
    yield "saved", job.check(optimizer=job.optimizer, against=saved)
    manifest = shardproof.seal(job.model)
    job.step()
    yield "moved", job.check(against=saved)
    yield "older", job.check(against=manifest)
    dcp.load({"model": model_state, "optim": optimizer_state}, checkpoint_id=saved)

    last = world - 1
    with torch.no_grad():
        if dist.get_rank() == last:
            job.local("layers.1.weight").view(-1)[9] = float("nan")
        yield "nan", job.check()
        if dist.get_rank() == last:
            job.local("layers.1.weight").view(-1)[9] = 0.0
            job.model.scale[7] += 1
        yield "scale", job.check()


def copies(job):
    """Bytes that digests of the model copy to the host, and how many the model has here."""
    from torch.profiler import ProfilerActivity, profile

    job.check()  # what is done once is done
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        job.check()
        torch.cuda.synchronize()
    events = [event for event in seen.profiler.kineto_results.events() if "DtoH" in event.name()]
    held = sum(job.local(name).nbytes for name, _ in job.model.named_parameters())
    return {"bytes": sum(event.nbytes() for event in events), "held": held, "count": len(events)}


def rank(number, device, backend, world, folder):
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(number % torch.cuda.device_count())
    dist.init_process_group(
        backend, store=dist.FileStore(f"{folder}/store", world), rank=number, world_size=world,
        timeout=datetime.timedelta(seconds=2 * DEADLINE_S),
    )  # fmt: skip
    host = dist.new_group(backend="gloo")
    job, found = Job(device, world, folder), {}
    if device == "cuda":
        found["copied"] = copies(job)
    for what, said in asked(job, world):
        texts = [None] * world
        dist.all_gather_object(texts, said, group=host)
        found[what] = texts[0] if len(set(texts)) == 1 else f"ranks differ: {texts}"
    if number == 0:
        with open(f"{folder}/said", "w") as file:
            json.dump(found, file)
    dist.barrier(group=host)
    dist.destroy_process_group()


if __name__ == "__main__":
    device, backend, world, folder = sys.argv[1:]
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"  # an NCCL that does not know it takes no notice
    words = device, backend, int(world), folder
    mp.start_processes(rank, words, int(world), start_method="fork")
    with open(f"{folder}/said") as file:
        print(json.dumps(json.load(file)))
