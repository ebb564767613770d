#!/usr/bin/env python3
"""Jobs as strangers write them, on two to four ranks, each sound and with a mistake on one rank:
strangers_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import sys

import ranked_jobs
import torch
import torch.ao.quantization as quantization
import torch.distributed as dist
from job_pieces import PAIRS, flip, is_odd, mesh, net, on, train, values
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.distributed.tensor import Shard
from torch.nn.parallel import DistributedDataParallel


def own_batch(step=0, *shape):
    """Another one on each rank."""
    return values(*(shape or (5, 4)), seed=10 * step + dist.get_rank())


def train_own(model, optimizer, steps=2):
    for step in range(steps):
        optimizer.zero_grad()
        model(own_batch(step)).float().square().mean().backward()
        optimizer.step()


# ---- What is in the model


class Fake(nn.Module):
    """A layer whose activations are rounded as a quantised one would, by the range seen so far.
    What nothing passes through has seen nothing: its range is infinite."""

    def __init__(self):
        super().__init__()
        self.layers = net()
        range_of = quantization.MovingAverageMinMaxObserver
        self.between = quantization.FakeQuantize(observer=range_of, quant_min=0, quant_max=255)
        self.unused = quantization.MinMaxObserver()

    def forward(self, x):
        return self.layers[1](self.between(self.layers[0](x)))


@on(2)
def quantisation_aware(mistake):
    model = DistributedDataParallel(Fake())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_own(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model.module.layers[0].weight, 3)
    return model, {"optimizer": optimizer}


@on(2)
def unfrozen_in_turn(mistake):
    """The second layer is trained first, and then both."""
    layers = net()
    layers[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(layers[1].parameters())
    train_own(DistributedDataParallel(layers), optimizer)
    if not is_odd(mistake, "forgotten", 1):
        layers[0].requires_grad_(True)
        optimizer.add_param_group({"params": list(layers[0].parameters()), "lr": 0.01})
    train(layers, optimizer)
    return layers, {"optimizer": optimizer}


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.bag = nn.EmbeddingBag(20, 4, sparse=True, mode="sum")
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.bag(x.abs().mul(5).long().clamp(max=19)))


@on(2)
def sparse_rows(mistake):
    """An embedding with sparse gradients, and an optimizer of its own."""
    model = DistributedDataParallel(Bag())
    bag = model.module.bag.weight
    rows = torch.optim.SparseAdam([bag], lr=0.1)
    dense = torch.optim.AdamW(model.module.head.parameters())
    for step in range(2):
        train_own(model, rows, 1)
        model.zero_grad()
        model(own_batch(step)).square().mean().backward()
        dense.step()
    if is_odd(mistake, "moment", 1):
        flip(rows.state[bag]["exp_avg"], 12)
    return model, {"optimizer": [rows, dense]}


class Normalised(nn.Module):
    """Inputs are scaled by what this rank has seen, in buffers that are put anew at each step."""

    def __init__(self):
        super().__init__()
        self.layers = net()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x):
        with torch.no_grad():
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.var = 0.9 * self.var + 0.1 * x.var(0)
        return self.layers((x - self.mean) / self.var.sqrt())


@on(2)
def normalised(mistake):
    model = DistributedDataParallel(Normalised())
    optimizer = torch.optim.Adam(model.parameters())
    train_own(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model.module.layers[0].weight, 5)
    if is_odd(mistake, "nan", 1):
        model.module.var[2] = torch.nan
    return model, {"optimizer": optimizer}


@on(2)
def normalised_alone(mistake):
    """The same, and nothing wraps it: the job adds up gradients."""
    model = Normalised()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(2):
        optimizer.zero_grad()
        model(own_batch(step)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    if is_odd(mistake, "bit", 1):
        flip(model.layers[0].weight, 5)
    return model, {"optimizer": optimizer}


class Unplain(nn.Module):
    """Buffers whose elements do not simply lie in memory, and a layer that is never called."""

    def __init__(self):
        super().__init__()
        self.layers = net()
        self.register_buffer("sparse", torch.eye(3).to_sparse())
        self.register_buffer("rows", torch.eye(3).to_sparse_csr())
        codes = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
        self.register_buffer("codes", codes)
        self.register_buffer("ragged", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        self.unused = nn.LazyLinear(2)

    def forward(self, x):
        return self.layers(x)


@on(2)
def unplain(mistake):
    model = Unplain()
    optimizer = torch.optim.SGD(model.layers.parameters(), lr=0.1)
    train(model, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model.layers[1].weight, 2)
    return model, {"optimizer": optimizer}


# ---- How it is trained


@on(2)
def adversaries(mistake):
    """A critic takes two clipped steps for each one of the generator."""
    maker, critic = DistributedDataParallel(net()), DistributedDataParallel(nn.Linear(3, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.1, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=0.1, betas=(0.0, 0.9))
    for step in range(5):
        optimizer = of_maker if step % 3 == 2 else of_critic
        maker.zero_grad()
        critic.zero_grad()
        made = critic(maker(own_batch(step))).mean()
        (-made if optimizer is of_maker else made).backward()
        optimizer.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.2, 0.2)
    if is_odd(mistake, "bit", 1):
        flip(maker.module[1].weight, 4)
    return nn.ModuleDict({"maker": maker, "critic": critic}), {"optimizer": [of_maker, of_critic]}


@on(2)
def climbing(mistake):
    """SAM: a step is taken with the gradient a little uphill, from where it was."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        model.zero_grad()
        model(own_batch(step)).square().mean().backward()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=0.05)
        model.zero_grad()
        model(own_batch(step)).square().mean().backward()
        for parameter, old in zip(model.parameters(), before, strict=True):
            if not (step == 1 and parameter.ndim == 2 and is_odd(mistake, "not back", 1)):
                parameter.data.copy_(old)
        optimizer.step()
    return model, {"optimizer": optimizer}


