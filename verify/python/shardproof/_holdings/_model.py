"""What a live model's tensors are: names, kinds, layouts; of one module or of a list of chunks."""

import dataclasses

import torch
from torch import nn

from . import _deepspeed, _dtensor, _fsdp1, _fsdp2, _megatron, _replicas, _statistics
from ._assigned import assigned_from_data
from ._groups import Statement
from ._holding import Holding
from ._names import added_to, canonical_name, is_of, scale_of
from ._tensor import holdings


@dataclasses.dataclass
class Model:
    """tensors: in byte order of their names. flat: of FSDP1, what optimizers need. said: what is
    known of groups of ranks. order: parameters as they were registered, each once."""

    tensors: list[Holding]
    flat: _fsdp1.Flat
    said: Statement | None = None
    order: list[Holding] = dataclasses.field(default_factory=list)


def chunks_of(model) -> list[nn.Module]:
    """A module, or the list of them that a stage of a pipeline has. \\raises TypeError."""
    chunks = list(model) if isinstance(model, list | tuple) else [model]
    for chunk in chunks:
        if not isinstance(chunk, nn.Module):
            raise TypeError(
                f"the model is a {type(chunk).__name__}: expected an nn.Module or a list of them"
            )
    return chunks


def read(model, said: Statement | None = None) -> Model:
    """Every parameter and buffer under each of its names."""
    said = said or Statement()
    chunks = chunks_of(model)
    modules = [module for chunk in chunks for module in chunk.modules()]
    if any(is_of(module, {"megatron"}) for module in modules):
        said.take(*_megatron.axes())
    if any(is_of(module, {"deepspeed"}) for module in modules):
        said.take_experts(_deepspeed.expert_groups())
    shards = _fsdp2.shards_of(modules)
    flats = [_fsdp1.flat_parameters(chunk) for chunk in chunks]
    default = _ranks_of(modules, shards, flats)
    found: dict[str, Holding] = {}
    flat = _fsdp1.Flat()
    for chunk, of_chunk in zip(chunks, flats, strict=True):
        held = _of_chunk(chunk, of_chunk, shards, said, default)
        for name in held.keys() & found.keys():
            if held[name].owner is not found[name].owner:
                held[name].misfit = "two of this rank's chunks have a tensor of this name"
        found.update(held)
        flat.parts.update(of_chunk.parts)
    tensors = [found[name] for name in sorted(found, key=lambda text: text.encode())]
    order = {id(held.owner): held for held in found.values() if held.kind == "parameter"}
    return Model(tensors, flat, said, list(order.values()))


def tensors_of(model, said: Statement | None = None) -> list[Holding]:
    """The tensors of `read`."""
    return read(model, said).tensors


def _of_chunk(model, flat, shards, said, default) -> dict[str, Holding]:
    found: dict[str, Holding] = {}
    looks, anew = _statistics.Looks.at(model), _replicas.buffers_anew(model.modules())
    for prefix, module in model.named_modules(remove_duplicate=False):
        adapted = added_to(model, prefix)
        named = [(n, p, "parameter", True) for n, p in module._parameters.items()]
        named += [
            (name, buffer, "buffer", name not in module._non_persistent_buffers_set)
            for name, buffer in module._buffers.items()
        ]
        for name, tensor, kind, persistent in named:
            if tensor is None or id(tensor) in flat.skip:
                continue
            tensor = shards.get(id(tensor), tensor)
            full = canonical_name(model, prefix, name, adapted is not None)
            for held in holdings(full, kind, tensor, said, persistent, default):
                held.home = module
                if kind == "buffer":
                    held.drifts = _statistics.why_it_drifts(module, name, tensor)
                    held.is_range = _statistics.is_range(module, name)
                    replaced = max(
                        looks.times_replaced(full, tensor), id(tensor) in anew,
                        name in assigned_from_data(type(module)),
                    )  # fmt: skip
                    held.accumulates = _statistics.may_be_one(
                        module, name, tensor, persistent, replaced
                    )
                if adapted is not None:
                    held.also = True
                    held.attributes |= scale_of(adapted, full)
                found[held.name] = held
    for held in flat.held.values():
        held.unique = said.is_unique(held.name)
    found.update(flat.held)
    return found


def _ranks_of(modules, shards, flats) -> tuple[int, ...] | None:
    """The ranks that have the plain tensors of a model, as far as that shows: of a wrapper
    those that it keeps equal, of a model on meshes or of flat parameters the ranks of these."""
    ranks: set[int] = set()
    for flat in flats:
        for held in flat.held.values():
            ranks.update(held.groups.members)
    for module in modules:
        if (alike := _replicas.ranks_alike(module)) is not None:
            return alike
    meshes = {}  # each once
    for parameter in (p for module in modules for p in module._parameters.values()):
        parameter = shards.get(id(parameter), parameter)
        if _dtensor.is_a("DTensor", parameter):
            meshes[id(parameter.device_mesh)] = parameter.device_mesh
    for mesh in meshes.values():
        ranks.update(mesh.mesh.reshape(-1).tolist())
    return tuple(sorted(ranks)) or None


def state_dict_tensors(state_dict: dict, said: Statement) -> list[Holding]:
    """The tensors of a state dict by key; what is no tensor is left out."""
    found = [
        held
        for key, value in state_dict.items()
        if isinstance(key, str) and isinstance(value, torch.Tensor)
        for held in holdings(key, "parameter", value, said)
    ]
    return sorted(found, key=lambda held: held.name.encode())
