"""What a live model's tensors are: names, kinds, layouts, ties; of plain tensors, DTensor,
FSDP1."""

import dataclasses
import math
import sys

import torch
import torch.distributed as dist
from torch import nn

from . import _layout
from ._layout import Placement, Run

try:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
except ImportError:  # a build without distributed
    DTensor = None

# Wrappers that put their own name between a module and its child's tensors.
_TRANSPARENT = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}
# Tensor types whose memory is simply theirs.
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


@dataclasses.dataclass
class Held:
    """What this rank holds of one tensor.

    local is None if the tensor is on meta or its memory is not there (freed, or a kind that is not
    known: then `unreadable` says which). owner is the object whose identity is the tensor's.
    """

    name: str
    kind: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    local: torch.Tensor | None
    runs: list[Run]
    owner: object
    persistent: bool = True
    requires_grad: bool = False
    placements: list[Placement] = dataclasses.field(default_factory=list)
    coordinates: tuple[int, ...] = ()  # on the mesh of the placements
    mesh_names: tuple[str, ...] | None = None
    is_meta: bool = False
    partial: bool = False
    unreadable: str = ""
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def device(self) -> str:
        return "meta" if self.is_meta or self.local is None else str(self.local.device)


def tensors_of(model: nn.Module) -> list[Held]:
    """Every parameter and buffer under each of its names, in byte order of the names."""
    flat = _flat_parameters(model)
    found: dict[str, Held] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name, parameter in module._parameters.items():
            if parameter is None or id(parameter) in flat.skip:
                continue
            full = canonical_name(model, prefix, name)
            found[full] = _hold(full, "parameter", parameter, True)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                full = canonical_name(model, prefix, name)
                persistent = name not in module._non_persistent_buffers_set
                found[full] = _hold(full, "buffer", buffer, persistent)
    found.update(flat.held)
    return [found[name] for name in sorted(found, key=lambda text: text.encode())]


