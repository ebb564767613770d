"""Which attributes of parameters a model's own code reads: losing one of these matters."""

import ast
import inspect
import os
import sys

import torch
from torch import nn

_READERS = {"getattr", "hasattr"}
# These run before a framework gets the model.
_BUILDING = {"__init__", "_init_weights", "init_weights", "post_init", "reset_parameters"}


def uses(plain, tensors) -> dict[str, str]:
    """{attribute: "file.py:line" that reads it}, of those that the twin's parameters have."""
    wanted = {name for held in tensors for name in held.attributes}
    if not wanted:
        return {}
    kinds = {kind for module in plain.model.modules() for kind in type(module).__mro__}
    modules = {type(module).__module__ for module in plain.model.modules()}
    files = {getattr(sys.modules.get(name), "__file__", None): name for name in sorted(modules)}
    if plain.optimizer is not None:
        files[_file_of(type(plain.optimizer))] = type(plain.optimizer).__module__
    found: dict[str, str] = {}
    for path, module in files.items():
        if path and path.endswith(".py") and not _is_torchs(path):
            others = _names_of_others(sys.modules.get(module), kinds)
            for name, line in _reads(path, others):
                if name in wanted:
                    found.setdefault(name, f"{os.path.basename(path)}:{line}")
    return found


def _file_of(kind):
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):
        return None


def _is_torchs(path) -> bool:
    return f"{os.sep}torch{os.sep}" in path


def _names_of_others(module, kinds) -> set[str]:
    """Classes of a file that this model does not run: modules that it does not have. And kinds of
    tensors, which read what they have themselves."""
    return {
        name
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, nn.Module | torch.Tensor)
        and kind not in kinds
    }  # fmt: skip


def _reads(path, others):
    """(attribute, line) of what looks like reading a parameter's attribute once it is built.
    others: classes that are left out."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and node.name in _BUILDING:
            continue
        if isinstance(node, ast.ClassDef) and node.name in others:
            continue
        waiting += ast.iter_child_nodes(node)
        name = _read_by(node)
        if name:
            yield name, node.lineno


def _read_by(node) -> str:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        return "" if of_self else node.attr
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if is_call and node.func.id in _READERS and len(node.args) > 1:
        name = node.args[1]
        return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ""
    return ""
