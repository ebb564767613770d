"""`who`, at a stage: who holds what the model and its optimizer do not account for, and what was
allocated most of at the peak before it."""

import torch

from . import _snapshot
from ._holders import holders
from ._tracer import TOLD_BYTES_MIN, TOLD_MAX, Tracer


class Who:
    """tracer: that of the watch."""

    def __init__(self, tracer: Tracer):
        self._tracer = tracer
        self._told_us = 0  # CUDA's events up to then belong to an earlier stage

    def told(self, others) -> list[dict]:
        """others: tensors that are neither the model's nor its optimizer's (foreign())."""
        held = [{"by": "holder", **each} for each in holders(others, TOLD_BYTES_MIN)]
        return [*held[:TOLD_MAX], *self._tracer.found(), *self._of_devices()]

    def _of_devices(self) -> list[dict]:
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return []
        if not getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)():
            return []
        snapshot = torch.cuda.memory._snapshot()
        found, self._told_us = _snapshot.at_peak(snapshot, self._told_us)
        return [each for each in found if each["bytes"] >= TOLD_BYTES_MIN][:TOLD_MAX]
