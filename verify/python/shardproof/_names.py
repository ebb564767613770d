"""Names of tensors: those that a checkpoint has, whatever the model is wrapped in."""

from torch import nn

# Wrappers that put their own name between a module and its child's tensors.
TRANSPARENT = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}
# Packages whose wrappers keep what they wrap under "module".
_PACKAGES = {"megatron", "deepspeed"}


def without_wrappers(name: str, wrappers=frozenset(TRANSPARENT)) -> str:
    """A name as it is in a model that is not wrapped."""
    return ".".join(part for part in name.split(".") if part not in wrappers)


def canonical_name(model: nn.Module, prefix: str, name: str) -> str:
    """The FQN without the names of wrappers. Layers and experts of Megatron's have their numbers in
    the whole model, not those that they have on this rank."""
    parts = []
    outer, module = None, model
    for part in prefix.split(".") if prefix else []:
        inner = getattr(module, part)
        if not _is_wrapped(module, part):
            parts.append(_number_of(outer, module, inner, part) or part)
        outer, module = module, inner
    return ".".join([*parts, name])


def _is_wrapped(module, part: str) -> bool:
    """Whether the module is a wrapper, and what it wraps is its child of that name."""
    return part in TRANSPARENT or (
        part == "module"
        and (isinstance(module, nn.parallel.DistributedDataParallel) or _is_of(module, _PACKAGES))
    )


def _number_of(outer, module, inner, part) -> str:
    """outer: what the list `module` is in."""
    if not isinstance(module, nn.ModuleList):
        return ""
    number = getattr(inner, "layer_number", None)
    if type(number) is int and _is_of(inner, {"megatron"}):
        return str(number - 1)
    if _is_of(outer, {"megatron"}) and hasattr(outer, "ep_group"):
        return str(outer.ep_group.rank() * outer.num_local_experts + int(part))
    return ""


def _is_of(module, packages) -> bool:
    return any(cls.__module__.split(".")[0] in packages for cls in type(module).__mro__)
