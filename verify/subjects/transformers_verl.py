"""verl's FSDP utilities, called as its FSDP engine does: from_pretrained under its own context, in
which only rank 0 gets real parameters, its wrapping, and its function that brings the values to
all. CUDA is a stand-in.
"""

import os

import torch
from shardproof.subjects import cuda_stand_in, job, source

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "every rank reads the checkpoint",
    "save": "only its loading is looked at",
}
SHOWS = {"placements": ["shard"], "collectives": ["broadcast"]}
NEEDS = "verl"
RUNS = ("on_2 nightly: 2 qwen3-small",)


def run(case, observe):
    os.environ["LOCAL_RANK"] = str(case.rank)
    cuda_stand_in.install(current="cpu")
    from verl.utils.fsdp_utils import (
        apply_fsdp2,
        fsdp2_load_full_state_dict,
        get_init_weight_context_manager,
    )

    def load(observe):
        mesh = case.device_mesh()
        with get_init_weight_context_manager(use_meta_tensor=not case.ties, mesh=mesh)():
            model, missing, unexpected = source.loaded(case)
        observe("built", model=model)
        if case.rank == 0:
            observe("loaded", model=model, missing=missing, unexpected=unexpected)
        full = model.state_dict()
        apply_fsdp2(model, {"mesh": mesh}, {})
        fsdp2_load_full_state_dict(model, full, mesh, None)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    job.run(case, observe, load)
