"""A mixture of experts: experts along `ep`, all else along `dp_shard`, each rank reading its part.

`ep` is laid over dp_shard (--mesh dp_shard=4,ep=2@dp_shard). Experts lie on the mesh that it makes
of it, as DTensors or as plain tensors of which each rank has its own.
"""

import torch
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

CANNOT = {
    "plain": "it has one way of loading",
    "save": "it only loads",
    "train": "it only loads",
    "identity": "it puts new parameters in the place of those of the built model",
    "host_bound": "every rank reads every tensor of the checkpoint",
}
SHOWS = {"placements": ["shard"]}
RUNS = (
    "on_4: dp_shard=4,ep=2@dp_shard qwen3-moe-small",
    "plain: dp_shard=4,ep=2@dp_shard experts_even.json experts=plain",
    "replicated nightly: dp_replicate=2,dp_shard=2,ep=2@dp_shard qwen3-moe-small",
    "over_two nightly: dp_shard=2,cp=2,ep=4@dp_shard+cp experts_even.json experts=plain",
)
OPTIONS = {"experts": ["dtensor", "plain"]}
PARTS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


def is_expert(name):
    return ".experts." in name


def stored(state, name):
    """A tensor of the model: of packed experts, made of a key for each."""
    if name in state:
        return state[name]
    prefix, _, leaf = name.rpartition(".")
    count = sum(key.startswith(prefix) for key in state) // 3
    return torch.stack(
        [
            torch.cat([state[f"{prefix}.{expert}.{part}.weight"] for part in PARTS[leaf]])
            for expert in range(count)
        ]
    )


def expert_mesh(case):
    """Its axes end with what ep leaves of the axes that it divides, and ep."""
    mesh = case.device_mesh("ep")
    rest = next(axis for axis in mesh.mesh_dim_names if axis.endswith("_mod_ep"))
    return mesh[rest, "ep"]


def local_experts(case, mesh, full):
    """This rank's experts: a plain tensor, the same on all ranks with its coordinate on ep."""
    parts = torch.chunk(full, mesh["ep"].size(), dim=0)
    return parts[mesh["ep"].get_local_rank()].clone()


def placed_experts(case, mesh, full):
    """Experts along ep, and each of them cut along what is left."""
    return distribute_tensor(full, mesh, [Shard(1), Shard(0)], src_data_rank=None)


def run(case, observe):
    model = case.build("meta")
    observe("built", model=model)
    state, dense, experts = case.state_dict(), case.device_mesh()["dp_shard"], expert_mesh(case)
    plain = case.options["experts"] == "plain"
    place = local_experts if plain else placed_experts
    for name, parameter in dict(model.named_parameters()).items():
        full = stored(state, name)
        if is_expert(name):
            value = place(case, experts, full)
        elif full.dim() > 1:
            value = distribute_tensor(full, dense, [Shard(0)], src_data_rank=None)
        else:
            value = distribute_tensor(full, dense, [Replicate()], src_data_rank=None)
        owner, _, leaf = name.rpartition(".")
        owner = model.get_submodule(owner)
        owner._parameters[leaf] = torch.nn.Parameter(value, parameter.requires_grad)
    real = dict(case.build("cpu").named_buffers())
    for name in dict(model.named_buffers()):
        owner, _, leaf = name.rpartition(".")
        model.get_submodule(owner)._buffers[leaf] = real[name]
    layout = {"*.experts.*": {"ep": Shard(0)}} if plain else None
    observe("ready", model=model, missing=[], unexpected=[], layout=layout)
