#!/usr/bin/env python3
"""Jobs of many kinds of parallelism on four ranks, each sound and with a mistake, before
shardproof.check: parallel_jobs.py DEVICE [EVIDENCE]

Prints one line of JSON: {job: what check raised on every rank alike, or what it returned}. With a
directory EVIDENCE they are observed instead, and it holds the evidence of each job.
"""

import sys

import ranked_jobs
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.two_tensor import TwoTensor

DEVICE = sys.argv[1]
PAIRS = [[0, 1], [2, 3]]
ACROSS = [[0, 2], [1, 3]]


def module(**tensors):
    made = nn.Module()
    for name, tensor in tensors.items():
        made.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    return made


def values(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def stages(mistake):
    """pp 2 x dp 2: ranks 0 and 1 have the first layer, 2 and 3 the second."""
    stage, other = divmod(dist.get_rank(), 2)
    name = "layer0" if mistake == "index" else f"layer{stage}"
    model = module(**{name: values(4, 3, seed=stage), "shared": values(5)})
    if mistake == "drift" and stage == 1 and other == 1:
        model.layer1[2, 1] += 1
    if mistake == "shared" and stage == 1:
        model.shared += 1
    return model, {"mesh": {"pp": ACROSS, "dp": PAIRS}}


def chunks(mistake):
    """The same with two chunks a stage, and nothing said of the job."""
    stage, other = divmod(dist.get_rank(), 2)
    model = [module(**{f"layer{stage + 2 * i}": values(4, seed=i)}) for i in (0, 1)]
    if mistake == "twice":
        model[1] = module(**{f"layer{stage}": values(4, seed=9)})
    if mistake == "nan" and stage == 1 and other == 0:
        next(model[0].parameters())[1] = torch.nan
    return model, {}


def tensor_parallel(mistake):
    """tp 2 x dp 2 of plain tensors; of `fused` each rank has a part of both halves."""
    other, part = divmod(dist.get_rank(), 2)
    up, down, fused = values(8, 3), values(3, 8, seed=1), values(8, 3, seed=2)
    gate, value = fused.chunk(2)
    model = module(up=up.chunk(2)[part].clone(), down=down.chunk(2, 1)[part].clone(),
                   fused=torch.cat([gate.chunk(2)[part], value.chunk(2)[part]]),
                   norm=values(3))  # fmt: skip
    for name, dim, stride in (("up", 0, 1), ("down", 1, 1), ("fused", 0, 2)):
        tensor = getattr(model, name)
        tensor.tensor_model_parallel, tensor.partition_dim = True, dim
        tensor.partition_stride = stride
    if mistake == "norm" and dist.get_rank() == 3:
        model.norm[1] += 1
    if mistake == "part" and dist.get_rank() == 3:
        model.down[2, 1] += 1
    return model, {"mesh": {"tp": PAIRS, "dp": ACROSS}}


def told_layout(mistake):
    """The same of tensors that say nothing of themselves."""
    other, part = divmod(dist.get_rank(), 2)
    model = module(up=values(8, 3).chunk(2)[part].clone(), norm=values(3))
    if mistake == "part" and other == 1 and part == 0:
        model.up[0, 0] += 1
    return model, {
        "mesh": {"tp": PAIRS, "dp": ACROSS},
        "layout": {"u*": {"tp": Shard(0)}},
    }


def experts(mistake):
    """Each rank has an expert of its own, and all have the router."""
    model = module(expert=values(3, 2, seed=dist.get_rank()), router=values(4, 3))
    if mistake == "router" and dist.get_rank() == 2:
        model.router[1, 1] += 1
    return model, {"layout": {"expert": "local"}}


def shared_experts(mistake):
    """Two ranks have the same expert each."""
    group = PAIRS[dist.get_rank() // 2]
    model = module(expert=values(3, 2, seed=group[0]), router=values(4, 3))
    if mistake == "expert" and dist.get_rank() == 3:
        model.expert[0, 1] += 1
    return model, {"groups": {"exp*": group}}


def meshes(mistake):
    """Dense weights on one mesh, experts on another with names of its own."""
    rank = dist.get_rank()
    dense = init_device_mesh(DEVICE, (4,), mesh_dim_names=("fsdp",))
    sparse = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("efsdp", "ep"))
    outer, inner = divmod(rank, 2)
    expert = values(4, 4).chunk(2)[inner].chunk(2, 1)[outer].clone()
    router = values(3, seed=1)
    if mistake == "router" and rank == 2:
        router[1] += 1
    on = dict(run_check=False)
    return module(
        dense=DTensor.from_local(values(8, 2).chunk(4)[rank].clone(), dense, [Shard(0)], **on),
        router=DTensor.from_local(router, dense, [Replicate()], **on),
        expert=DTensor.from_local(expert, sparse, [Shard(1), Shard(0)], **on),
    ), {}


def uneven(mistake):
    """Shards of 3 and 5 rows, which say so; two replicas."""
    outer, inner = divmod(dist.get_rank(), 2)
    low, high = ((0, 3), (3, 8))[inner]
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("rep", "shard"))
    whole = values(8, 2)
    local = whole[low:high].clone()
    if mistake == "element" and outer == 1 and inner == 1:
        local[4, 1] += 1
    tensor = DTensor.from_local(local, mesh, [Replicate(), Shard(0)], run_check=False,
                                shape=whole.shape, stride=whole.stride())  # fmt: skip
    first = low - (1 if mistake == "overlap" and inner == 1 else 0)
    chunk = ChunkStorageMetadata(torch.Size([first, 0]), local.shape)
    model = module(w=tensor)
    model.w._local_tensor.__create_chunk_list__ = lambda: [chunk]
    return model, {}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).to(DEVICE)