def bytes_of(held: Held, low: int, high: int):
    """(global start, bytes) of what is held of global bytes [low, high); touching ones joined."""
    size = held.local.element_size()
    flat = held.local.contiguous().reshape(-1).view(torch.uint8)
    found = []
    for run in held.runs:
        for i in range(run.count):
            start = (run.start + i * run.stride) * size
            first, last = max(low, start), min(high, start + run.length * size)
            if first >= last:
                continue
            at = (run.local_start + i * run.local_stride) * size + first - start
            found.append((first, bytes(flat[at : at + last - first].tolist())))
    found.sort()
    joined = []
    for start, data in found:
        if joined and joined[-1][0] + len(joined[-1][1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + data)
        else:
            joined.append((start, data))
    return joined


def state_dict_tensors(state_dict: dict) -> list[Held]:
    """The tensors of a state dict by key; what is no tensor is left out."""
    found = [
        _hold(key, "parameter", value, True)
        for key, value in state_dict.items()
        if isinstance(key, str) and isinstance(value, torch.Tensor)
    ]
    return sorted(found, key=lambda held: held.name.encode())


def optimizer_tensors(tensors: list[Held], optimizer) -> list[Held]:
    """The tensors of an optimizer's state, under "<FQN>.<key>"; of a model that has `tensors`."""
    if optimizer is None:
        return []
    found = []
    for name, own, state in optimizer_state(tensors, optimizer):
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                found.append(_hold_state(f"{name}.{key}", value, own))
    return sorted(found, key=lambda held: held.name.encode())


def optimizer_state(tensors: list[Held], optimizer):
    """(name, the model's own tensor or None, state) of every parameter that there is a state
    for."""
    owners = parameters_by_owner(tensors)
    inner = getattr(optimizer, "optim", None)  # ZeroRedundancyOptimizer keeps its state in this one
    holder = inner if isinstance(inner, torch.optim.Optimizer) else optimizer
    for number, (parameter, state) in enumerate(holder.state.items()):
        if isinstance(state, dict):
            own = owners.get(id(parameter), [None])[0]
            name = own.name if own else f"<parameter {number}, not of the model>"
            yield name, own, state


def parameters_by_owner(tensors: list[Held]) -> dict[int, list[Held]]:
    """The id of each parameter object: the parameter under all its names."""
    found: dict[int, list[Held]] = {}
    for held in tensors:
        if held.kind == "parameter":
            found.setdefault(id(held.owner), []).append(held)
    return found


def _hold_state(name: str, value: torch.Tensor, own: Held | None) -> Held:
    """State that is as large as this rank's part of the parameter lies as the parameter does."""
    held = _hold(name, "optimizer", value, True)
    if own is None or own.local is None or held.placements or not own.placements:
        return held
    if value.dim() and value.numel() == own.local.numel():
        held.shape, held.runs = own.shape, own.runs
        held.placements, held.coordinates = own.placements, own.coordinates
        held.mesh_names = own.mesh_names
    return held


def alias_groups(tensors: list[Held]) -> dict[str, int]:
    """A number for each tensor; those whose memory overlaps have the same."""
    stretches = []  # storage, first byte, end, name
    for held in tensors:
        if held.local is not None and held.local.numel():
            size = held.local.element_size()
            first = held.local.storage_offset() * size
            spans = zip(held.local.shape, held.local.stride(), strict=True)
            last = sum((length - 1) * abs(stride) for length, stride in spans)
            storage = held.local.untyped_storage()._cdata
            stretches.append((storage, first, first + (last + 1) * size, held.name))
    stretches.sort()
    group_of: dict[str, int] = {}
    group, storage, end = -1, None, 0
    for here, first, stop, name in stretches:
        if here != storage or first >= end:
            group, storage, end = group + 1, here, stop
        end = max(end, stop)
        group_of[name] = group
    # Numbered in the order of names: addresses differ from run to run.
    numbers: dict[int, int] = {}
    return {
        held.name: numbers.setdefault(group_of[held.name], len(numbers))
        for held in tensors
        if held.name in group_of
    }


def canonical_name(model: nn.Module, prefix: str, name: str) -> str:
    """The FQN without the names of wrappers."""
    parts = []
    module = model
    for part in prefix.split(".") if prefix else []:
        is_wrapper = part in _TRANSPARENT or (
            part == "module" and isinstance(module, nn.parallel.DistributedDataParallel)
        )
        if not is_wrapper:
            parts.append(part)
        module = getattr(module, part)
    return ".".join([*parts, name])


def _attributes(tensor) -> dict[str, str]:
    """What users hang on a parameter: plain values under public names."""
    return {
        key: str(value)
        for key, value in sorted(vars(tensor).items())
        if not key.startswith("_")
        and isinstance(value, str | int | float | bool)
        and not (key == "persistent" and isinstance(tensor, nn.Buffer))  # nn.Buffer's own
    }


def _hold(name: str, kind: str, tensor: torch.Tensor, persistent: bool) -> Held:
    shapeless = "a nested tensor" if tensor.is_nested else ""
    if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        shapeless = "a lazy tensor that has no shape yet"
    held = Held(
        name=name,
        kind=kind,
        dtype=tensor.dtype,
        shape=() if shapeless else tuple(tensor.shape),
        local=None,
        runs=[],
        owner=tensor,
        persistent=persistent,
        requires_grad=tensor.requires_grad,
        attributes=_attributes(tensor),
    )
    if shapeless:
        held.unreadable = shapeless
    elif DTensor is not None and isinstance(tensor, DTensor):
        _hold_dtensor(held, tensor)
    elif type(tensor) in _PLAIN or type(tensor.data) in _PLAIN:
        held.runs = _layout.local_runs(held.shape)
        _set_local(held, tensor)
    else:
        held.unreadable = type(tensor.data).__qualname__
    return held


def _hold_dtensor(held: Held, tensor):
    mesh = tensor.device_mesh
    coordinates = mesh.get_coordinate()
    held.placements = [_placement(placement) for placement in tensor.placements]
    if None in held.placements:
        held.placements = []
        held.unreadable = f"placements {tensor.placements}"
        return
    held.mesh_names = mesh.mesh_dim_names
    held.partial = any(placement.kind == "partial" for placement in held.placements)
    if coordinates is None:  # this rank is not in the mesh
        held.unreadable = "this rank is not in its mesh"
        return
    held.coordinates = tuple(coordinates)
    held.runs = _layout.local_runs(held.shape, held.placements, mesh.shape, coordinates)
    local = tensor._local_tensor
    if type(local) not in _PLAIN:
        held.unreadable = f"DTensor of {type(local).__qualname__}"
        return
    _set_local(held, local)


def _placement(placement) -> Placement | None:
    """None for one that is not known."""
    if isinstance(placement, _StridedShard):
        return Placement("strided_shard", placement.dim, placement.split_factor)
    if isinstance(placement, Shard):
        return Placement("shard", placement.dim)
    if isinstance(placement, Replicate):
        return Placement("replicate")
    if isinstance(placement, Partial):
        return Placement("partial")
    return None


def _set_local(held: Held, local: torch.Tensor):
    local = local.detach()
    held.is_meta = local.is_meta
    if local.is_meta:
        held.local = local
    elif why := _why_unreadable(local):
        held.unreadable = why
    else:
        held.local = local


def _why_unreadable(local: torch.Tensor) -> str:
    """Why the bytes of the tensor's elements do not simply lie in its memory, or nothing."""
    if local.layout != torch.strided:
        return f"{local.layout} tensor"
    if local.is_quantized:
        return f"{local.dtype} tensor"
    if local.is_conj() or local.is_neg():
        return "a conjugate or negative view"
    try:
        bytes_there = local.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):
        return f"{type(local).__qualname__} without memory of its own"
    spans = zip(local.shape, local.stride(), strict=True)
    elements = 1 + local.storage_offset() + sum((n - 1) * step for n, step in spans)
    if local.numel() and bytes_there < elements * local.element_size():
        return "its memory was freed"
    return ""


