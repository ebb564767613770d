"""A job under torchrun in which shardproof.check meets sound models and mistakes.

Rank 0 prints one line of JSON: {scenario: what check raised on every rank alike, or "ok"}.
"""

import json
import sys
import time

import shardproof
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(33, 65), nn.BatchNorm1d(65), nn.Linear(65, 7))


def on_rank(rank):
    return dist.get_rank() == rank


def sharded(*sizes, names=None):
    model = build()
    for layer in model:
        fully_shard(layer, mesh=init_device_mesh("cpu", sizes, mesh_dim_names=names))
    return model


def trained(model, make=torch.optim.AdamW):
    optimizer = make(model.parameters(), lr=0.01)
    model(torch.randn(4, 33)).sum().backward()
    optimizer.step()
    return optimizer


def plain():
    return build()


def plain_one_element():
    model = build()
    if on_rank(1):
        model[0].weight[3, 5] += 1
    return model


def large_one_element():
    model = nn.Linear(4096, 1024, bias=False)
    dist.broadcast(model.weight, 0)
    if on_rank(1):
        model.weight[700, 77] += 1
    return model


def buffer_of_one_rank():
    model = build()
    if on_rank(1):
        model[1].running_mean[4] = 2
    return model


def no_bias_on_one_rank():
    model = build()
    if on_rank(1):
        model[0].bias = None
    return model


def bf16_on_one_rank():
    return build().to(torch.bfloat16) if on_rank(1) else build()


def meta_on_one_rank():
    model = build()
    if on_rank(1):
        model[2].to("meta")
    return model


def tied_on_one_rank():
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    for parameter in model.parameters():
        parameter.fill_(0.5)
    if on_rank(1):
        model[1].weight = model[0].weight
    return model


def fsdp2():
    model = sharded(dist.get_world_size())
    return model, trained(model)


def fsdp2_nan():
    model = sharded(dist.get_world_size())
    if on_rank(1):
        model[2].weight._local_tensor.view(-1)[0] = float("nan")
    return model


def fsdp2_stale_moment():
    model = sharded(2, dist.get_world_size() // 2, names=("dp_replicate", "dp_shard"))
    optimizer = trained(model)
    if on_rank(1):
        optimizer.state[model[0].weight]["exp_avg"]._local_tensor.view(-1)[2] += 1
    return model, optimizer


def fsdp2_shards_of_another_size():
    model = sharded(dist.get_world_size())
    if on_rank(1):
        model[0].weight._local_tensor = model[0].weight._local_tensor[1:]
    return model


def hsdp_replicas_differ():
    model = sharded(2, dist.get_world_size() // 2, names=("dp_replicate", "dp_shard"))
    if on_rank(dist.get_world_size() - 1):
        model[0].weight._local_tensor.view(-1)[7] += 1
    return model


def fsdp1():
    model = FullyShardedDataParallel(build(), use_orig_params=True, device_id=torch.device("cpu"))
    return model, trained(model)


def subclass():
    class Quantised(torch.Tensor):
        pass

    model = build()
    data = torch.ones(3).as_subclass(Quantised)
    model[0].scale = nn.Parameter(data)
    return model


def one_element_under_meta():
    model = large_one_element()
    torch.set_default_device("meta")  # as a script may that builds its next model
    return model


SCENARIOS = [
    plain, one_element_under_meta, plain_one_element, large_one_element, buffer_of_one_rank,
    no_bias_on_one_rank, bf16_on_one_rank, meta_on_one_rank, tied_on_one_rank, fsdp2, fsdp2_nan,
    fsdp2_stale_moment, fsdp2_shards_of_another_size, hsdp_replicas_differ, fsdp1, subclass,
]  # fmt: skip


def judged(scenario):
    with torch.set_grad_enabled(scenario in (fsdp2, fsdp1, fsdp2_stale_moment)):
        made = scenario()
    model, optimizer = made if isinstance(made, tuple) else (made, None)
    try:
        outcome = shardproof.check(model, optimizer=optimizer)
        return f"ok, inconclusive: {outcome.inconclusive}" if outcome.inconclusive else "ok"
    except shardproof.Mismatch as mismatch:
        return str(mismatch)
    finally:
        torch.set_default_device("cpu")


def main():
    dist.init_process_group("gloo")
    found = {}
    for scenario in SCENARIOS:
        texts = [None] * dist.get_world_size()
        dist.all_gather_object(texts, judged(scenario))
        found[scenario.__name__] = texts[0] if len(set(texts)) == 1 else f"ranks differ: {texts}"
    began = time.monotonic()
    if not on_rank(1):  # one rank does not come
        try:
            shardproof.check(build(), deadline=2)
            found["absent_rank"] = "ok"
        except TimeoutError as error:
            found["absent_rank"] = f"{error} after {time.monotonic() - began < 20}"
    if on_rank(0):
        print(json.dumps(found))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
