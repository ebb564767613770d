"""What optimizers keep: state by parameter, whatever the optimizer is."""

import dataclasses
import warnings
from collections.abc import Mapping

import torch

from . import _deepspeed, _dtensor, _flat_copies, _fsdp1, _layout, _megatron, _stretch
from ._groups import Statement, alone
from ._holding import Holding
from ._steps import innermost
from ._tensor import holdings

_LOOKED_AT = 64  # values that tell a copy from those of other parameters


@dataclasses.dataclass
class Owned:
    """The state of one parameter. own: the model's tensor, None if it is none of the model's;
    parts: of a flat parameter, the original ones. alone: other ranks have that of others.
    stretch: what of the parameter it is the state of, if not of all that this rank has."""

    name: str
    own: Holding | None
    state: Mapping
    parts: list
    alone: bool = False
    of: str = ""  # of which optimizer, but for the first
    stretch: _stretch.Stretch | None = None


def _attribute(owner, name):
    """None if it has none, or has a property that raises, as Megatron's chains of several do."""
    try:
        return getattr(owner, name, None)
    except Exception:
        return None


def optimizers_in(optimizer) -> list:
    """An optimizer, a list of them, or one that holds others: those that have state themselves.

    \\raises TypeError for what has none.
    """
    if optimizer is None:
        return []
    if isinstance(optimizer, list | tuple):
        return [each for one in optimizer for each in optimizers_in(one)]
    inner = _attribute(optimizer, "optimizers")  # a container of several
    if inner is None:
        inner = _attribute(optimizer, "chained_optimizers")  # Megatron's
    state = _attribute(optimizer, "state")
    if inner is not None and not (isinstance(state, Mapping) and state):
        return optimizers_in(list(inner.values() if isinstance(inner, Mapping) else inner))
    wrapped = _attribute(optimizer, "optimizer")
    if not isinstance(state, Mapping) and wrapped is not None:
        return optimizers_in(wrapped)
    if not isinstance(state, Mapping):
        raise TypeError(f"an optimizer is a {type(optimizer).__name__}, which has no state")
    inner = innermost(optimizer)
    return [inner if _package_of(inner) else optimizer]  # a wrapper does not say how it is cut


def steppers_in(optimizer) -> list:
    """Those of them that take the steps."""
    return [innermost(each) for each in optimizers_in(optimizer)]


def shown_by(optimizer) -> list:
    """Optimizers of torch that are observed with it: wrappers hold theirs under these names."""
    found, waiting = [], [optimizer, *optimizers_in(optimizer)]
    while waiting:
        each = waiting.pop()
        if each is None or any(each is known for known in found):
            continue
        found.append(each)
        waiting += [_attribute(each, name) for name in ("optimizer", "_optimizer", "optim")]
    return [each for each in found if isinstance(each, torch.optim.Optimizer)]


def holds_any(optimizer, known) -> bool:
    """Whether it steps any of these, given by their ids."""
    return any(id(p) in known for _, held in groups_in(optimizer) for p in held)


def holds_other(optimizer, known) -> bool:
    """Whether it steps anything else than these."""
    return any(id(p) not in known for _, held in groups_in(optimizer) for p in held)


def optimizer_tensors(model, optimizer, rank: int, counters=False) -> list[Holding]:
    """The tensors of optimizers' state, under "<FQN>.<key>". model: as `_model.read` reads it.
    counters: whole numbers among it, too, as tensors."""
    found: dict[str, Holding] = {}
    said = Statement(claims=False, rank=rank)
    stated = model.said or said
    for owned in optimizer_state(model.tensors, optimizer, model.flat, model.order):
        for key, value in _tensors_in(owned.state):
            if owned.stretch and owned.own:
                held = _stretch.held(owned.stretch, owned.own, key, value, stated)
                found.setdefault(held.name, held)
                continue
            is_placed = _dtensor.is_a("DTensor", value)
            for held in _hold_state(owned, key, value, stated if is_placed else said):
                _add(found, held, owned.of)
        for key, value in owned.state.items() if counters and not owned.stretch else ():
            for held in _hold_number(owned, str(key), value, said):
                _add(found, held, owned.of)
    return sorted(found.values(), key=lambda held: held.name.encode())


