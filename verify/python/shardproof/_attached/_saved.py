"""Which part of what is saved is the model's own state, and what it is held against."""

from collections.abc import Mapping

import torch

from .._digests import _digest
from .._holdings._names import TRANSPARENT, without_wrappers

_DEPTH_MAX = 4
WRAPPERS = TRANSPARENT | {"module"}


def state_of(state, tensors) -> dict | None:
    """The mapping within `state` that has a value for every parameter of the model, by the model's
    names; None if there is none. Of several the one that shares the model's memory: others may be
    averages of it, which are meant to differ."""
    wanted: dict[int, list[str]] = {}  # a tied parameter is often saved under one of its names
    for held in tensors:
        if held.kind == "parameter":
            wanted.setdefault(id(held.owner), []).append(held.name)
    found = [
        each
        for each in map(_by_name, _mappings(state, _DEPTH_MAX))
        if all(any(name in each for name in names) for names in wanted.values())
    ]
    if not wanted or not found:
        return None
    return next((each for each in found if _shares(each, tensors)), found[0])


def may_have(state, modules) -> bool:
    """Whether a mapping within `state` has as many tensors as the modules have parameters: quickly
    told, without a look at any."""
    count = len({id(each) for module in modules for each in module.parameters()})
    return any(len(_by_name(each)) >= count for each in _mappings(state, _DEPTH_MAX))


def is_in_place(state, module) -> bool:
    """Whether a tensor of the state lies in the memory of one of the module's parameters."""
    own = {_memory_of(each) for each in module.parameters()} - {0}
    return any(
        isinstance(value, torch.Tensor) and _memory_of(value) in own
        for each in _mappings(state, _DEPTH_MAX)
        for value in each.values()
    )


def parts_in(state: Mapping, tensors) -> list:
    """(what the model holds, this rank's part of the state's value for it), without copies."""
    pairs = []
    for held in tensors:
        value = state.get(held.name)
        if value is None or not held.persistent or held.is_meta or held.unreadable:
            continue
        if held.local is None or (part := part_of(value, held)) is None:
            continue
        pairs.append((held, part))
    return pairs


def is_known(parts, now, earlier) -> bool:
    """Whether the parts are what the model is now, or what it was at a stage before: a save of
    something else, such as an average, says nothing of the model.

    now, earlier: (stage, {name: digest}).
    """
    digests = {
        held.name: _digest.digest_runs(part, held.runs).hex() if held.runs else "0" * 32
        for held, part in parts
    }
    known = [digests for _, digests in [now, *earlier]]
    return bool(digests) and any(
        all(each.get(name) == digest for name, digest in digests.items()) for each in known
    )


def why_not_judged(state, found, parts) -> str:
    """Of a save that is not known: why, if it is one of the model. found, parts: as state_of and
    parts_in give them."""
    if parts:
        return (
            "what was saved is neither what the model is nor what it was at a stage that was "
            "observed: an average, say, or weights of a step that was not (every=1 observes each)"
        )
    if found is not None:
        return "what was saved is of another dtype or cut otherwise than the model"
    given = [each for mapping in _mappings(state, 2) for each in mapping.values()]
    if any(hasattr(each, "state_dict") for each in given):
        return "it was saved through an object, whose state only the save itself asks for"
    return ""


def part_of(value, held):
    """What of a state's value this rank has of the model's tensor; None if it is cut otherwise, or
    would have to be copied."""
    if not isinstance(value, torch.Tensor) or value.dtype != held.dtype:
        return None
    if tuple(value.shape) != tuple(held.shape):
        return None
    local = getattr(value, "_local_tensor", value).detach()
    if type(local) is not torch.Tensor or local.is_meta:
        return None
    if local.shape == held.local.shape:
        return local
    if tuple(local.shape) != tuple(held.shape) or not local.is_contiguous():
        return None
    if len(held.runs) != 1 or held.runs[0].count != 1:
        return None
    (run,) = held.runs
    return local.view(-1)[run.start : run.start + run.length].view(held.local.shape)


def _mappings(state, depth):
    if not isinstance(state, Mapping) or depth == 0:
        return
    yield state
    for value in state.values():
        yield from _mappings(value, depth - 1)


def _by_name(state) -> dict:
    """Its tensors, without the names of wrappers."""
    found = {}
    for key, value in state.items():
        if isinstance(key, str) and isinstance(value, torch.Tensor):
            found[without_wrappers(key, WRAPPERS)] = value
    return found


def _shares(state, tensors) -> bool:
    for held in tensors:
        value = state.get(held.name)
        if held.local is not None and value is not None and (at := _memory_of(held.local)):
            return at == _memory_of(value)
    return False


def _memory_of(tensor) -> int:
    """The address of its memory; 0 if it has none, or keeps it in a way of its own."""
    local = getattr(tensor, "_local_tensor", tensor)
    if type(local) not in (torch.Tensor, torch.nn.Parameter) or local.layout != torch.strided:
        return 0
    return local.untyped_storage().data_ptr()
