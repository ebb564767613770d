"""Stages along `pp`, each with its own layers, cut along `tp` as Megatron does.

Ranks along `cp` and `dp_replicate` hold the same. Each rank reads its part.
"""

import torch
from torch.distributed.tensor import Shard, distribute_tensor

CANNOT = {
    "plain": "it has one way of loading",
    "save": "it only loads",
    "train": "it only loads",
    "identity": "it puts new parameters in the place of those of the built model",
    "host_bound": "every rank reads every tensor that its stage has",
    "keys": "a stage knows which keys it needs, not which the model needs",
}
SHOWS = {"placements": ["shard"]}
RUNS = (
    "on_2x2: pp=2,tp=2 qwen3-small",
    "with_cp: tp=2,cp=2 qwen3-small",
    "with_all nightly: pp=2,cp=2,tp=2 qwen3-small",
)
ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head")
COLUMNS = ("o_proj", "down_proj")


def stage_of(case, name, layers):
    """The stage that a tensor or a module belongs to."""
    parts = name.split(".")
    stages = case.mesh.get("pp", 1)
    if "layers" in parts:
        return int(parts[parts.index("layers") + 1]) * stages // layers
    return 0 if "embed_tokens" in parts else stages - 1


def keep_stage(case, mesh, model):
    """Leaves out the modules of other stages. Names stay those of the whole model."""
    layers = len(model.model.layers)
    own = mesh["pp"].get_local_rank() if "pp" in case.mesh else 0
    for index in range(layers):
        if stage_of(case, f"layers.{index}", layers) != own:
            del model.model.layers._modules[str(index)]
    for owner, leaf in ((model.model, "embed_tokens"), (model.model, "norm"), (model, "lm_head")):
        if stage_of(case, leaf, layers) != own:
            del owner._modules[leaf]


def read(case, state, name):
    """The whole tensor, before it is cut."""
    return state[name]


def placed(mesh, name, full):
    leaf = name.split(".")[-2]
    if leaf not in ROWS + COLUMNS or full.dim() < 2:
        return full.clone()
    dim = 0 if leaf in ROWS else 1
    return distribute_tensor(full, mesh["tp"], [Shard(dim)], src_data_rank=None)


def run(case, observe):
    mesh = case.device_mesh()
    model = case.build("meta")
    keep_stage(case, mesh, model)
    observe("built", model=model)
    state = case.state_dict()
    for name, parameter in dict(model.named_parameters()).items():
        value = placed(mesh, name, read(case, state, name))
        owner, _, leaf = name.rpartition(".")
        owner = model.get_submodule(owner)
        owner._parameters[leaf] = torch.nn.Parameter(value, parameter.requires_grad)
    real = dict(case.build("cpu").named_buffers())
    for name in dict(model.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        model.get_submodule(owner)._buffers[leaf] = real[name]
    observe("ready", model=model)