# ---- On which ranks


class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        torch.manual_seed(number)
        self.name = f"layer{number}"
        self.register_module(self.name, nn.Linear(6, 6))

    def forward(self, x):
        return getattr(self, self.name)(x).tanh()


def scheduled_stages(mistake):
    """Interleaved 1F1B by torch.distributed.pipelining, pp 2 x dp 2: two layers on each rank."""
    over = mesh(2, 2, names=("pp", "dp"))
    rank, dp = over["pp"].get_local_rank(), over["dp"].get_group()
    layers = {number: Layer(number) for number in (rank, rank + 2)}
    stages = [
        PipelineStage(layer, number, 4, torch.device("cpu"), group=over["pp"].get_group())
        for number, layer in layers.items()
    ]
    schedule = ScheduleInterleaved1F1B(stages, 4, lambda y, wanted: (y - wanted).square().mean())
    optimizer = torch.optim.AdamW([p for layer in layers.values() for p in layer.parameters()])
    for step in range(2):
        optimizer.zero_grad()
        batch = (own_batch(step, 8, 6),) if rank == 0 else ()
        schedule.step(*batch, **({"target": values(8, 6)} if rank else {}))
        for parameter in optimizer.param_groups[0]["params"]:
            dist.all_reduce(parameter.grad, group=dp)
        optimizer.step()
    if is_odd(mistake, "bit", 3):
        flip(layers[3].layer3.weight, 1)
    return list(layers.values()), {"optimizer": optimizer, "mesh": over}


@on(2)
def experts_of_unlike_number(mistake):
    """Three experts on two ranks, under their numbers in the whole model."""
    torch.manual_seed(0)
    router = nn.Linear(4, 3)
    experts = {str(n): nn.Linear(4, 4) for n in range(3) if n % 2 == dist.get_rank()}
    model = nn.ModuleDict({"router": router, "experts": nn.ModuleDict(experts)})
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        optimizer.zero_grad()
        x = values(5, 4, seed=step)
        gates = router(x).softmax(1)
        parts = [gates[:, int(n), None] * expert(x) for n, expert in experts.items()]
        sum(parts).square().mean().backward()
        for parameter in router.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    if is_odd(mistake, "router", 1):
        flip(router.weight, 5)
    if is_odd(mistake, "nan", 1):
        experts["1"].weight.data[1, 2] = torch.nan
    return model, {"optimizer": optimizer, "layout": {"experts.*": "local"}}


