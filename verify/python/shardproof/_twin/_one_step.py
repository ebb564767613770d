"""A step of the optimizer that a subject has, on whole tensors in one process."""

import inspect
from collections.abc import Mapping

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _values

_NARROW = {torch.bfloat16, torch.float16, torch.float32}


class CannotStep(Exception):
    """Why a step cannot be taken here, in one line."""


def take(kind, groups, own, values, grads, state):
    """One step. groups: (options, names). own: attributes of the optimizer that are plain values.
    values, grads: by name, whole; a gradient may be None. state: by name and key, before the step.
    \\returns values and state after it.
    \\raises CannotStep."""
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in values.items()}
    held = [
        {**options, "params": [parameters[name] for name in names if name in parameters]}
        for options, names in groups
    ]
    held = [group for group in held if group["params"]]
    try:
        optimizer = _made(kind, held)
        for group, given in zip(optimizer.param_groups, held, strict=True):
            group.update({key: value for key, value in given.items() if key != "params"})
        for key, value in own.items():
            setattr(optimizer, key, value)
        for name, parameter in parameters.items():
            grad = grads.get(name)
            if grad is not None:
                grad = grad if grad.is_sparse else grad.view(parameter.shape)
                parameter.grad = grad.to(parameter.dtype).clone()
            if state.get(name):
                own_state = {key: _own(value) for key, value in state[name].items()}
                optimizer.state[parameter] = _nested(own_state)
        optimizer.step()
    except Exception as error:
        raise CannotStep(f"{kind.__name__} alone: {type(error).__name__}: {error}") from error
    after = {name: parameter.detach() for name, parameter in parameters.items()}
    kept = {
        name: dict(flat(optimizer.state.get(parameter, {})))
        for name, parameter in parameters.items()
    }
    return after, kept


def as_sparse(grad, rows):
    """A gradient as a job had it, which optimizers tell from a dense one. rows: indices of it."""
    return torch.sparse_coo_tensor(
        rows, grad[tuple(rows)], grad.shape, is_coalesced=True, check_invariants=True
    )


def take_wide(kind, groups, own, values, grads, state):
    """The same in F64, to tell what rounding changes; nothing if the optimizer has no such step."""
    wide = {name: {key: _wide(value) for key, value in of.items()} for name, of in state.items()}
    values = {name: _wide(value) for name, value in values.items()}
    try:
        with _NothingNarrow():
            return take(kind, groups, own, values, grads, wide)
    except CannotStep:
        return {}, {}


class _NothingNarrow(TorchDispatchMode):
    """What an optimizer casts to fewer bits for a while, as Muon does for its products, stays as
    wide as it was."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        named = dict(named or {})
        casts = function is torch.ops.aten._to_copy.default and named.get("dtype") in _NARROW
        if casts and arguments[0].dtype == torch.float64:
            named["dtype"] = torch.float64
        return function(*arguments, **named)


def _wide(value):
    return _values.wide(value) if isinstance(value, torch.Tensor) else value


def _own(value):
    return value.clone() if isinstance(value, torch.Tensor) else value


def flat(state):
    """(key, value), those in dicts and lists as "key[key]" and "key[index]"."""
    for key, value in state.items() if isinstance(state, Mapping) else enumerate(state):
        if isinstance(value, Mapping | list | tuple):
            for inner, each in flat(value):
                yield f"{key}[{inner}]", each
        else:
            yield str(key), value


def _nested(state):
    """What `flat` was given; a tuple as a list."""
    found, inside = {}, {}
    for key, value in state.items():
        outer, bracket, inner = key.partition("[")
        if bracket:
            inside.setdefault(outer, {})[inner.removesuffix("]")] = value
        else:
            found[key] = value
    for key, values in inside.items():
        values = _nested(values)
        places = [str(place) for place in range(len(values))]
        found[key] = [values[place] for place in places] if set(places) == set(values) else values
    return found


def _made(kind, groups):
    try:
        return kind(groups)
    except TypeError:  # it has options without a default
        known = inspect.signature(kind).parameters
        options = {key: value for key, value in groups[0].items() if key in known}
        options.pop("params", None)
        return kind(groups, **options)
