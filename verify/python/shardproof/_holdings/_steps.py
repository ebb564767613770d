"""What optimizers did since they were last looked at: how often they stepped, and with what."""

import dataclasses
import sys
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._seen import Seen

_HAND_ON = {
    "ZeroRedundancyOptimizer": "optim",
    "PostLocalSGDOptimizer": "optim",
    "AcceleratedOptimizer": "optimizer",
    "_FabricOptimizer": "optimizer",
    "LightningOptimizer": "optimizer",
}
# What an optimizer lacks that was made without torch's own __init__, as wrappers of others are.
_LOADS = "_optimizer_load_state_dict_post_hooks"
_FRAMES = 12  # between a step and its hook there are wrappers of schedulers and profilers


@dataclasses.dataclass
class Window:
    """taken: steps since the optimizer was last looked at. options: of each group, at the last of
    them. rates: of each group the lowest that any of them had; None if that cannot be read without
    waiting for a device. grads: by id of a parameter, what the last step was taken with. scaled:
    whether a GradScaler told a step, in a tensor, whether to do nothing. given: whether any step
    had a gradient."""

    taken: int = 0
    options: list[dict] = dataclasses.field(default_factory=list)
    rates: list[float | None] = dataclasses.field(default_factory=list)
    grads: dict[int, tuple] = dataclasses.field(default_factory=dict)
    scaled: bool = False
    given: bool = False

    def grad_of(self, parameter):
        """The gradient that the last step was taken with, if it is there still; else None."""
        grad = parameter.grad
        known, version = self.grads.get(id(parameter), (None, 0))
        if grad is None or known is None or not known.is_of(grad) or grad._version != version:
            return None
        return grad


def innermost(optimizer):
    """The one that takes the steps of an optimizer that hands them on."""
    kinds = (kind.__name__ for kind in type(optimizer).__mro__)
    name = next((_HAND_ON[kind] for kind in kinds if kind in _HAND_ON), None)
    inner = getattr(optimizer, name, None) if name else None
    # DeepSpeed's are none of torch's.
    return innermost(inner) if hasattr(inner, "param_groups") else optimizer


def is_of_job() -> bool:
    """Called from a hook of a step: whether it is one that the job takes. DCP takes one of zeros,
    so that an optimizer has its state."""
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame is None:
            return True
        if frame.f_code.co_name == "_init_optim_state":
            return False
        frame = frame.f_back
    return True


class Steps:
    """Keeps no optimizer and no tensor alive."""

    def __init__(self):
        self._windows = weakref.WeakKeyDictionary()
        self._taken = weakref.WeakKeyDictionary()  # steps since the model was last observed
        self._shown = weakref.WeakSet()  # optimizers that were ever observed
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
            if own is not None and is_of_job():
                own._taken[optimizer] = own._taken.get(optimizer, 0) + 1
                own.stepped(optimizer)

        handle = register_optimizer_step_post_hook(told)
        weakref.finalize(self, handle.remove)

    def unshown(self, optimizers) -> dict:
        """By optimizer, how many steps were taken since this was last asked that nobody shows. Of
        several optimizers each may be observed in its turn."""
        taken, self._taken = self._taken, weakref.WeakKeyDictionary()
        self._shown.update(optimizers)
        return {
            each: count
            for each, count in taken.items()
            if innermost(each) is each and not (optimizers and each in self._shown)
        }

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
        window.given = window.given or any(
            parameter.grad is not None
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
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