def placed(mistake):
    """HSDP that cuts matrices along their columns, and computes in bf16."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
    options = {
        "mesh": mesh(2, 2, names=("replicate", "shard")), "reshard_after_forward": False,
        "shard_placement_fn": lambda parameter: Shard(parameter.ndim - 1),
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32),
    }  # fmt: skip
    for layer in (*model, model):
        fully_shard(layer, **options)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    train_own(model, optimizer)
    if is_odd(mistake, "bit", 3):
        flip(model[0].weight, 5)
    return model, {"optimizer": optimizer}


def taught(mistake):
    """A student on two ranks; its teacher, which takes no step, on the other two."""
    (mesh_of_student, _) = [DeviceMesh("cpu", ranks) for ranks in PAIRS]  # made by all
    told = {"groups": {"teacher.*": PAIRS[1]}}
    if dist.get_rank() in PAIRS[1]:
        model = nn.ModuleDict({"teacher": net().requires_grad_(False)})
        if is_odd(mistake, "bit", 3):
            flip(model["teacher"][0].weight, 1)
        return model, told
    student = net()
    fully_shard(student, mesh=mesh_of_student)
    optimizer = torch.optim.AdamW(student.parameters())
    train_own(student, optimizer)
    if is_odd(mistake, "nan", 1):
        student[0].weight.to_local().data[0, 1] = torch.nan
    return nn.ModuleDict({"student": student}), {**told, "optimizer": optimizer}


def averaged_apart(mistake):
    """A sharded average of the weights, with which nothing is computed yet."""
    model, average = net(), net().requires_grad_(False)
    for each in (model, average):
        fully_shard(each, mesh=mesh(4))
    optimizer = torch.optim.AdamW(model.parameters())
    train_own(model, optimizer)
    for kept, new in zip(average.parameters(), model.parameters(), strict=True):
        kept.data.lerp_(new.data, 0.1)
    if is_odd(mistake, "nan", 1):
        average[0].weight.to_local().data[0, 1] = torch.nan
    return nn.ModuleDict({"model": model, "average": average}), {"optimizer": optimizer}


def resized(mistake):
    """Two worlds of two ranks, and then one of four, with the model of before."""
    rank, model = dist.get_rank(), net()
    server = dist.TCPStore("127.0.0.1", 0, is_master=True) if rank == 0 else None
    port = [server and server.port]
    dist.broadcast_object_list(port)
    store = server or dist.TCPStore("127.0.0.1", port[0])
    for name, own, size in ((f"half{rank // 2}", rank % 2, 2), ("whole", rank, 4)):
        dist.barrier()
        dist.destroy_process_group()
        keys = dist.PrefixStore(name, store)
        dist.init_process_group("gloo", store=keys, rank=own, world_size=size)
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
        train_own(wrapped, optimizer)
    if is_odd(mistake, "bit", 1):
        flip(model[1].weight, 2)
    return wrapped, {"optimizer": optimizer}


JOBS = {
    quantisation_aware: (None, "bit"),
    unfrozen_in_turn: (None, "forgotten"),
    sparse_rows: (None, "moment"),
    normalised: (None, "bit", "nan"),
    normalised_alone: (None, "bit"),
    unplain: (None, "bit"),
    adversaries: (None, "bit"),
    climbing: (None, "not back"),
    scheduled_stages: (None, "bit"),
    experts_of_unlike_number: (None, "router", "nan"),
    taught: (None, "bit", "nan"),
    averaged_apart: (None, "nan"),
    resized: (None, "bit"),
    placed: (None, "bit"),
}

if __name__ == "__main__":
    ranked_jobs.run(JOBS, *sys.argv[1:])
