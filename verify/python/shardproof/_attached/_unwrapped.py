"""Models that no wrapper makes: the modules that hold what an optimizer steps, and the object of a
framework that has the optimizer step for it."""

import collections
import gc

import torch
from torch import nn

from .._holdings import _optimizer

_PACKAGES = {"deepspeed", "megatron"}  # whose optimizers have another one step parts of parameters


class Alive:
    """The modules of this process, and the optimizers of these packages, as they are now."""

    def __init__(self):
        objects = gc.get_objects()
        # Of an object only its type is looked at: more could run code of the job.
        kinds = set(map(type, objects))
        modules = {kind for kind in kinds if nn.Module in kind.__mro__}
        owners = {kind for kind in kinds if _is_owner(kind)}
        self._modules = [each for each in objects if type(each) in modules and _is_whole(each)]
        self._owners = [each for each in objects if type(each) in owners]

    def holding(self, wanted: set[int], every=False) -> list[nn.Module]:
        """wanted: ids of parameters. \\returns outermost modules that hold them, each parameter in
        one of them, that with the most first. every: none, unless they hold every one of these."""
        parents = collections.defaultdict(list)
        for module in self._modules:
            for child in module._modules.values():
                parents[id(child)].append(module)
        found = {}  # by the id of an outermost module: it, and what it holds
        for module in self._modules:
            own = {id(each) for each in module._parameters.values()} & wanted
            for top in _outermost(module, parents) if own else []:
                found.setdefault(id(top), (top, set()))[1].update(own)
        chosen, left = [], set(wanted)
        for module, held in sorted(found.values(), key=lambda each: -len(each[1])):
            if held & left:
                chosen.append(module)
                left -= held
        return [] if every and left else chosen

    def owner_of(self, optimizer):
        """What has an optimizer step stretches of its own parameters; None if nothing does."""
        for each in self._owners:
            if each.__dict__.get("optimizer") is optimizer and _optimizer.is_cut_by_package(each):
                return each
        return None


def _is_owner(kind) -> bool:
    name = kind.__module__
    package = name.split(".")[0] if isinstance(name, str) else ""
    return (
        package in _PACKAGES and hasattr(kind, "step") and torch.optim.Optimizer not in kind.__mro__
    )


def _is_whole(module) -> bool:
    """Whether it was made, and is one of Python's."""
    own = (module.__dict__.get(name) for name in ("_modules", "_parameters"))
    return all(dict in type(each).__mro__ for each in own)


def _outermost(module, parents) -> list[nn.Module]:
    """The modules that nothing holds, of those that a module is in."""
    seen, left, found = {id(module)}, [module], []
    while left:
        each = left.pop()
        above = parents.get(id(each))
        if not above:
            found.append(each)
        for parent in above or []:
            if id(parent) not in seen:
                seen.add(id(parent))
                left.append(parent)
    return found
