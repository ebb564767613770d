"""Lightning Fabric's ModelParallelStrategy with FSDP2: built on meta, sharded by the user's
function, made real by Fabric, filled by fabric.load_raw, saved by fabric.save."""

import os

import torch
from shardproof.subjects import job
from shardproof.subjects.launch import as_launched
from torch.distributed.fsdp import fully_shard

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "every rank maps the whole file",
    "keys": "load_raw returns none",
    "rng": "its checkpoints do not hold it",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {"placements": ["shard"], "files": [".metadata", "*.distcp"]}
NEEDS = "lightning"
RUNS = ()  # it is not sound: fixtures/issues, lightning_leaves_buffers_empty


def shard(model, mesh):
    for layer in model.get_decoder().layers:
        fully_shard(layer, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


def run(case, observe):
    as_launched(
        case, GROUP_RANK="0", LOCAL_WORLD_SIZE=str(case.world_size), TORCHELASTIC_RUN_ID="none",
        MASTER_ADDR="localhost", MASTER_PORT="29500",
    )  # fmt: skip
    from lightning.fabric import Fabric
    from lightning.fabric.strategies import ModelParallelStrategy

    strategy = ModelParallelStrategy(shard, case.world_size, 1)
    fabric = Fabric(accelerator="cpu", devices=case.world_size, strategy=strategy)
    fabric.launch()

    def load(observe):
        with fabric.init_module(empty_init=True):
            model = case.build("meta")
        observe("built", model=model)
        model = fabric.setup(model)
        path = f"{case.save_to}.raw_{case.rank}.pt"
        torch.save(case.state_dict(), path)
        fabric.load_raw(path, model)
        os.remove(path)
        return model.module, fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-3))

    def save(model, optimizer):
        fabric.save(case.save_to, {"model": model, "optimizer": optimizer})

    def restore():
        model, optimizer = load(job.unseen)
        fabric.load(case.save_to, {"model": model, "optimizer": optimizer})
        return model, optimizer

    job.run(case, observe, load, save, restore)
