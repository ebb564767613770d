#!/usr/bin/env python3
"""`shardproof.check` between real Gloo ranks on this machine.

    PYTHONPATH=verify/python python verify/bench/check_ranks.py transport   # 10,000 made-up records
    PYTHONPATH=verify/python python verify/bench/check_ranks.py disk        # 10,000 small tensors
    PYTHONPATH=verify/python python verify/bench/check_ranks.py loop        # every step of FSDP2
    PYTHONPATH=verify/python unshare -rn sh -c \
        'ip link set lo up; python verify/bench/check_ranks.py traffic'     # of a sync, on 8 ranks

`transport`: what check sends, for 2 to 16 ranks, from records to the common verdict: seconds of the
slowest rank, first call and median of later ones. `disk`: the same of `seal`, and of a check
against that seal, beside one without. `loop`: AdamW on an FSDP2 model of 100 MiB a rank; steps
without a check, with one, and with one in the background take turns. `traffic`: the bytes that the
loopback device carries in `seal` of a sharded trainer, and in `check` of a tensor-parallel engine
against it, and how large the manifest is; it needs a network of its own, in which nobody else sends
anything. Nothing passes or fails.
"""

import argparse
import os
import statistics
import tempfile
import time

import shardproof
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from check_scale import Job
from shardproof._judging._transport import Transport
from shardproof._judging._verdict import of_share, settled
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

MIB = 1 << 20
RANKS = {"loop": [2], "traffic": [8]}


def transport(asked):
    job = Job(dist.get_world_size(), asked.tensors, 8)
    records = job.records(dist.get_rank(), job.names)
    link = Transport(600.0)
    seconds, sizes = [], []
    for _ in range(asked.rounds):
        dist.barrier()
        begin = time.perf_counter()
        messages = link.sender.messages(records)
        sizes.append(sum(map(len, messages)))
        verdict = settled(of_share(link.exchange(messages), link.receiver.read), link)
        seconds.append(slowest(time.perf_counter() - begin))
        assert verdict.tensors == asked.tensors and not verdict.folds
    if dist.get_rank() == 0:
        print(f"| {job.ranks} | {seconds[0]:.2f} | {statistics.median(seconds[1:]):.2f} | "
              f"{sizes[0]:,} | {sizes[-1]:,} |")  # fmt: skip


def disk(asked):
    model = nn.Module()
    for number in range(asked.tensors):
        model.register_parameter(f"p{number}", nn.Parameter(torch.zeros(1)))
    path = os.path.join(asked.folder, "step.seal.json")
    contenders = {
        "check": lambda: shardproof.check(model, deadline=600.0),
        "seal": lambda: shardproof.seal(model, to=path, replace=True, deadline=600.0),
        "against": lambda: shardproof.check(model, against=path, deadline=600.0),
    }
    seconds = {what: [] for what in contenders}
    for _ in range(asked.rounds):
        for what, contender in contenders.items():
            dist.barrier()
            begin = time.perf_counter()
            contender()
            seconds[what].append(slowest(time.perf_counter() - begin))
    if dist.get_rank() == 0:
        middles = " | ".join(f"{statistics.median(each):.2f}" for each in seconds.values())
        print(f"| {dist.get_world_size()} | {middles} |")


def carried() -> int:
    """Bytes that the loopback device has carried so far, with the headers of TCP."""
    (line,) = (each for each in open("/proc/net/dev") if each.strip().startswith("lo:"))
    return int(line.split()[9])


def carried_in(call):
    """(bytes, what the call returned), with those of two barriers."""
    dist.barrier()
    begin = carried()
    dist.barrier()
    found = call()
    dist.barrier()
    number = carried() - begin
    dist.barrier()
    return number, found


