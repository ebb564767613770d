"""Megatron-FSDP, whose DTensors are uneven, with its optimizer and DCP. CUDA is a stand-in.

init=cpu: every rank loads the model, which is then sharded. init=meta: it is sharded from meta,
where Megatron-FSDP calls reset_parameters, and the safetensors are read by DCP.
"""

import torch
import torch.distributed.checkpoint as dcp
from shardproof.subjects import cuda_stand_in, job, source
from torch.distributed.device_mesh import init_device_mesh

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "fully_shard_model replaces every parameter by a DTensor of its own",
    "host_bound": "a unit is gathered whole before it is sharded",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
    "rng": "its checkpoints do not hold it",
}
SHOWS = {"placements": ["uneven_shard"], "files": [".metadata", "*.distcp"]}
NEEDS = "megatron-fsdp"
RUNS = ("on_2 nightly: 2 qwen3-small",)
OPTIONS = {"init": ["cpu", "meta"]}


def shard(case, model):
    from megatron_fsdp import MixedPrecisionPolicy, fully_shard_model

    return fully_shard_model(
        model,
        device_mesh=init_device_mesh("cpu", (case.world_size, 1), mesh_dim_names=("dp", "tp")),
        dp_shard_dim="dp",
        tp_dim="tp",
        fsdp_unit_modules=[torch.nn.Linear, torch.nn.Embedding],
        device=torch.device("cpu"),
        init_model_with_meta_device=case.options["init"] == "meta",
        mixed_precision_policy=MixedPrecisionPolicy(main_params_dtype=None),
    )


def run(case, observe):
    cuda_stand_in.install()

    def load(observe):
        from megatron_fsdp import fully_shard_optimizer

        meta = case.options["init"] == "meta"
        model, missing, unexpected = (case.build("meta"), (), ()) if meta else source.loaded(case)
        observe("built", model=model)
        observe("loaded", missing=missing, unexpected=unexpected)
        model = shard(case, model)
        if meta:
            state = {n.removeprefix("module."): t for n, t in model.state_dict().items()}
            dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(case.checkpoint))
            model.install_optimized_model_weights()
        return model, fully_shard_optimizer(torch.optim.AdamW(model.parameters(), lr=1e-3))

    def save(model, optimizer):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.save(state, checkpoint_id=case.save_to)

    def restore():
        model, optimizer = load(job.unseen)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.load(state, checkpoint_id=case.save_to)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return model, optimizer

    job.run(case, observe, load, save, restore)
