"""Whether a model is the one that was looked at before, in all but its values and where they lie.

What is kept of a look keeps no tensor alive.
"""

import dataclasses
import functools
import types

import torch

from . import _dtensor, _model, _replicas
from ._tensor import _PLAIN

_SIMPLE = (bool, int, float, str)  # values of attributes that say something of a tensor
# Those of which only their being there does: a loader of weights is made anew with its parameter.
_CALLED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)

# What a tensor of no usual kind, or a wrapper that is not whole, raises when it is asked.
RAISED = (RuntimeError, TypeError, ValueError, AttributeError)


class Unplain(Exception):
    """Of a model that holdings are made of by more than its modules and their tensors."""


@dataclasses.dataclass
class Look:
    """said: all that a holding's description could follow from; of tensors and their memory only
    which ones are the same. owners: the modules' tensors, each time that one is met. locals: their
    memory."""

    said: list = dataclasses.field(default_factory=list)
    owners: list[torch.Tensor] = dataclasses.field(default_factory=list)
    locals: list[torch.Tensor] = dataclasses.field(default_factory=list)
    objects: dict[int, int] = dataclasses.field(default_factory=dict)  # numbers of owners, by id

    def versions(self) -> list[int]:
        """How often each was changed in place, as far as torch knows."""
        pairs = zip(self.owners, self.locals, strict=True)
        others = [owner for owner, local in pairs if owner is not local]
        with torch._C.DisableTorchFunctionSubclass():
            return [0 if each.is_inference() else each._version for each in [*self.locals, *others]]


def look_at(model) -> Look:
    """\\raises Unplain, or what RAISED has."""
    look = Look()
    with torch._C.DisableTorchFunctionSubclass():
        for chunk in _model.chunks_of(model):
            _add(look, "", chunk, 0)
        look.said.append(_shared(look.locals))
    return look


def _add(look: Look, name: str, module, depth: int):
    look.said.append((name, depth, id(module), type(module), _replicas.ranks_alike(module)))
    for key, parameter in module._parameters.items():
        if parameter is not None:
            _add_tensor(look, key, parameter, True)
    for key, buffer in module._buffers.items():
        if buffer is not None:
            _add_tensor(look, key, buffer, key not in module._non_persistent_buffers_set)
    for key, child in module._modules.items():
        if child is not None:
            _add(look, key, child, depth + 1)


def _add_tensor(look: Look, key: str, tensor, persistent: bool):
    kind, layout = type(tensor), ()
    local = tensor
    if kind is _dtensor.class_of("DTensor"):
        local = tensor._local_tensor
        layout = (tensor.shape, tensor.placements, tensor.device_mesh)
    elif kind not in _PLAIN:
        local = tensor.data
    if type(local) not in _PLAIN:
        raise Unplain
    look.said.append((
        key, look.objects.setdefault(id(tensor), len(look.objects)), kind, local.shape,
        local.stride(), local.dtype, local.device, local.storage_offset(),
        local.untyped_storage().nbytes(), local.is_conj(), local.is_neg(), tensor.requires_grad,
        persistent, layout, _attributes(tensor, local),
    ))  # fmt: skip
    look.owners.append(tensor)
    look.locals.append(local)


def _attributes(tensor, local) -> tuple:
    """Those that are no plain values by which object they are, of which tensor, in which memory."""
    return tuple(
        (key, value) if type(value) in _SIMPLE else
        (key, type(value)) if type(value) in _CALLED else
        (key, id(value), id(tensor), local.data_ptr())
        for key, value in vars(tensor).items()
    )  # fmt: skip


def _shared(locals_) -> list[tuple[int, int, int]]:
    """Which tensors have memory in common: (the number of one, that of the one that begins first,
    how many bytes after it). What lies alone is not told, wherever that is."""
    stretches: dict[torch.device, list[tuple[int, int, int]]] = {}
    for number, local in enumerate(locals_):
        begin = local.data_ptr()
        if begin:  # else it is empty, or on meta
            size = local.nbytes if local.is_contiguous() else _span(local)
            stretches.setdefault(local.device, []).append((begin, number, begin + size))
    found = []
    for of_device in stretches.values():
        of_device.sort()
        start, first, reached = of_device[0]
        for begin, number, end in of_device[1:]:
            if begin < reached:
                found.append((number, first, begin - start))
                reached = max(reached, end)
            else:
                start, first, reached = begin, number, end
    return found


def _span(local) -> int:
    """The bytes from its first element to its last."""
    spans = zip(local.shape, local.stride(), strict=True)
    return (1 + sum((length - 1) * step for length, step in spans)) * local.element_size()
