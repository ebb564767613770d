"""Twinkle's native FSDP strategy: rank 0 loads, the others build the model empty, as Twinkle's
TransformersModel does with memory_efficient_init, and wrap_model brings the values to all."""

import torch
from accelerate import init_empty_weights
from shardproof.subjects import job, source
from shardproof.subjects.launch import as_launched
from shardproof.subjects.offered import offered

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "save": "the strategy saves nothing by itself",
}
SHOWS = {"placements": ["shard"]}
NEEDS = "twinkle-kit"
RUNS = ("on_2 nightly: 2 qwen3-small",)
OPTIONS = {"memory_efficient_init": ["yes", "no"]}
PLAIN = {"memory_efficient_init": "no"}  # every rank loads


def run(case, observe):
    as_launched(case)
    from twinkle import DeviceMesh
    from twinkle.model.transformers.strategy import NativeFSDPStrategy

    efficient = case.options["memory_efficient_init"] == "yes"

    def load(observe):
        if case.rank == 0 or not efficient:
            model, missing, unexpected = source.loaded(case)
            observe("built", model=model)
            observe("loaded", model=model, missing=missing, unexpected=unexpected)
        else:
            with init_empty_weights(include_buffers=False):
                model = case.build("cpu")
            model.tie_weights()
            observe("built", model=model)
        size = case.world_size
        mesh = DeviceMesh.from_sizes(world_size=size, fsdp_size=size, device_type="cpu")
        strategy = NativeFSDPStrategy(
            mesh,
            mixed_precision="no",
            **offered(NativeFSDPStrategy, memory_efficient_init=efficient),
        )
        return strategy.wrap_model(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

    job.run(case, observe, load)
