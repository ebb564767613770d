"""Digests of many tensors in one call of the op: a call for each would cost more than reading those
that are small."""

import array

import torch

from . import _digest, _gpu

MAX = 4096  # tensors in one call
BYTES = 1 << 28  # how much of them, so that who reads against the clock can stop between
_SMALL_BYTES = 1 << 25  # on the host; of larger ones the call does not matter


def digest_all(held: list[tuple[torch.Tensor, list]]) -> list[_digest.Summary]:
    """What `digest_runs` gives of each tensor and its runs, without blocks. GPUs are waited for
    once in thousands. \raises ValueError as `digest_runs`."""
    found: list[_digest.Summary | None] = [None] * len(held)
    by_device: dict[torch.device, list[int]] = {}
    for number, (local, _) in enumerate(held):
        if takes(local):
            by_device.setdefault(local.device, []).append(number)
    for device, numbers in by_device.items():
        for at in range(0, len(numbers), MAX):
            some = numbers[at : at + MAX]
            try:
                for number, summary in zip(some, _read([held[i] for i in some]), strict=True):
                    found[number] = summary
            except RuntimeError as error:
                _gpu.give_up(device, error)
                break
    return [
        _digest.digest_runs(*each) if summary is None else summary
        for each, summary in zip(held, found, strict=True)
    ]


def takes(local: torch.Tensor) -> bool:
    """Whether `digest_all` digests the tensor in one call with others."""
    if local.dtype in _digest.ONE_NAN or not local.is_contiguous():
        return False
    small = local.device.type == "cpu" and local.nbytes <= _SMALL_BYTES
    return _digest.is_on_gpu(local) or (small and _digest.has_op())


def _read(held):
    for local, runs in held:
        _digest.checked_count(local, runs)
    locals_, runs = [local for local, _ in held], [runs for _, runs in held]
    formats = [_digest.FLOAT_FORMATS.get(local.dtype, 0) for local in locals_]
    nothing, mask = _digest.no_blocks(0), _digest.MASK
    known: dict[tuple[int, int], tuple[int, int]] = {}  # tensors are cut alike
    for lane0, lane1, nan, inf, ones0, ones1 in start(locals_, runs, formats).tolist():
        digest, ones = (lane0 & mask, lane1 & mask), (ones0 & mask, ones1 & mask)
        yield _digest.Summary(nothing, digest, nan, inf, known.setdefault(ones, ones))


def start(tensors: list[torch.Tensor], runs: list[list], formats: list[int]) -> torch.Tensor:
    """Digests tensors of one device: of a GPU on its current stream, and waits for nothing.

    tensors: contiguous, of any dtypes. runs: of each, those of its elements. formats: of each, as
    sp_float_format. \returns int64 [n, 6] on the device: lanes, NaN count, Inf count, lanes of the
    coverage.
    """
    table = Table()
    for tensor, own, number in zip(tensors, runs, formats, strict=True):
        table.add(own, tensor.element_size(), number)
    return table.digest(tensors)


class Table:
    """Runs of many tensors of one device, as the op reads them."""

    def __init__(self):
        self._runs, self._tensors = array.array("q"), array.array("q")

    def add(self, runs: list, element_bytes: int, float_format: int, begin=0):
        """Those of the next tensor. begin: the byte of its memory that they count from."""
        first = len(self._runs)
        _digest.add_runs(self._runs, runs, element_bytes)
        for at in range(first + 4, len(self._runs), 6) if begin else ():
            self._runs[at] += begin
        self._tensors.extend((len(runs), float_format))

    def digest(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """As `start`."""
        with torch.no_grad():
            runs, of_tensors = (_digest.table_of(self._runs, 6), _digest.table_of(self._tensors, 2))
            return torch.ops.shardproof.digests(tensors, runs, of_tensors)
