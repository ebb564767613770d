"""AREaL's FSDP utilities, called as its engine's initialize() does.

efficient=yes is its memory_efficient_load: of a text model rank 0 builds it from its config and
fills it, the others build it on meta; it is sharded, and AREaL's own function brings rank 0's
values to all. A vision model, and any model with efficient=no, is read by every rank. lora=yes puts
a new adapter into it before that.
"""

import os

import torch
from shardproof.subjects import job, source

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "save": "only its loading is looked at",
}
SHOWS = {"placements": ["shard"]}
NEEDS = "areal"
RUNS = (
    "on_2 nightly: 2 qwen3-small",
    "lora nightly: 2 qwen3-small lora=yes efficient=no",
)
OPTIONS = {"efficient": ["yes", "no"], "lora": ["no", "yes"]}
PLAIN = {"efficient": "no"}


def run(case, observe):
    os.environ["LOCAL_RANK"] = str(case.rank)
    from areal.engine.core.model import is_valid_vision_model
    from areal.engine.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
    from areal.utils.save_load import get_state_dict_from_repo_id_or_path
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(case.checkpoint)
    has_lora = case.options["lora"] == "yes"
    is_efficient = case.options["efficient"] == "yes"
    fills = is_efficient and not is_valid_vision_model(config.model_type)

    def load(observe):
        if fills:
            model = case.build("cpu" if case.rank == 0 else "meta")
        else:
            model, missing, unexpected = source.loaded(case)
        if has_lora:
            model = adapted(model)
        observe("built", model=model)
        if fills and case.rank == 0:
            state = get_state_dict_from_repo_id_or_path(case.checkpoint)
            missing, unexpected = model.load_state_dict(state, strict=False)
            missing = [key for key in missing if "lora" not in key]
        if case.rank == 0 or not fills:
            observe("loaded", model=model, missing=missing, unexpected=unexpected)
        full = model.state_dict() if case.rank == 0 else {}
        apply_fsdp2(model, {"mesh": case.device_mesh()}, None)
        if fills or has_lora:
            tied = config.tie_word_embeddings
            fsdp2_load_full_state_dict(model, full, None, tie_word_embeddings=tied)
        trained = [each for each in model.parameters() if each.requires_grad]
        return model, torch.optim.AdamW(trained, lr=1e-3)

    job.run(case, observe, load)


def adapted(model):
    from peft import LoraConfig, TaskType, get_peft_model

    model.enable_input_require_grads()
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, target_modules="all-linear", bias="none")
    return get_peft_model(model, config, autocast_adapter_dtype=False)
