"""A training script, started by torchrun, in which shardproof.observe was put at a few places:
observed_job.py CHECKPOINT MISTAKE"""

import sys

import shardproof
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM

WEIGHT = "model.layers.1.mlp.up_proj.weight"


def loaded(checkpoint):
    config = AutoConfig.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_config(config, dtype=config.dtype)
    stale = torch.optim.AdamW(model.parameters())
    for layer in model.model.layers:
        fully_shard(layer, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    full = {}
    for path in shards_of(checkpoint):
        full.update(load_file(path))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(distribute_tensor(full[name], parameter.device_mesh,
                                              parameter.placements))  # fmt: skip
    return model, stale


def shards_of(checkpoint):
    import pathlib

    return sorted(pathlib.Path(checkpoint).glob("*.safetensors"))


def main(checkpoint, mistake):
    dist.init_process_group("gloo")
    model, stale = loaded(checkpoint)
    if mistake == "one_element" and dist.get_rank() == 1:
        model.get_parameter(WEIGHT).to_local().detach().view(-1)[3] += 1
    optimizer = stale if mistake == "stale_optimizer" else torch.optim.AdamW(model.parameters())
    source = None if mistake == "no_checkpoint" else checkpoint
    with torch.device("meta"):  # as where a script builds a model
        shardproof.observe("ready", model=model, optimizer=optimizer, checkpoint=source)
    for step in (1, 2):
        tokens = torch.randint(100, (2, 8), generator=torch.Generator().manual_seed(step))
        model(input_ids=tokens, labels=tokens).loss.backward()
        if mistake == "raises" and dist.get_rank() == 1:
            raise RuntimeError("lost my way")
        optimizer.step()
        optimizer.zero_grad()
        shardproof.observe("stepped", model=model, optimizer=optimizer, step=step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
