"""Which buffers a module's forward pass puts anew, as `self.mean = 0.9 * self.mean + ...` does: by
its code, which shows that at the first look already."""

import dis
import functools
import inspect
import types

from torch import nn


@functools.cache
def assigned_in_forward(cls: type[nn.Module]) -> frozenset[str]:
    """Names that its forward pass, or a method that this calls, assigns."""
    found, seen = set(), {"forward"}
    waiting = ["forward"]
    while waiting:
        for code in _codes_of(getattr(cls, waiting.pop(), None)):
            found.update(
                each.argval for each in dis.get_instructions(code) if each.opname == "STORE_ATTR"
            )
            called = [name for name in code.co_names if name in _methods(cls) and name not in seen]
            seen.update(called)
            waiting += called
    return frozenset(found)


@functools.cache
def _methods(cls) -> frozenset[str]:
    """Those of its own, not what every module has."""
    return frozenset(
        name
        for each in cls.__mro__
        if each not in nn.Module.__mro__
        for name, value in vars(each).items()
        if callable(value)
    )


def _codes_of(function):
    """The code of a method, beneath its decorators, and of the functions within it."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    waiting = [getattr(function, "__code__", None)]
    while waiting:
        code = waiting.pop()
        if isinstance(code, types.CodeType):
            yield code
            waiting += code.co_consts
