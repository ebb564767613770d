"""PyTorch FSDP1: rank 0 reads, the values are broadcast, then sharded.

FSDP1's own broadcast (`sync_module_states`) refuses modules on the CPU, so it is done by hand.
"""

import dcp_state
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from training import optimizer_of, train, unseen

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "FSDP1 makes the original parameters views of flat ones",
    "host_bound": "every rank holds the whole model before it is sharded",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {
    "placements": ["flat_shard"],
    "collectives": ["broadcast", "gather", "scatter"],
    "files": [".metadata", "*.distcp"],
    "stages": ["built", "loaded.keys", "resumed@*.optimizer"],
}
READS = "rank 0"
RUNS = (
    "on_1 nightly: 1 qwen3-small",
    "on_2: 2 llama-tied-small",
    "on_3 nightly: 3 llama-tied-small",
    "on_2x2 nightly: 2x2 qwen3-small",
    "mixed nightly: 2 llama-tied-small mixed_precision=bf16",
    "flat: 2 llama-tied-small parameters=flat",
)
OPTIONS = {
    "mixed_precision": ["no", "bf16"],
    "parameters": ["original", "flat"],  # flat is FSDP1's default
}


def wrap(case, model):
    layers = getattr(getattr(model, "model", model), "layers", None)
    policy = ModuleWrapPolicy({type(layers[0])}) if layers else None
    hybrid = len(case.mesh) > 1  # a 2-D mesh says shard within the last axis, replicate across
    strategy = ShardingStrategy.HYBRID_SHARD if hybrid else ShardingStrategy.FULL_SHARD
    mixed = None
    if case.options["mixed_precision"] == "bf16":
        mixed = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return FullyShardedDataParallel(
        model,
        mixed_precision=mixed,
        device_mesh=case.device_mesh(),
        sharding_strategy=strategy,
        auto_wrap_policy=policy,
        use_orig_params=case.options["parameters"] == "original",
        device_id=torch.device("cpu"),
    )


def loaded(case, observe):
    model = case.build("cpu")
    observe("built", model=model)
    if case.rank == 0:
        keys = model.load_state_dict(case.state_dict(), strict=False)
        observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src=0)
    return wrap(case, model)


def restored(case):
    model = wrap(case, case.build("cpu"))
    optimizer = optimizer_of(model) if case.steps else None
    dcp_state.restore(case, model, optimizer)
    return model, optimizer


def run(case, observe):
    if case.steps:
        return train(
            case,
            observe,
            loaded=lambda: loaded(case, unseen),
            save=lambda model, optimizer: dcp_state.save(case, model, optimizer),
            restored=lambda: restored(case),
        )
    if not case.resumes:
        model = loaded(case, observe)
        observe("ready", model=model)
        if not case.saves:
            return None
        dcp_state.save(case, model)
        observe("saved", model=model)
        if case.measures_memory:
            return None
    return observe("restored", model=restored(case)[0])