def ties(mistake):
    """Two names of one tensor. On rank 2 they may be two, on rank 1 a third one may be the same."""
    rank = dist.get_rank()
    model = module(embed=values(4, 3), other=values(4, 3), head=values(1))
    model.head = model.embed
    if mistake == "untied" and rank == 2:
        model.head = nn.Parameter(values(4, 3), requires_grad=False)
    if mistake == "shared" and rank == 1:
        model.other = model.embed
    return model, {}


def stepped(model, optimizer):
    with torch.enable_grad():
        model(values(5, 4)).pow(2).mean().backward()
    optimizer.step()


def hybrid(mistake):
    """FSDP1 with flat parameters: shards within two ranks, replicas across."""
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("replicate", "shard"))
    with torch.enable_grad():
        model = FullyShardedDataParallel(
            net(), device_mesh=mesh, use_orig_params=False, device_id=torch.device(DEVICE),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters())
    stepped(model, optimizer)
    (state,) = optimizer.state.values()
    if mistake == "step" and dist.get_rank() == 1:
        state["step"] += 1
    if mistake == "moment" and dist.get_rank() == 3:
        state["exp_avg"][2] += 1
    if mistake == "no_state" and dist.get_rank() == 1:
        optimizer.state.clear()
    return model, {"optimizer": optimizer}


def owners(mistake):
    """Each rank has the optimizer's state of parameters of its own."""
    with torch.enable_grad():
        model = nn.parallel.DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    stepped(model, optimizer)
    if mistake == "stale" and dist.get_rank() == 1:
        model.module[1].weight.data[0, 0] += 1
    return model, {"optimizer": optimizer}


