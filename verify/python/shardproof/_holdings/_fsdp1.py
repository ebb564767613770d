"""FSDP1: original parameters are stretches of flat ones, and so is what an optimizer keeps of
them."""

import dataclasses
import math
import sys

import torch
import torch.distributed as dist
from torch import nn

from . import _layout
from ._groups import Groups, dist_rank, world
from ._holding import Holding
from ._layout import Placement
from ._names import canonical_name
from ._tensor import attributes_of, why_unreadable

# FSDP1 flattens a parameter in the order of its memory, which is not that of its rows.
_PERMUTED = "its memory is in another order, as channels_last is"


@dataclasses.dataclass
class Flat:
    """held: by name. skip: parameters that are, or are views of, a flat parameter. parts: of each
    flat parameter, by id, its original ones."""

    held: dict[str, Holding] = dataclasses.field(default_factory=dict)
    skip: set[int] = dataclasses.field(default_factory=set)
    parts: dict[int, list["Part"]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Part:
    """An original parameter: `own`, and where it lies in this rank's stretch of the flat one."""

    own: Holding
    offset: int
    length: int
    of: int  # elements of that stretch


def flat_parameters(model: nn.Module) -> Flat:
    flat = Flat()
    # Not imported here: whoever wrapped the model has done so, and FSDP's modules hold on for good
    # to the process group that there is when they are first imported.
    fsdp1 = sys.modules.get("torch.distributed.fsdp")
    if fsdp1 is None:
        return flat
    for prefix, module in model.named_modules():
        if not isinstance(module, fsdp1.FullyShardedDataParallel) or module._handle is None:
            continue
        parameter = module._handle.flat_param
        flat.skip.add(id(parameter))
        for view in [*(parameter._params or []), *(parameter._shared_params or [])]:
            flat.skip.add(id(view))
        _hold(model, prefix, module, flat)
    return flat


def _groups_of(module) -> Groups:
    """Shards lie within the process group; in a hybrid, replicas of them across another."""
    rank = dist_rank()
    handle = module._handle
    group = tuple(sorted(dist.get_process_group_ranks(handle.process_group)))
    if not handle.uses_sharded_strategy:
        return Groups((rank,), group, shown=True)
    across = getattr(module, "_inter_node_pg", None)
    if across is None:
        return Groups(group, (rank,), shown=True)
    alike = tuple(sorted(dist.get_process_group_ranks(across)))
    mesh = getattr(module, "_device_mesh", None)
    every = world() if mesh is None else tuple(sorted(mesh.mesh.reshape(-1).tolist()))
    return Groups(group, alike, every, shown=True)


def _hold(model, prefix, module, flat: Flat):
    handle = module._handle
    parameter = handle.flat_param
    groups = _groups_of(module)
    sharded = handle.uses_sharded_strategy
    placements = [Placement("flat_shard" if sharded else "replicate")]
    if len(groups.alike) > 1 and sharded:
        placements = [Placement("replicate"), *placements]
    rank = dist_rank()
    coordinates = (groups.alike.index(rank), groups.whole.index(rank))[-len(placements) :]
    sizes = (len(groups.alike), len(groups.whole))[-len(placements) :]
    if not sharded:
        coordinates, sizes = (groups.alike.index(rank),), (len(groups.alike),)
    by_name = {}
    stretch = _stretch_of(handle)
    infos = zip(parameter._param_infos, parameter._shapes, parameter._shard_param_infos)
    for number, (info, shape, shard) in enumerate(infos):
        inner = f"{prefix}.{info.module_name}" if info.module_name else prefix
        name = canonical_name(model, inner.strip("."), info.param_name)
        tensor = parameter._params[number] if parameter._params else parameter
        offset, length = (shard.offset_in_shard, shard.numel_in_shard) if shard.in_shard else (0, 0)
        local = stretch[offset : offset + length]
        runs = []
        if shard.in_shard:
            runs = _layout.flat_runs(shard.intra_param_start_idx, shard.intra_param_end_idx + 1)
        if not sharded:
            runs, local = _layout.flat_runs(0, math.prod(shape)), local.view(shape)
        by_name[(info.module, info.param_name)] = flat.held[name] = Holding(
            name=name, kind="parameter", dtype=local.dtype, shape=tuple(shape), local=local,
            runs=runs, owner=tensor, home=info.module, groups=groups,
            requires_grad=tensor.requires_grad, placements=placements,
            coordinates=coordinates, mesh_shape=sizes, is_meta=parameter.is_meta,
            attributes=attributes_of(tensor),
        )  # fmt: skip
        part = Part(flat.held[name], offset, length, _size_of(handle))
        flat.parts.setdefault(id(parameter), []).append(part)
        why = _PERMUTED if not parameter._contiguities[number] else why_unreadable(local)
        if why and not parameter.is_meta:
            flat.held[name].local, flat.held[name].unreadable = None, why
    for info in parameter._shared_param_infos:
        inner = f"{prefix}.{info.module_name}" if info.module_name else prefix
        name = canonical_name(model, inner.strip("."), info.param_name)
        first = by_name[(info.prim_module, info.prim_param_name)]
        flat.held[name] = dataclasses.replace(first, name=name, home=info.module)


def _stretch_of(handle) -> torch.Tensor:
    """This rank's stretch of the flat parameter. Where that is gathered for computing, the stretch
    is kept aside; within `summon_full_params` it is what will be written back."""
    parameter = handle.flat_param.detach()
    if not handle.uses_sharded_strategy or handle.is_sharded(parameter):
        return parameter
    kept = handle.flat_param._local_shard.detach()
    if handle._training_state.name != "SUMMON_FULL_PARAMS" or parameter.dtype != kept.dtype:
        return kept
    size = _size_of(handle)
    return parameter[handle.rank * size :][:size]


def _size_of(handle) -> int:
    """Elements of a stretch, with what fills it up."""
    parameter = handle.flat_param
    sharded = handle.uses_sharded_strategy and hasattr(parameter, "_sharded_size")
    return parameter._sharded_size.numel() if sharded else parameter.numel()


def parts_of_state(parts: list[Part], key: str, value: torch.Tensor, rank: int) -> list[Holding]:
    """State of a flat parameter as that of its original ones: cut where they are cut, if it is as
    large as the stretch; else each has it whole."""
    found = []
    for part in parts:
        own = part.own
        name = f"{own.name}.{key}"
        if value.dim() == 1 and value.numel() == part.of:
            local = value.detach()[part.offset : part.offset + part.length]
            local = None if own.unreadable else local
            placed = dict(shape=own.shape, runs=own.runs, placements=own.placements,
                          coordinates=own.coordinates, mesh_shape=own.mesh_shape,
                          groups=own.groups)  # fmt: skip
        else:
            local = value.detach()
            shape = tuple(value.shape)
            placed = dict(shape=shape, runs=_layout.local_runs(shape),
                          groups=own.groups.of_state(value, rank))  # fmt: skip
        found.append(
            Holding(
                name=name,
                kind="optimizer",
                dtype=value.dtype,
                local=local,
                owner=value,
                unique=own.unique,
                unreadable=own.unreadable if local is None else "",
                **placed,
            )  # fmt: skip
        )
    return found