# ---- FSDP1: original parameters are stretches of flat ones ---------------------------------------


@dataclasses.dataclass
class _Flat:
    held: dict[str, Held]
    skip: set[int]  # parameters that are views of, or are, a flat parameter


def _flat_parameters(model: nn.Module) -> _Flat:
    flat = _Flat({}, set())
    # Not imported here: whoever wrapped the model has done so, and FSDP's modules hold on for good
    # to the process group that there is when they are first imported.
    fsdp1 = sys.modules.get("torch.distributed.fsdp")
    if fsdp1 is None:
        return flat
    for prefix, module in model.named_modules():
        if not isinstance(module, fsdp1.FullyShardedDataParallel) or module._handle is None:
            continue
        handle = module._handle
        parameter = handle.flat_param
        flat.skip.add(id(parameter))
        for view in parameter._params or []:
            flat.skip.add(id(view))
        for view in parameter._shared_params or []:
            flat.skip.add(id(view))
        _hold_flat(model, prefix, handle, flat.held)
    return flat


def _hold_flat(model, prefix, handle, held):
    parameter = handle.flat_param
    placements, coordinates = [Placement("flat_shard")], (handle.rank,)
    group = dist.get_process_group_ranks(handle.process_group)
    if not handle.uses_sharded_strategy:
        placements = [Placement("replicate")]
    elif len(group) < dist.get_world_size():  # hybrid: shards within a group, replicas across
        placements, coordinates = [Placement("replicate"), *placements], (group[0], *coordinates)
    by_name = {}
    infos = zip(parameter._param_infos, parameter._shapes, parameter._shard_param_infos)
    for number, (info, shape, shard) in enumerate(infos):
        inner = f"{prefix}.{info.module_name}" if info.module_name else prefix
        name = canonical_name(model, inner.strip("."), info.param_name)
        tensor = parameter._params[number] if parameter._params else parameter
        local = parameter.detach()
        if shard.in_shard:
            runs = _layout.flat_runs(shard.intra_param_start_idx, shard.intra_param_end_idx + 1)
            local = local[shard.offset_in_shard : shard.offset_in_shard + shard.numel_in_shard]
        else:
            runs, local = [], local[:0]
        if not handle.uses_sharded_strategy:
            runs, local = _layout.flat_runs(0, math.prod(shape)), local.view(shape)
        by_name[(info.module, info.param_name)] = held[name] = Held(
            name=name, kind="parameter", dtype=parameter.dtype, shape=tuple(shape), local=local,
            runs=runs, owner=tensor, requires_grad=tensor.requires_grad,
            placements=placements, coordinates=coordinates,
            is_meta=parameter.is_meta, attributes=_attributes(tensor),
        )  # fmt: skip
        if not parameter.is_meta and (why := _why_unreadable(local)):
            held[name].local, held[name].unreadable = None, why
    for info in parameter._shared_param_infos:
        inner = f"{prefix}.{info.module_name}" if info.module_name else prefix
        name = canonical_name(model, inner.strip("."), info.param_name)
        first = by_name[(info.prim_module, info.prim_param_name)]
        held[name] = dataclasses.replace(first, name=name)
