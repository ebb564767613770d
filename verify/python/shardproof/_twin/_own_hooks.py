"""Hooks of a job's own that may change gradients: on parameters, and where they are reduced."""

from torch.nn.parallel import DistributedDataParallel

from .._observing import _hooks

# Those of torch that change no more than the dtype.
_SUMS = (
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
    "torch.distributed.algorithms._comm_hooks.default_hooks",
)


class OwnHooks:
    def __init__(self):
        self._of_reduction = ""

    def listen(self):
        from torch.distributed.fsdp import FullyShardedDataParallel

        for wrapper in (DistributedDataParallel, FullyShardedDataParallel):
            _hooks.listen(wrapper, "register_comm_hook", after=self._registered)

    def _registered(self, result, given, arguments, named):
        hook = arguments[2] if len(arguments) > 2 else named["hook"]
        name = getattr(hook, "__qualname__", type(hook).__name__)
        is_sum = getattr(hook, "__module__", "") in _SUMS and "<locals>" not in name
        self._of_reduction = "" if is_sum else f"the communication hook {name}"

    def on(self, parameters) -> str:
        """What may change the gradients of these; "" if nothing does."""
        if any(parameter._backward_hooks for parameter in parameters):
            return "a hook on a parameter"
        return self._of_reduction