class Both:
    """A container of optimizers, as many trainers have one."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers


def several(mistake):
    model = net()
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    rest = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    both = Both(torch.optim.Adafactor(matrices), torch.optim.AdamW(rest))
    for optimizer in both.optimizers:
        stepped(model, optimizer)
    if mistake == "moment" and dist.get_rank() == 3:
        both.optimizers[1].state[model[0].bias]["exp_avg"][2] += 1
    if mistake == "factor" and dist.get_rank() == 3:
        both.optimizers[0].state[model[1].weight]["row_var"].view(-1)[1] += 1
    return model, {"optimizer": both}


def codes(mistake):
    """Packed 4-bit codes in bf16, some of which look like NaN."""
    packed = torch.arange(256, dtype=torch.uint8, device=DEVICE).repeat_interleave(2)
    model = module(weight=torch.stack([packed, packed.flip(0)], 1).flatten().view(torch.bfloat16))
    model.weight.quant_type = "nf4"
    model.norm = nn.Parameter(values(4))
    if mistake == "norm":
        model.norm.data[2] = torch.nan
    if mistake == "copied" and dist.get_rank() == 2:
        model.weight.data.view(torch.int16)[5] ^= 1
    return model, {}


def parts(mistake):
    """A subclass that is made of two tensors, and a sharded one."""
    rank = dist.get_rank()
    mesh = init_device_mesh(DEVICE, (2, 2), mesh_dim_names=("rep", "shard"))
    first, second = values(6, 2), values(6, 2, seed=1)
    if mistake == "whole" and rank == 2:
        second[3, 1] += 1
    local = TwoTensor(values(3, seed=5 + rank % 2), values(3, seed=7 + rank % 2))
    if mistake == "shard" and rank == 3:
        local.a[0] += 1
    model = nn.Module()
    model.whole = nn.Parameter(TwoTensor(first, second))
    model.cut = nn.Parameter(
        DTensor.from_local(local, mesh, [Replicate(), Shard(0)], run_check=False)
    )
    return model, {}


def gathered(mistake):
    """FSDP2 between forward and backward: the modules hold whole parameters."""
    model = net()
    fully_shard(model, mesh=init_device_mesh(DEVICE, (4,)), reshard_after_forward=False)
    optimizer = torch.optim.AdamW(model.parameters())
    stepped(model, optimizer)
    model(values(5, 4))
    if mistake == "moment" and dist.get_rank() == 2:
        (state,) = [s for p, s in optimizer.state.items() if p.shape == (3, 6)]
        state["exp_avg"].to_local()[0, 1] = torch.nan
    return model, {"optimizer": optimizer}


def batch_norm(mistake):
    """Statistics of each rank's own batches, once there are any."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).to(DEVICE)
    if mistake == "before" and dist.get_rank() == 3:
        model[1].running_mean[1] += 1
    if mistake != "before":
        model(values(8, 4, seed=dist.get_rank()))
    if mistake == "weight" and dist.get_rank() == 3:
        model[1].weight[2] += 1
    if mistake == "nan" and dist.get_rank() == 3:
        model[1].running_var[2] = torch.nan
    return model, {}


def contradicting(_):
    """What is said of groups is not the same on all ranks."""
    group = [0, 1, 2, 3] if dist.get_rank() == 0 else PAIRS[dist.get_rank() // 2]
    return module(w=values(2)), {"group": group}


def unheard(_):
    return module(w=values(2)), {"layout": {"other.*": "local"}}


def outside(_):
    return module(w=values(2)), {"group": [0, 1]}


JOBS = {
    stages: (None, "index", "drift", "shared"), chunks: (None, "twice", "nan"),
    tensor_parallel: (None, "norm", "part"), told_layout: (None, "part"),
    experts: (None, "router"), shared_experts: (None, "expert"), meshes: (None, "router"),
    uneven: (None, "element", "overlap"), hybrid: (None, "step", "moment", "no_state"),
    owners: (None, "stale"), several: (None, "moment", "factor"),
    codes: (None, "norm", "copied"), parts: (None, "whole", "shard"),
    gathered: (None, "moment"), ties: (None, "untied", "shared"),
    batch_norm: (None, "before", "weight", "nan"),
    contradicting: ("",), unheard: ("",), outside: ("",),
}  # fmt: skip


if __name__ == "__main__":
    torch.set_grad_enabled(False)  # of the jobs, but where they say otherwise
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[2:3]))
