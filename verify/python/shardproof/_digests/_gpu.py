"""Digests of tensors on a GPU by the kernel that torch.ops.shardproof.digest has for them.

What the kernel cannot take goes through the host, as where the op was built without it: the digests
are the same.
"""

import functools
import warnings

import torch

_OWN_ERROR = "shardproof::digest"
_NO_MEMORY = "cannot allocate its results"  # torch's own error has lost its type on its way here

_given_up: set[torch.device] = set()


@functools.cache
def _has_kernel() -> bool:
    """Of the op that was loaded."""
    return torch._C._dispatch_has_kernel_for_dispatch_key("shardproof::digests", "CUDA")


def takes(local: torch.Tensor) -> bool:
    """Whether the kernel reads the tensor where it lies. Asked only once the op is loaded."""
    return local.device.type == "cuda" and local.device not in _given_up and _has_kernel()


def give_up(device: torch.device, error: RuntimeError):
    """From now on what lies on the device is copied to the host, if it is the kernel that cannot
    run there; this once, if the device has no memory left. \\raises error if it is another."""
    if isinstance(error, torch.OutOfMemoryError) or _NO_MEMORY in str(error):
        return
    if device.type == "cpu" or _OWN_ERROR not in str(error):
        raise error
    _given_up.add(device)
    why = str(error).splitlines()[0]
    warnings.warn(
        f"shardproof: the digests of what is on {device} are computed on the host, which is "
        f"slower, since the kernel cannot run: {why}",
        stacklevel=2,
    )
