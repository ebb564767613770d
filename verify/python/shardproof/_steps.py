"""What optimizers did since they were last looked at: how often they stepped, and with what."""

import dataclasses
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._seen import Seen

_HAND_ON = {
    "ZeroRedundancyOptimizer": "optim",
    "PostLocalSGDOptimizer": "optim",
    "AcceleratedOptimizer": "optimizer",
}
# What an optimizer lacks that was made without torch's own __init__, as wrappers of others are.
_LOADS = "_optimizer_load_state_dict_post_hooks"


@dataclasses.dataclass
class Window:
    """taken: steps since the optimizer was last looked at. options: of each group, at the last of
    them. rates: of each group the lowest that any of them had; None if that cannot be read without
    waiting for a device. grads: by id of a parameter, what the last step was taken with. scaled:
    whether a GradScaler told a step, in a tensor, whether to do nothing."""

    taken: int = 0
    options: list[dict] = dataclasses.field(default_factory=list)
    rates: list[float | None] = dataclasses.field(default_factory=list)
    grads: dict[int, tuple] = dataclasses.field(default_factory=dict)
    scaled: bool = False

    def grad_of(self, parameter):
        """The gradient that the last step was taken with, if it is there still; else None."""
        grad = parameter.grad
        known, version = self.grads.get(id(parameter), (None, 0))
        if grad is None or known is None or not known.is_of(grad) or grad._version != version:
            return None
        return grad


def innermost(optimizer):
    """The one that takes the steps of an optimizer that hands them on."""
    name = _HAND_ON.get(type(optimizer).__name__)
    inner = getattr(optimizer, name, None) if name else None
    return innermost(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


class Steps:
    """Keeps no optimizer and no tensor alive."""

    def __init__(self):
        self._windows = weakref.WeakKeyDictionary()
        self._hooked = weakref.WeakSet()
        self._listens = False

    def listen(self):
        """Has stepped() called by every optimizer of this process."""
        if self._listens:
            return
        self._listens = True
        ref = weakref.ref(self)

        def told(optimizer, arguments, named):
            if torch.compiler.is_compiling():  # first: a compiler comes no further
                return
            own = ref()
            if own is not None:
                own.stepped(optimizer)

        handle = register_optimizer_step_post_hook(told)
        weakref.finalize(self, handle.remove)

    def looked_at(self, optimizers):
        """From now on it is counted what these do, and what others do is not known."""
        self._windows = weakref.WeakKeyDictionary()
        for optimizer in optimizers:
            if isinstance(optimizer, torch.optim.Optimizer):
                self._windows[optimizer] = Window()
                self._watch_loads(optimizer)

    def _watch_loads(self, optimizer):
        if optimizer in self._hooked or not hasattr(optimizer, _LOADS):
            return
        self._hooked.add(optimizer)
        ref = weakref.ref(self)

        def loaded(optimizer):
            own = ref()
            if own is not None:
                own._windows.pop(optimizer, None)

        optimizer.register_load_state_dict_post_hook(loaded)

    def since(self, optimizer) -> Window | None:
        """None if it was not looked at before, or its state was loaded since."""
        if not isinstance(optimizer, torch.optim.Optimizer):
            return None
        return self._windows.get(optimizer)

    def stepped(self, optimizer, with_grads=True):
        """After each step. with_grads: whether it may be the last one before it is looked at."""
        window = self._windows.get(optimizer)
        if window is None:
            return
        window.taken += 1
        window.options = [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        rates = [_number(options.get("lr")) for options in window.options]
        window.rates = [
            None if rate is None or (known := _at(window.rates, number, rate)) is None
            else min(rate, known)
            for number, rate in enumerate(rates)
        ]  # fmt: skip
        window.scaled = window.scaled or getattr(optimizer, "found_inf", None) is not None
        window.grads = _dated(optimizer) if with_grads else {}


def _dated(optimizer) -> dict[int, tuple]:
    try:
        return {
            id(parameter): (Seen(grad), grad._version)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if (grad := parameter.grad) is not None
        }
    except RuntimeError:  # one has no version
        return {}


def _at(values, index, default):
    return values[index] if index < len(values) else default


def _number(value) -> float | None:
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" else None
    return float(value) if isinstance(value, int | float) else None
