"""Whether a model is the one that was looked at before, in all but its values.

What is kept of a look keeps no tensor alive.
"""

import dataclasses

import torch

from . import _model, _replicas
from ._tensor import _PLAIN, DTensor

_SIMPLE = (bool, int, float, str)  # values of attributes that say something of a tensor


class Unplain(Exception):
    """Of a model that holdings are made of by more than its modules and their tensors."""


@dataclasses.dataclass
class Look:
    """said: all that a holding's description could follow from. owners: the modules' tensors, each
    time that one is met. locals: their memory."""

    said: list = dataclasses.field(default_factory=list)
    owners: list[torch.Tensor] = dataclasses.field(default_factory=list)
    locals: list[torch.Tensor] = dataclasses.field(default_factory=list)

    def versions(self) -> list[int]:
        """How often each was changed in place, as far as torch knows."""
        pairs = zip(self.owners, self.locals, strict=True)
        others = [owner for owner, local in pairs if owner is not local]
        with torch._C.DisableTorchFunctionSubclass():
            return [0 if each.is_inference() else each._version for each in [*self.locals, *others]]


def look_at(model) -> Look:
    """\\raises Unplain, or whatever a tensor of no usual kind raises when it is asked."""
    look = Look()
    with torch._C.DisableTorchFunctionSubclass():
        for chunk in _model.chunks_of(model):
            _add(look, "", chunk, 0)
    return look


def refuse_wrappers(model):
    """\\raises Unplain for one of which replicas are known by a wrapper, whose own state says
    which."""
    for chunk in _model.chunks_of(model):
        if any(_replicas.ranks_alike(module) is not None for module in chunk.modules()):
            raise Unplain


def _add(look: Look, name: str, module, depth: int):
    look.said.append((name, depth, id(module), type(module)))
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
    if kind is DTensor:
        local = tensor._local_tensor
        layout = (tensor.shape, tensor.placements, tensor.device_mesh)
    elif kind not in _PLAIN:
        local = tensor.data
    if type(local) not in _PLAIN:
        raise Unplain
    look.said.append((
        key, id(tensor), kind, local.data_ptr(), local.shape, local.stride(), local.dtype,
        local.device, local.untyped_storage().nbytes(), tensor.requires_grad, persistent, layout,
        _attributes(tensor),
    ))  # fmt: skip
    look.owners.append(tensor)
    look.locals.append(local)


def _attributes(tensor) -> tuple:
    """Those that are no plain values by what they are at present."""
    return tuple(
        (key, value if type(value) in _SIMPLE else id(value)) for key, value in vars(tensor).items()
    )
