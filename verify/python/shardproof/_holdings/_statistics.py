"""Which buffers of a model may differ between ranks, since each rank's batches went into them."""

import re
import weakref

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from ._seen import Seen

# In the name of a buffer: Megatron-LM and torchtitan count in it what a rank's own batches brought.
_OF_BATCHES = "tokens_per_expert"
# Theirs, and DeepSeek's: a router adds it to its scores, and each step changes it alike everywhere.
_BALANCES = re.compile("expert_bias|e_score_correction_bias")
_COUNTS = (torch.int32, torch.int64)
_PLAIN = (torch.Tensor, nn.Buffer)
_STATES_OF_RNG = (5056, 16)  # bytes: of the CPU's, of a GPU's
# Of torch.ao and torchao, for quantisation-aware training. By name: they are slow to import.
_OBSERVERS = {"ObserverBase", "FakeQuantizeBase"}
_RANGES = {"min_val", "max_val"}
_OF_OBSERVERS = {*_RANGES, "histogram", "scale", "zero_point"}


class Looks:
    """Earlier looks at one model: which of its buffers are other objects since, as those of
    `self.mean = 0.9 * self.mean + ...` are after every step. Of a model whose parameters are
    others, too, nothing is told: it was loaded."""

    _of: dict[int, "Looks"] = {}  # by the id of a model that is there

    def __init__(self, model):
        key = id(model)
        self._model = weakref.ref(model, lambda _: self._of.pop(key, None))
        self._parameters: list[Seen] = []
        self._buffers: dict[str, tuple] = {}  # by name: what was seen, its kind, how often anew

    @classmethod
    def at(cls, model) -> "Looks":
        """What is known of it. To be asked for once a look."""
        known = cls._of.get(id(model))
        if known is None or known._model() is not model:
            known = cls._of[id(model)] = cls(model)
        parameters = list(model.parameters())
        stayed = len(parameters) == len(known._parameters) and all(
            seen.is_of(each) for seen, each in zip(known._parameters, parameters, strict=True)
        )
        if not stayed:
            known._buffers.clear()
            known._parameters = list(map(Seen, parameters))
        return known

    def times_replaced(self, name: str, tensor) -> int:
        """How often another of the same kind has been found in the place of a buffer."""
        if type(tensor) not in _PLAIN or tensor.is_nested:  # lazy and nested ones have no shape
            return 0
        kind = (tensor.shape, tensor.dtype, tensor.device)
        before, kind_before, times = self._buffers.get(name, (None, None, 0))
        if before is None or not before.is_of(tensor):
            times = times + 1 if kind == kind_before else 0
            self._buffers[name] = (Seen(tensor), kind, times)
        return times


def why_it_drifts(module, name, tensor) -> str:
    """Whether a buffer may differ, as Holding.drifts says it."""
    if _has_seen_batches(module) or _OF_BATCHES in name or _is_observed(module, name):
        return "batches"
    return "own" if _is_own(module, name, tensor) else ""


def is_range(module, name) -> bool:
    """Whether it is a smallest or largest value so far, which is infinite before there was any."""
    return name in _RANGES and _is_observed(module, name)


def _is_observed(module, name) -> bool:
    """Whether a buffer is what an observer has seen of this rank's activations, or follows from
    it."""
    if name not in _OF_OBSERVERS:
        return False
    return any(cls.__name__ in _OBSERVERS for cls in type(module).__mro__)


def _has_seen_batches(module) -> bool:
    """Whether a module's buffers are statistics of batches that this rank has seen: those of a
    BatchNorm, which each rank takes of its own data unless it is a SyncBatchNorm."""
    if not isinstance(module, _NormBase) or isinstance(module, nn.SyncBatchNorm):
        return False
    if isinstance(module, _InstanceNorm):  # which does not count them
        return module.running_mean is not None and _is_rewritten(module.running_mean, 1)
    seen = module.num_batches_tracked
    return seen is not None and not seen.is_meta and int(seen) > 0


def _is_own(module, name, tensor) -> bool:
    """Whether a buffer is what each rank has of its own: a state of its random numbers, or rotary
    frequencies that were computed anew for the length of its batches."""
    if tensor.dtype == torch.uint8 and tensor.numel() in _STATES_OF_RNG and "rng" in name:
        return True
    is_dynamic = getattr(module, "rope_type", None) in ("dynamic", "longrope")
    return is_dynamic and name.endswith("inv_freq") and not name.startswith("original")


class BeforeSteps:
    """Tensors of a model as they were before it took steps."""

    def __init__(self):
        self._of: dict[str, tuple] = {}  # by name
        self._has_looked = False

    def look_at(self, held):
        self._has_looked = True
        if _has_version(held.owner):
            self._of[held.name] = (Seen(held.owner), held.owner._version)

    def is_other_since(self, held) -> bool:
        """Whether steps have put other values into a buffer that ranks may have each its own of:
        a cache of activations, say."""
        if not (self._has_looked and _has_version(held.owner) and _can_be_one(held.owner)):
            return False
        seen, version = self._of.get(held.name, (None, 0))  # it may be made by the first step
        is_other = not (seen and seen.is_of(held.owner)) or held.owner._version > version
        return is_other and not _is_of_all(held.home, held.name)


def _is_of_all(module, name) -> bool:
    """Those of a SyncBatchNorm and the biases that balance experts are made of what all ranks have
    seen."""
    return isinstance(module, nn.SyncBatchNorm) or bool(_BALANCES.search(name))


def may_be_one(module, name, tensor, persistent, replaced: int) -> bool:
    """Whether ranks may have come to other values of a buffer by batches of their own. replaced:
    how often another tensor took its place."""
    if _is_of_all(module, name):
        return False
    is_replaced = _can_be_one(tensor) and replaced >= (1 if persistent else 2)
    return is_replaced or _is_rewritten(tensor, 2 if persistent else 3)


def _is_rewritten(tensor, times=2) -> bool:
    """Whether a tensor was written in place, as a statistic is at every step and weights that are
    loaded once are not."""
    return _has_version(tensor) and _can_be_one(tensor) and tensor._version >= times


def _has_version(tensor) -> bool:
    return type(tensor) in _PLAIN and not tensor.is_inference()


def _can_be_one(tensor) -> bool:
    """Floats, or several counts, as of the tokens for each expert. A single integer is a number of
    steps or a place in a queue, and bytes are codes: these are the same on all ranks."""
    return tensor.is_floating_point() or (tensor.dtype in _COUNTS and tensor.numel() > 1)
