"""Digests of tensors on a GPU by the kernel that torch.ops.shardproof.digest has for them.

What the kernel cannot take goes through the host, as where the op was built without it: the digests
are the same.
"""

import array
import functools
import warnings

import torch

TOGETHER_MAX = 4096  # tensors in one call
TOGETHER_BYTES = 1 << 28  # how much of them, so that who reads against the clock can stop between
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
    if _OWN_ERROR not in str(error):
        raise error
    _given_up.add(device)
    why = str(error).splitlines()[0]
    warnings.warn(
        f"shardproof: the digests of what is on {device} are computed on the host, which is "
        f"slower, since the kernel cannot run: {why}",
        stacklevel=2,
    )


def start(tensors: list[torch.Tensor], runs: list[list], formats: list[int]) -> torch.Tensor:
    """Digests tensors of one GPU on its current stream, and waits for nothing.

    tensors: contiguous, of any dtypes. runs: of each, those of its elements. formats: of each, as
    sp_float_format. \\returns int64 [n, 6] on the GPU: lanes, NaN count, Inf count, lanes of the
    coverage.
    """
    numbers, of_tensors = array.array("q"), array.array("q")
    for tensor, own, number in zip(tensors, runs, formats, strict=True):
        size = tensor.element_size()
        of_tensors.extend((len(own), number))
        for run in own:
            numbers.extend((run.start * size, run.length * size, run.count, run.stride * size,
                            run.local_start * size, run.local_stride * size))  # fmt: skip
    with torch.no_grad():
        return torch.ops.shardproof.digests(tensors, _table(numbers, 6), _table(of_tensors, 2))


def _table(numbers: array.array, width: int) -> torch.Tensor:
    if not numbers:
        return torch.zeros(0, width, dtype=torch.int64, device="cpu")
    return torch.frombuffer(numbers, dtype=torch.int64).view(-1, width)