def _add(found, held, of):
    """of: which optimizer, which may step what an earlier one does, with state of one name."""
    if held.name in found and found[held.name].owner is not held.owner:
        stem, _, key = held.name.rpartition(".")
        held.name = f"{stem}.<optimizer {of}>.{key}"
    found.setdefault(held.name, held)


def _hold_number(owned, key, value, said) -> list[Holding]:
    """One of Python's. Those with a fraction may be a rank's own, such as its loss."""
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        value = torch.tensor(value, dtype=torch.int64, device="cpu")
    elif type(value) is float:
        value = torch.tensor(value, dtype=torch.float64, device="cpu")
    else:
        return []
    found = _hold_state(owned, key, value, said)
    for held in found:
        held.is_counter = True
        if value.is_floating_point():
            held.codes, held.drifts = True, "number"
    return found


def _tensors_in(state):
    """(key, tensor), those in dicts, lists and objects as "key[key]", "key[index]", "key[name]"."""
    items = state.items() if isinstance(state, Mapping) else enumerate(state)
    for key, value in items:
        if (tensor := _tensor_of(value)) is not None:
            yield str(key), tensor
        elif isinstance(value, Mapping | list | tuple):
            for inner, tensor in _tensors_in(value):
                yield f"{key}[{inner}]", tensor
        elif not type(value).__module__.startswith("torch."):
            for name, inner in getattr(value, "__dict__", {}).items():
                if (tensor := _tensor_of(inner)) is not None:
                    yield f"{key}[{name}]", tensor


