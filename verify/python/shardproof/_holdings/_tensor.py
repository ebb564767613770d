"""Reads one tensor of a live model: plain, a DTensor, or a wrapper subclass by its parts."""

import torch
from torch import nn

from . import _deepspeed, _dtensor, _layout, _megatron
from ._groups import Statement
from ._holding import Holding
from ._layout import Placement

# Tensor types whose memory is simply theirs.
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
# Attributes of a parameter whose elements are packed codes, as libraries of quantisation hang them
# on it: bitsandbytes' Params4bit and Int8Params, and what FSDP keeps of them.
_OF_CODES = ("quant_type", "bnb_quantized", "quant_state")


def holdings(name, kind, tensor, said: Statement, persistent=True, default=None) -> list[Holding]:
    """What this rank has of a tensor: one holding, or one for each part of a subclass.

    default: the ranks that have the model's plain tensors, if the model shows which.
    """
    held = Holding(
        name=name,
        kind=kind,
        dtype=tensor.dtype,
        shape=(),
        local=None,
        runs=[],
        owner=tensor,
        persistent=persistent,
        requires_grad=tensor.requires_grad,
        unique=said.is_unique(name, tensor),
        codes=any(hasattr(tensor, attribute) for attribute in _OF_CODES),
        attributes=attributes_of(tensor),
    )
    if tensor.is_nested:
        held.unreadable = "a nested tensor"
    elif isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        held.unreadable = "a lazy tensor that has no shape yet"
    if held.unreadable:
        held.groups = said.groups_of(name, default, tensor)
        return [held]
    if _deepspeed.is_partitioned(tensor):
        return [_deepspeed.lay_out(held, tensor, said.rank)]
    held.shape = tuple(tensor.shape)
    if _dtensor.is_a("DTensor", tensor):
        return _of_dtensor(held, tensor, said)
    held.groups = said.groups_of(name, default, tensor)
    if type(tensor) in _PLAIN or type(tensor.data) in _PLAIN:
        _lay_out(held, tensor, said)
        set_local(held, tensor)
        return [held]
    return _parts(held, tensor, said.rank)


def _lay_out(held: Holding, tensor, said: Statement):
    """Where a plain tensor lies in the one that its name stands for."""
    cut = said.cut_of(held.name, tensor)
    if cut is None:
        held.runs = _layout.local_runs(held.shape)
        return
    held.groups = cut.groups
    if cut.groups is None:  # a part of something, of which nobody said with whom
        held.runs = _layout.local_runs(held.shape)
        return
    whole = list(held.shape)
    for placement, size in zip(cut.placements, cut.sizes, strict=True):
        whole[placement.dim] *= size
    held.shape, held.computed = tuple(whole), True
    held.coordinates = cut.coordinates
    held.mesh_names, held.mesh_shape = cut.axes, cut.sizes
    held.runs = _layout.local_runs(held.shape, cut.placements, cut.sizes, cut.coordinates)
    # A stride of Megatron's cuts the dim into pieces by itself, not as axes further right do.
    held.placements = [_as_it_says(each, "strided_shard") for each in cut.placements]


def _as_it_says(placement: Placement, kind: str) -> Placement:
    """One of that kind is cut as the tensor itself says, by no rule."""
    return Placement("uneven_shard", placement.dim) if placement.kind == kind else placement


def _of_dtensor(held: Holding, tensor, said: Statement) -> list[Holding]:
    mesh = tensor.device_mesh
    coordinates = mesh.get_coordinate()
    held.placements = [_placement(placement) for placement in tensor.placements]
    if None in held.placements:
        held.placements = []
        held.unreadable = f"placements {tensor.placements}"
        return [held]
    held.mesh_names, held.mesh_shape = mesh.mesh_dim_names, tuple(mesh.shape)
    held.partial = any(placement.kind == "partial" for placement in held.placements)
    if coordinates is None:  # this rank is not in the mesh
        held.unreadable = "this rank is not in its mesh"
        return [held]
    held.coordinates = tuple(coordinates)
    held.groups = said.groups_on(mesh, coordinates, held.placements)
    local = tensor._local_tensor
    chunks = getattr(local, "__create_chunk_list__", None)
    flat = _megatron.slice_of(tensor, held.placements, tuple(mesh.shape))
    if flat is not None:
        held.placements = [_as_it_says(each, "shard") for each in held.placements]
        held.runs = _layout.flat_runs(*flat)
    elif chunks is None:
        held.runs = _layout.local_runs(held.shape, held.placements, mesh.shape, coordinates)
    else:  # shards that are not cut as torch.chunk cuts say where they lie
        held.placements = [_as_it_says(each, "shard") for each in held.placements]
        held.runs = _layout.chunk_runs(
            held.shape, [(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in chunks()]
        )
    if type(local) in _PLAIN:
        set_local(held, local)
        return [held]
    return _parts(held, local, said.rank)


def _parts(held: Holding, tensor, rank: int) -> list[Holding]:
    """The tensors that a wrapper subclass says it is made of, each as it lies in memory.

    How they cut the whole tensor is the class's own affair: they are held against those of the
    ranks that have the same part.
    """
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        held.unreadable = type(tensor.data).__qualname__
        return [held]
    found = []
    for part in flatten()[0]:
        inner = getattr(tensor, part)
        own = Holding(
            name=f"{held.name}.{part}",
            kind=held.kind,
            dtype=inner.dtype,
            shape=tuple(inner.shape),
            local=None,
            runs=_layout.local_runs(tuple(inner.shape)),
            owner=held.owner,
            groups=held.groups and held.groups.of_parts(rank),
            unique=held.unique,
            persistent=held.persistent,
            requires_grad=held.requires_grad,
            codes=not inner.dtype.is_floating_point,
        )
        if type(inner) in _PLAIN:
            set_local(own, inner)
            found.append(own)
        else:
            found += _parts(own, inner, rank)
    return found


def _placement(placement) -> Placement | None:
    """None for one that is not known."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    if isinstance(placement, _StridedShard):
        return Placement("strided_shard", placement.dim, placement.split_factor)
    if isinstance(placement, Shard):
        return Placement("shard", placement.dim)
    if isinstance(placement, Replicate):
        return Placement("replicate")
    if isinstance(placement, Partial):
        return Placement("partial")
    return None


def set_local(held: Holding, local: torch.Tensor):
    local = local.detach()
    held.is_meta = local.is_meta
    if local.is_meta:
        held.local = local
    elif why := why_unreadable(local):
        held.unreadable = why
    else:
        held.local = local


def why_unreadable(local: torch.Tensor) -> str:
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


def attributes_of(tensor) -> dict[str, str]:
    """What users hang on a parameter: plain values under public names, but for DeepSpeed's own."""
    return {
        key: str(value)
        for key, value in sorted(vars(tensor).items())
        if not key.startswith(("_", "ds_"))
        and isinstance(value, str | int | float | bool)
        and not (key == "persistent" and isinstance(tensor, nn.Buffer))  # nn.Buffer's own
    }
