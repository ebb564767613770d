"""Which buffers a module puts anew by what it is given, as `self.mean = 0.9 * self.mean + ...` does
in a forward pass or in an `update(batch)`: by its code, which shows that at the first look already.
"""

import dis
import functools
import inspect
import types

from torch import nn

# How methods begin that are given what is the same on all ranks.
_ONCE = ("init", "load", "register", "reset", "set")


@functools.cache
def assigned_from_data(cls: type[nn.Module]) -> frozenset[str]:
    """Names that its forward pass, a method that is given something, or one that these call,
    assigns. Those that it calls to be made are none of them."""
    made = _reached(cls, ["__init__"])
    given = [name for name in _methods(cls) - made if _is_given(getattr(cls, name), name)]
    return frozenset(
        each.argval
        for name in _reached(cls, ["forward", *given])
        for code in _codes_of(getattr(cls, name, None))
        for each in dis.get_instructions(code)
        if each.opname == "STORE_ATTR"
    )


def _reached(cls, names) -> set[str]:
    """These methods and all that they call, of the class's own."""
    seen, waiting = set(names), list(names)
    while waiting:
        for code in _codes_of(getattr(cls, waiting.pop(), None)):
            called = [name for name in code.co_names if name in _methods(cls) and name not in seen]
            seen.update(called)
            waiting += called
    return seen


def _is_given(method, name) -> bool:
    """Whether it is a method of an object that has to be given something else."""
    if name.startswith("__") or name.lstrip("_").startswith(_ONCE):
        return False
    function = inspect.unwrap(method)
    code = getattr(function, "__code__", None)
    return code is not None and code.co_argcount - len(function.__defaults__ or ()) > 1


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
