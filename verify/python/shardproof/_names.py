"""Names of tensors: those that a checkpoint has, whatever the model is wrapped in."""

from torch import nn

# Wrappers that put their own name between a module and its child's tensors.
TRANSPARENT = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}


def without_wrappers(name: str, wrappers=frozenset(TRANSPARENT)) -> str:
    """A name as it is in a model that is not wrapped."""
    return ".".join(part for part in name.split(".") if part not in wrappers)


def canonical_name(model: nn.Module, prefix: str, name: str) -> str:
    """The FQN without the names of wrappers."""
    parts = []
    module = model
    for part in prefix.split(".") if prefix else []:
        is_wrapper = part in TRANSPARENT or (
            part == "module" and isinstance(module, nn.parallel.DistributedDataParallel)
        )
        if not is_wrapper:
            parts.append(part)
        module = getattr(module, part)
    return ".".join([*parts, name])
