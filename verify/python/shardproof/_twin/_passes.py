"""How a job goes through its data: torch's sampler says that without set_epoch every time is in the
same order."""

import dataclasses
import operator
import weakref


@dataclasses.dataclass
class _Pass:
    order: object  # an iterator
    epoch: int
    stepped: bool = False  # while it was under way


class Passes:
    """Of each DistributedSampler: the last time that it went through the data."""

    def __init__(self):
        self._last = weakref.WeakKeyDictionary()

    def begun(self, sampler, order) -> bool:
        """Whether it is the order of the time before, which has come to its end with steps on its
        way: what was only looked into, evaluated on or left off is no epoch."""
        last, now = self._last.get(sampler), _Pass(order, sampler.epoch)
        self._last[sampler] = now
        if last is None or not sampler.shuffle or len(sampler) < 2:
            return False
        return last.stepped and last.epoch == now.epoch and operator.length_hint(last.order, 1) == 0

    def stepped(self):
        for sampler, last in self._last.items():
            left = operator.length_hint(last.order, 0)
            last.stepped = last.stepped or 0 < left < len(sampler)
