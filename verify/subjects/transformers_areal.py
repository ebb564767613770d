"""AREaL's FSDP utilities, called as its engine's initialize() does with memory_efficient_load.

Rank 0 builds the model from its config and fills it, the others build it on meta; it is sharded,
and AREaL's own function brings rank 0's values to all. The plain way is from_pretrained everywhere.
"""

import os

import torch
from shardproof.subjects import job, source

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "save": "only its loading is looked at",
}
SHOWS = {"placements": ["shard"], "collectives": ["broadcast"]}
NEEDS = "areal"
RUNS = ("on_2 nightly: 2 qwen3-small",)


def run(case, observe):
    os.environ["LOCAL_RANK"] = str(case.rank)
    from areal.engine.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
    from areal.utils.save_load import get_state_dict_from_repo_id_or_path

    def load(observe):
        if case.strategy == "plain":
            model, missing, unexpected = source.loaded(case)
            observe("built", model=model)
        else:
            model = case.build("cpu" if case.rank == 0 else "meta")
            observe("built", model=model)
        full = {}
        if case.strategy != "plain" and case.rank == 0:
            state = get_state_dict_from_repo_id_or_path(case.checkpoint)
            missing, unexpected = model.load_state_dict(state, strict=False)
            full = model.state_dict()
        if case.strategy == "plain" or case.rank == 0:
            observe("loaded", model=model, missing=missing, unexpected=unexpected)
        apply_fsdp2(model, {"mesh": case.device_mesh()}, None)
        if case.strategy != "plain":
            tied = model.config.tie_word_embeddings
            fsdp2_load_full_state_dict(model, full, None, tie_word_embeddings=tied)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    job.run(case, observe, load)
