"""A state dict as checkpoints name what is in it: tensors, and values as texts."""

from collections.abc import Mapping

import torch

from .._holdings._groups import Statement
from .._holdings._holding import Holding
from .._holdings._tensor import holdings

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)}
_ESCAPES = str.maketrans({"'": "\\'", "\\": "\\\\"} | {chr(c): t for c, t in _CONTROLS.items()})


def read(state: Mapping, said: Statement) -> tuple[dict[str, Holding], dict[str, str]]:
    """The tensors and the values by name: the keys that lead to them, joined by dots. Lists are
    taken apart if there is a dict or a tensor in them.

    \\raises ValueError for a value that is neither a number, a text, nor made of such.
    """
    tensors: dict[str, Holding] = {}
    values: dict[str, str] = {}

    def add(value, name):
        if isinstance(value, torch.Tensor):
            tensors.update({held.name: held for held in holdings(name, "parameter", value, said)})
        elif isinstance(value, Mapping):
            for key, item in value.items():
                add(item, f"{name}.{key}" if name else str(key))
        elif isinstance(value, list) and _holds_named(value):
            for i, item in enumerate(value):
                add(item, f"{name}.{i}" if name else str(i))
        else:
            values[name] = _text_of(value, name)

    add(state, "")
    return tensors, values


def _holds_named(value) -> bool:
    return any(
        isinstance(item, Mapping | torch.Tensor) or isinstance(item, list) and _holds_named(item)
        for item in value
    )


def _text_of(value, name: str) -> str:
    """In Python's notation, as a seal has it."""
    if isinstance(value, str):
        return "'" + value.translate(_ESCAPES) + "'"
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return repr(int(value))
    if isinstance(value, float) and value == value:
        return repr(float(value))
    if type(value) in (list, tuple):
        inner = ", ".join(_text_of(item, name) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise ValueError(f"{name}: a value of the type {type(value).__name__}, which cannot be sealed")