def _tensor_of(value) -> torch.Tensor | None:
    """A tensor, or an array of numpy as one; of other objects none."""
    if isinstance(value, torch.Tensor):
        return value
    if not hasattr(type(value), "__array_interface__") or not hasattr(value, "shape"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may not be written to
            return torch.as_tensor(value)
    except (TypeError, ValueError):  # of a dtype that torch does not have
        return None


def optimizer_state(tensors: list[Holding], optimizer, flat=None, order=()):
    """Yields an Owned for every parameter that there is a state for. order: the model's parameters
    as they were registered."""
    owners = parameters_by_owner(tensors)
    copied = _copied(owners, order, optimizer, flat)
    number = 0
    every = optimizers_in(optimizer)
    stepped = {id(p) for _, parameters in groups_in(optimizer) for p in parameters}
    for which, each in enumerate(every):
        if package := _package_of(each):
            yield from _of_stretches(package.stretches_of(each), owners)
            continue
        inner = getattr(each, "optim", None)  # torch's wrappers keep their state in this one
        wraps = isinstance(inner, torch.optim.Optimizer)
        divided = wraps and hasattr(each, "_partition_parameters")  # ZeroRedundancyOptimizer
        for parameter, state in (inner if wraps else each).state.items():
            if not isinstance(state, Mapping):  # of which numbers may be a rank's own
                state = dict(_tensors_in({"state": state}))
                if not state:
                    continue
            parts = flat.parts.get(id(parameter), []) if flat else []
            own = owners.get(id(parameter), [None])[0]
            if own is not None and not parts and _is_never_stepped(own):
                continue
            if own is None and id(parameter) in copied:
                own = copied[id(parameter)]
                state = {"main_param": parameter.detach(), **state}
            is_tensor = isinstance(parameter, torch.Tensor)
            if own is None and not parts and is_tensor and id(parameter) not in stepped:
                continue  # left over of one that was replaced, as by fully_shard
            name = own.name if own else f"<parameter {number}, not of the model>"
            if isinstance(parameter, str):  # what an optimizer keeps for all parameters
                name = f"<{parameter}>"
            yield Owned(name, own, state, parts, divided, of=_place(which, every))
            number += 1


def _is_never_stepped(own: Holding) -> bool:
    """Whether FSDP1 has cut an original parameter so that this rank has nothing of it: then it has
    no gradient here, and what an optimizer made for it beforehand stays as it was."""
    is_flat = any(placement.kind == "flat_shard" for placement in own.placements)
    return is_flat and own.local is not None and not own.local.numel()


def copied_parameters(model, optimizer) -> dict[int, list[Holding]]:
    """By the id of each fp32 copy that an optimizer steps: the parameter under all its names."""
    owners = parameters_by_owner(model.tensors)
    copied = _copied(owners, model.order, optimizer, model.flat)
    return {key: owners.get(id(held.owner), [held]) for key, held in copied.items()}


def _copied(owners, order, optimizer, flat) -> dict[int, Holding]:
    """Where an optimizer steps fp32 copies of a half-precision model's parameters, one of each: the
    parameter of each copy, by the copy's id."""
    if is_cut_by_package(optimizer) or (flat and flat.parts):
        return {}
    stepped = [p for _, parameters in groups_in(optimizer) for p in parameters]
    copies = [p for p in stepped if id(p) not in owners]
    known = {id(p) for p in stepped}
    own = [held for held in order if held.requires_grad and id(held.owner) not in known]
    if len(copies) != len(own):
        return {}
    if not all(_may_copy(copy, held) for copy, held in zip(copies, own, strict=True)):
        copies = _in_order_of(own, copies)
    own = [owners.get(id(held.owner), [held])[0] for held in own]  # under the name it is given
    return {id(copy): held for copy, held in zip(copies, own, strict=False)}


def _may_copy(copy, held) -> bool:
    is_half = held.dtype in (torch.bfloat16, torch.float16)
    return is_half and copy.dtype == torch.float32 and tuple(copy.shape) in _shapes(held)


def _shapes(held) -> set:
    return {tuple(held.shape), tuple(held.shape if held.local is None else held.local.shape)}


def _in_order_of(own, copies) -> list:
    """The copy of each parameter, where groups have them in an order of their own: of those of its
    shape the first that has its values, or else the first. Empty if one has no copy."""
    left, found = {}, []
    for copy in copies:
        left.setdefault(tuple(copy.shape), []).append(copy)
    for held in own:
        like = next((left[shape] for shape in _shapes(held) if left.get(shape)), [])
        if not like or not _may_copy(like[0], held):
            return []
        at = next((number for number, copy in enumerate(like) if _begins_alike(copy, held)), 0)
        found.append(like.pop(at))
    return found


def _begins_alike(copy, held) -> bool:
    """Whether the first values of a copy are those of the parameter."""
    if held.local is None:
        return False
    of_copy = getattr(copy, "_local_tensor", copy).detach().reshape(-1)[:_LOOKED_AT]
    of_parameter = held.local.detach().reshape(-1)[:_LOOKED_AT]
    return of_copy.device.type != "meta" and torch.equal(of_copy.to(held.dtype), of_parameter)


def look_at_copies(model, optimizer, rank):
    """Learns of what an optimizer steps whether it is a part of flat copies of the parameters."""
    is_flat = model.flat and model.flat.parts
    if optimizer is not None and not is_flat and not copied_parameters(model, optimizer):
        _flat_copies.look_at(model.order, steppers_in(optimizer), rank)


def flat_pieces(model, optimizer):
    """Yields (flat copy that it steps, the model's tensor, Piece of the one that is of the other)
    of this rank."""
    owners = parameters_by_owner(model.tensors)
    for each in steppers_in(optimizer) if optimizer is not None else ():
        for group in getattr(each, "param_groups", ()):
            for part in group["params"]:
                for piece in _flat_copies.pieces_of(part):
                    for held in owners.get(id(piece.parameter), [])[:1]:
                        yield part, held, piece


def groups_in(optimizer):
    """[(options, parameters)] of all groups. Where an optimizer steps parts of the model's
    parameters, these parameters."""
    found = []
    for each in optimizers_in(optimizer):
        if package := _package_of(each):
            found += package.groups_of(each)
        else:
            found += [(group, group["params"]) for group in each.param_groups]
    return found


def groups_by_optimizer(optimizer):
    """Yields (of which optimizer, options, parameters) of all groups: nothing for the first of
    several, then such as "2 of 2, SGD"."""
    every = optimizers_in(optimizer)
    for number, each in enumerate(every):
        for options, parameters in groups_in(each):
            yield _place(number, every), options, parameters


def place_of(number, every) -> str:
    """Such as "2 of 2, SGD"."""
    return f"{number + 1} of {len(every)}, {type(every[number]).__name__}"


def _place(number, every) -> str:
    """Nothing for the first, whose names stay as they are."""
    return place_of(number, every) if number else ""


def _package_of(optimizer):
    """The module that knows how an optimizer cuts its state, if it does so in a way of its own."""
    if _megatron.is_distributed(optimizer):
        return _megatron
    if _deepspeed.is_zero(optimizer):
        return _deepspeed
    return _flat_copies if _flat_copies.has_some(optimizer) else None


def is_cut_by_package(optimizer) -> bool:
    """Whether groups of ranks say of all its state who has it."""
    return any(map(_package_of, optimizers_in(optimizer)))


def _of_stretches(stretches, owners):
    for number, (parameter, state, stretch) in enumerate(stretches):
        own = owners.get(id(parameter), [None])[0]
        name = own.name if own else f"<parameter {number}, not of the model>"
        yield Owned(name, own, state, [], stretch=stretch)


def parameters_by_owner(tensors: list[Holding]) -> dict[int, list[Holding]]:
    """The id of each parameter object: the parameter under all its names."""
    found: dict[int, list[Holding]] = {}
    for held in tensors:
        if held.kind == "parameter":
            found.setdefault(id(held.owner), []).append(held)
    return found


def _lies_as(state: Holding, own: Holding) -> bool:
    """Whether the parameter is cut by no rule, and its state, which does not say so, as it is."""
    uneven = any(each.kind == "uneven_shard" for each in own.placements)
    same = state.shape == own.shape and state.mesh_shape == own.mesh_shape
    parts = (state.local, own.local)
    whole = all(part is not None for part in parts)
    return uneven and same and whole and parts[0].shape == parts[1].shape


def _hold_state(owned: Owned, key: str, value: torch.Tensor, said) -> list[Holding]:
    """State that is as large as this rank's part of the parameter lies as the parameter does."""
    if owned.parts:
        return _fsdp1.parts_of_state(owned.parts, key, value, said.rank)
    own = owned.own
    found = holdings(f"{owned.name}.{key}", "optimizer", value, said)
    for held in found:
        held.unique = own is not None and own.unique
        if held.placements:  # it says itself where it lies
            if own is not None and _lies_as(held, own):
                held.runs, held.placements = own.runs, own.placements
            continue
        held.groups = own.groups.of_state(value, said.rank) if own and own.groups else None
    is_known = own is not None and (own.local is not None or bool(own.unreadable))
    if len(found) == 1 and is_known and own.placements:
        (held,) = found
        size = _layout.element_count(own.runs) if own.local is None else own.local.numel()
        if not held.placements and value.dim() and value.numel() == size:
            if own.unreadable:
                held.local, held.unreadable = None, own.unreadable
            held.shape, held.runs, held.groups = own.shape, own.runs, own.groups
            held.placements, held.coordinates = own.placements, own.coordinates
            held.computed = own.computed
            held.mesh_names, held.mesh_shape = own.mesh_names, own.mesh_shape
    if owned.alone:
        for held in found:
            held.groups = alone(said.rank)
    return found
