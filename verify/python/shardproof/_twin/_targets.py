"""Over how many targets a loss is a mean, or a sum."""

import math

import torch

from .._observing import _hooks


class Targets:
    """Of the loss that is being computed."""

    def __init__(self):
        self._counts = False
        self._of_means = 0
        self._sums = []  # (how many targets, the sum over them)

    def listen(self):
        _hooks.listen(torch.nn.functional, "cross_entropy", after=self.took)

    def begin(self):
        self._counts, self._of_means, self._sums = True, 0, []

    def took(self, result, given, arguments, named):
        targets = arguments[1] if len(arguments) > 1 else named.get("target")
        reduction = named.get("reduction", "mean")
        if not self._counts or reduction == "none" or targets.is_floating_point():
            return
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, (targets, result))):
            return  # of samples each by itself, as vmap takes them, which have no numbers
        count = int((targets != named.get("ignore_index", -100)).sum())
        if reduction == "sum":
            self._sums.append((count, float(result.detach())))
        else:
            self._of_means += count

    def counts(self, loss) -> tuple[int, int]:
        """Of how many targets it is a mean, and of how many the sum: 0 if it is more, or less."""
        self._counts = False
        total = sum(value for _, value in self._sums)
        is_sum = bool(self._sums) and math.isclose(loss, total, rel_tol=1e-5)
        return self._of_means, sum(count for count, _ in self._sums) if is_sum else 0