def traffic(asked):
    world_size, rows = dist.get_world_size(), 2
    mesh = init_device_mesh("cpu", (world_size,))
    trained, engine = nn.Module(), nn.Module()
    for number in range(asked.tensors):
        home, leaf = f"layers_{number // 10}", f"weight_{number % 10}"
        value = torch.rand(rows, 16)
        for model, own in ((trained, DTensor.from_local(value, mesh, [Shard(0)])), (engine, value)):
            if home not in model._modules:
                model.add_module(home, nn.Module())
            model.get_submodule(home).register_parameter(leaf, nn.Parameter(own.clone()))
    tp = {"mesh": {"tp": [list(range(world_size))]}, "layout": {"*": {"tp": Shard(0)}}}
    said = []

    def counted(what, call):
        idle, _ = carried_in(lambda: None)  # what the barriers send is taken off
        number, found = carried_in(call)
        said.append((what, number - idle))
        return found

    for when in ("first", "second", "third"):
        for parameter, own in zip(trained.parameters(), engine.parameters(), strict=True):
            with torch.no_grad():
                parameter.to_local().add_(1)
                own.copy_(parameter.to_local())
        manifest = counted(f"seal, {when}", lambda: shardproof.seal(trained, deadline=600.0))
        text = manifest.to_json()
        manifest = shardproof.Manifest.from_json(text)
        counted(
            f"check, {when}",
            lambda of=manifest: shardproof.check(engine, against=of, deadline=600.0, **tp),
        )
    if dist.get_rank() == 0:
        print(f"{asked.tensors:,} tensors, {world_size} ranks, a manifest of {len(text):,} bytes")
        print("| | bytes, all ranks together | for each rank |\n| --- | --- | --- |")
        for what, number in said:
            print(f"| {what} | {number:,} | {number // world_size:,} |")


def loop(asked):
    width, rows = 2048, asked.rows
    layers = round(dist.get_world_size() * asked.mib * MIB / (4 * width * width))
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    held = sum(parameter.to_local().nbytes for parameter in model.parameters())
    data = torch.randn(rows, width)
    contenders = {
        "step": lambda: None,
        "check(model)": lambda: shardproof.check(model),
        "check(model, background=True)": lambda: shardproof.check(model, background=True),
        "check(model, optimizer=optimizer)": lambda: shardproof.check(model, optimizer=optimizer),
        "check(model, optimizer=optimizer, background=True)":
            lambda: shardproof.check(model, optimizer=optimizer, background=True),
    }  # fmt: skip
    seconds = {what: [] for what in contenders}
    order = list(contenders)
    for _ in range(asked.rounds + 1):
        for what in order:
            contenders[what]()
            # From one check to the next: a step, and what the check takes of it.
            begin = time.perf_counter()
            step(model, optimizer, data)
            called = time.perf_counter()
            told = contenders[what]()
            end = time.perf_counter()
            seconds[what].append((slowest(end - begin), slowest(end - called)))
            if isinstance(told, shardproof.Pending):
                assert told.result().inconclusive == ()
        order.append(order.pop(0))
    if dist.get_rank() == 0:
        print(f"{held / MIB:.0f} MiB of parameters a rank, {layers} layers, {rows} rows")
        print("| | within the call, s | of the step | step and call, s | of the step |")
        print("| --- | --- | --- | --- | --- |")
        steps = [whole for whole, _ in seconds["step"][1:]]
        alone = statistics.median(steps)
        for what, of_kind in seconds.items():
            wholes, calls = zip(*of_kind[1:], strict=True)
            call = statistics.median(calls)
            ratio = statistics.median(a / b - 1 for a, b in zip(wholes, steps, strict=True))
            print(f"| {what} | {call:.4f} | {call / alone:.1%} | {statistics.median(wholes):.3f} | "
                  f"{ratio:+.1%} |")  # fmt: skip


def step(model, optimizer, data):
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def slowest(seconds) -> float:
    worst = torch.tensor(seconds)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def rank(number, world_size, folder, asked):
    torch.set_num_threads(1)  # as torchrun does, since ranks share the cores
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(os.path.join(folder, "store"), world_size)
    dist.init_process_group("gloo", store=store, rank=number, world_size=world_size)
    asked.folder = folder
    {"transport": transport, "disk": disk, "loop": loop, "traffic": traffic}[asked.what](asked)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["transport", "disk", "loop", "traffic"])
    parser.add_argument("--ranks", type=int, nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--rows", type=int, default=256, help="of the batch of a rank")
    asked = parser.parse_args()
    if asked.what == "transport":
        print("| ranks | first call, s | later calls, s | bytes a rank, first | later |")
        print("| --- | --- | --- | --- | --- |")
    if asked.what == "disk":
        print(
            "| ranks | check, s | seal, s | check against the seal, s |\n| --- | --- | --- | --- |"
        )
    for world_size in asked.ranks or RANKS.get(asked.what, [2, 4, 8, 16]):
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(rank, (world_size, folder, asked), world_size, start_method="fork")


if __name__ == "__main__":
    main()
