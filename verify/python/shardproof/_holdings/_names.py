"""Names of tensors: those that a checkpoint has, whatever the model is wrapped in."""

import fnmatch
import functools
from collections.abc import Callable, Mapping

from torch import nn

from . import _deepspeed

# Wrappers that put their own name between a module and its child's tensors.
TRANSPARENT = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}
# Packages whose wrappers keep what they wrap under "module".
_PACKAGES = {"megatron", "deepspeed"}
# Classes whose child `module` is all that they are about. By name: most are not installed.
_AROUND_A_MODULE = {"DataParallel", "DeepSpeedEngine", "Float16Module", "MegatronFSDP"}
# PeftModel.base_model is a tuner, whose `model` is the model. Tuners wrap layers too, and modules
# of which a copy, or some rows, are trained.
_IN_PEFT = {"base_model", "model", "base_layer", "original_module", "token_adapter"}


def without_wrappers(name: str, wrappers=frozenset(TRANSPARENT)) -> str:
    """A name as it is in a model that is not wrapped."""
    return ".".join(part for part in name.split(".") if part not in wrappers)


def canonical_name(model: nn.Module, prefix: str, name: str, added=False) -> str:
    """The FQN without the names of wrappers. Layers and experts of Megatron's, and experts of
    DeepSpeed's, have their numbers in the whole model, not those that they have on this rank.
    added: it is an adapter's, of which one module can have several, each below another number of
    base layers."""
    parts = []
    outer, module = None, model
    for part in prefix.split(".") if prefix else []:
        inner = _child(module, part)
        if not _is_wrapping(module, part) or (added and part == "base_layer"):
            parts.append(_number_of(outer, module, inner, part) or part)
        outer, module = module, inner
    if is_of(outer, {"megatron"}) and _is_tied_to_first_stage(parts, module, name):
        parts = [*parts[:-1], "embedding", "word_embeddings"]
    return ".".join([*parts, name])


def _is_tied_to_first_stage(parts, module, name) -> bool:
    """Whether it is the output layer of a last stage of Megatron's that is to stay equal to the
    word embedding of the first one, as whose replica Megatron saves it."""
    is_output = parts[-1:] == ["output_layer"] and name == "weight"
    return is_output and getattr(module._parameters.get(name), "shared_embedding", False)


def _number_of(outer, module, inner, part) -> str:
    """outer: what the list `module` is in."""
    if not isinstance(module, nn.ModuleList):
        return ""
    number = getattr(inner, "layer_number", None)
    if type(number) is int and is_of(inner, {"megatron"}):
        return str(number - 1)
    if is_of(outer, {"megatron"}) and hasattr(outer, "ep_group"):
        return str(outer.ep_group.rank() * outer.num_local_experts + int(part))
    if is_of(outer, {"deepspeed"}) and hasattr(outer, "num_local_experts"):
        return str(_deepspeed.number_of_expert(outer, inner, int(part)))
    return ""


def is_of(module, packages) -> bool:
    """Whether its class, or one that it is made from, is of one of these packages."""
    return not _packages_of(type(module)).isdisjoint(packages)


@functools.cache
def _packages_of(cls) -> frozenset[str]:
    return frozenset(each.__module__.split(".")[0] for each in cls.__mro__)


def _child(module: nn.Module, name: str) -> nn.Module:
    try:
        return module._modules[name]
    except KeyError:  # a wrapper shows what it wraps as its own
        return getattr(module, name)


@functools.cache
def names_of(cls) -> frozenset[str]:
    """Of a class and of those that it is made from."""
    return frozenset(each.__name__ for each in cls.__mro__)


def _is_wrapping(module, part: str) -> bool:
    """Whether the child of that name is what a wrapper is about."""
    if part in TRANSPARENT:
        return True
    if part == "module":
        is_ddp = isinstance(module, nn.parallel.DistributedDataParallel)
        is_named = not names_of(type(module)).isdisjoint(_AROUND_A_MODULE)
        return is_ddp or is_named or is_of(module, _PACKAGES)
    if part in _IN_PEFT:
        return is_of(module, {"peft"})
    return False


def added_to(model: nn.Module, prefix: str) -> nn.Module | None:
    """The module of PEFT's that has the tensors at `prefix` besides what it wraps; None if they are
    of no adapter."""
    module = model
    for part in prefix.split(".") if prefix else []:
        if is_of(module, {"peft"}) and not _is_wrapping(module, part):
            return module
        module = _child(module, part)
    return module if is_of(module, {"peft"}) else None


def scale_of(layer: nn.Module, full_name: str) -> dict[str, str]:
    """As an attribute of an adapter's second factor, "lora_B": what its layer multiplies it by."""
    of, _, adapter = full_name.removesuffix(".weight").rpartition(".")
    scaling = getattr(layer, "scaling", None)
    if not of.endswith("_B") or not isinstance(scaling, Mapping) or adapter not in scaling:
        return {}
    return {"scaling": repr(float(scaling[adapter]))}


def not_ignored(named: dict, ignore) -> dict:
    """What of {name: ...} no pattern matches. ignore: a pattern, or several."""
    patterns = [ignore] if isinstance(ignore, str) else list(ignore)
    return {
        name: each
        for name, each in named.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


class Renaming:
    """What a caller says of names. names: {name: the checkpoint's name}, or a function from one to
    the other. also: patterns of the framework's own tensors, which no checkpoint has."""

    def __init__(self, names=None, also=()):
        self._names = names
        self._also = [also] if isinstance(also, str) else list(also)

    def apply(self, tensors) -> list:
        """The holdings under their names. \\raises ValueError if two get one name."""
        seen = set()
        for held in tensors:
            held.also = held.also or any(fnmatch.fnmatchcase(held.name, p) for p in self._also)
            held.name = self._renamed(held.name)
            if held.name in seen:
                raise ValueError(f"observe: names= gives two tensors the name {held.name}")
            seen.add(held.name)
        return sorted(tensors, key=lambda held: held.name.encode())

    def _renamed(self, name: str) -> str:
        if isinstance(self._names, Mapping):
            return self._names.get(name, name)
        if isinstance(self._names, Callable):
            return self._names(name)
        return name
