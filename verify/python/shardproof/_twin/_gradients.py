"""The gradients that a plain, unsharded model has of the batches of all ranks, and how far those of
another order of summation may be from them."""

import copy
import dataclasses
import functools
from collections.abc import Callable

import torch

from .._holdings import _model
from . import _modes, _values
from ._step_events import Batch

FACTOR = 16  # by how much another order may round more than the one that is measured
SHIFTS = 8  # how many times parameters are shifted by what rounding makes of them


@dataclasses.dataclass
class Gradients:
    """Of one step. of_rank: of each rank's batches, by name, F64. parts: of each batch, those of
    all ranks together. sizes: sums over ranks of their absolute values. off: by name, the most that
    rounding changes in the mean over ranks. terms: how many are added up of each element. weight:
    the sum of what backward began with, on a rank. half_ulp: of 1, in the narrowest dtype. other:
    why the subject's forward is not the twin's, or empty; drawn: whether it drew other random
    numbers. shares: how many ranks have batches of their own; 0 for all. number: how many batches
    each rank has, if all weigh the same; else 0. targets: of how many all losses of that step are
    sums; 0 for means. shifted: by name, how far each element of the mean
    moves when parameters are shifted by what rounding makes of them: at a kink, as that of ReLU,
    all at once. scaled_to: by what factor a job has scaled all of them by itself, their norm
    after that, and how far off, of its size, that may be; if it has. exact_of_rank: as
    of_rank, computed in F64."""

    of_rank: list[dict]
    parts: list[dict]
    off: dict
    terms: int
    weight: float
    half_ulp: float
    other: str = ""
    drawn: bool = False
    shares: int = 0
    number: int = 0
    targets: int = 0
    shifted: Callable[[], dict] = dict
    scaled_to: tuple[float, float, float] | None = None
    exact_of_rank: list[dict] = dataclasses.field(default_factory=list)

    @property
    def share(self) -> float:
        """What the losses of a rank were multiplied by in all: 1 for a mean, of batches, or of all
        targets where losses are sums over these."""
        if self.targets and self.number:
            return self.weight / self.number * self.targets / (self.shares or len(self.of_rank))
        return self.weight

    @property
    def mean(self) -> dict:
        return mean_of(self.of_rank)

    def names(self):
        return list(dict.fromkeys(name for each in self.of_rank for name in each))

    def bound(self, name):
        """How far from the mean the elements of a gradient may be that was computed soundly."""
        return self.off[name] + self.of_reduction(name)

    def far(self, name):
        """Of each element of the mean, what all of them together may be off by: the root of the sum
        of squares over elements. Narrow dtypes alone, whose elements may each be far off."""
        measured = sum(
            (total[name] - exact[name]).abs()
            for total, exact in zip(self.of_rank, self.exact_of_rank, strict=True)
            if name in total and name in exact
        ) / len(self.of_rank)  # fmt: skip
        usual = measured.square().mean().sqrt()  # where an element is off by little, by chance
        return FACTOR / 2 * torch.hypot(measured, usual) + self.of_reduction(name)

    def of_reduction(self, name):
        """How far apart two orders of adding elements up over ranks may be."""
        size = sum(each[name].abs() for each in self.of_rank if name in each) / len(self.of_rank)
        return (self.terms + 3) * self.half_ulp * size

    @property
    def is_narrow(self) -> bool:
        return bool(self.exact_of_rank) and self.half_ulp > _half_ulp(torch.float32)


def mean_of(of_rank) -> dict:
    names = dict.fromkeys(name for own in of_rank for name in own)
    return {name: sum(own[name] for own in of_rank if name in own) / len(of_rank) for name in names}


class PlainModel:
    """A model whose tensors are set anew for each batch. case: of the twin."""

    def __init__(self, model, case):
        self._case = case
        self._kinds: dict[tuple, torch.nn.Module] = {}
        self.evaluating = _modes.evaluating(model) if model.training else []
        self._model = model

    def gradients(self, batches, same, buffers, scale, narrow) -> Gradients:
        """batches: of each rank, its Batches, each with values: the parameters that it met, by
        name. same: of each rank the first that has its batches. buffers: of each rank. scale: of a
        GradScaler. narrow: dtypes of what was reduced."""
        of_rank, wide_of_rank, parts, half_ulps = [], [], [], [_half_ulp(torch.float32)]
        other, drawn = "", False
        for rank, own in enumerate(batches):
            if same[rank] != rank:
                of_rank.append(of_rank[same[rank]])
                wide_of_rank.append(wide_of_rank[same[rank]])
                continue
            total, wide_total = {}, {}
            share = same.count(rank) / len(batches)  # of all ranks that have these
            for number, (batch, met) in enumerate(own):
                exact, true = self._of_batch(batch, met, buffers[rank], scale, wide=True)
                grads, loss = self._of_batch(batch, met, buffers[rank], scale, wide=False)
                drawn = drawn or not torch.equal(torch.get_rng_state(), batch.rng_after)
                other = other or _other_loss(rank, batch, loss, true)
                _add(total, grads)
                _add(wide_total, exact)
                if number == len(parts):
                    parts.append({})
                _add(parts[number], grads, share)
                half_ulps += [_half_ulp(each) for each in _dtypes_of(batch)]
            of_rank.append(total)
            wide_of_rank.append(wide_total)
        half_ulps += [_half_ulp(each) for each in narrow]
        off = _measured(of_rank, wide_of_rank)
        weights = [sum(batch.weight / scale for batch, _ in own) for own in batches]
        terms = len(batches) * max(len(own) for own in batches)
        shifted = functools.partial(
            self._shifted, of_rank, batches, same, buffers, scale, 2 * max(half_ulps)
        )
        return Gradients(
            of_rank, parts, off, terms, max(weights), max(half_ulps), other, drawn,
            shares=len(set(same)), number=_number(batches), shifted=shifted,
            targets=_targets([own for rank, own in enumerate(batches) if same[rank] == rank]),
            exact_of_rank=wide_of_rank,
        )  # fmt: skip

    def _shifted(self, of_rank, batches, same, buffers, scale, unit) -> dict:
        most, generator = {}, torch.Generator().manual_seed(0)
        for _ in range(SHIFTS):
            moved = {}
            for rank, own in enumerate(batches):
                for batch, met in own if same[rank] == rank else []:
                    near = {name: _near(value, unit, generator) for name, value in met.items()}
                    grads, _ = self._of_batch(batch, near, buffers[rank], scale, wide=False)
                    _add(moved, grads, same.count(rank) / len(batches))
            for name, value in moved.items():
                mean = sum(own[name] for own in of_rank if name in own) / len(of_rank)
                most[name] = torch.maximum(most.get(name, 0 * mean), (value - mean).abs())
        return most

    def _of_batch(self, batch: Batch, met, buffers, scale, wide) -> tuple[dict, float]:
        """{name: F64}, and the loss. wide: computed in F64."""
        model = self._set(batch, met, buffers, wide)
        case = dataclasses.replace(self._case, **batch.case)
        torch.set_rng_state(batch.rng)
        autocast = batch.autocast if not wide else None
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            loss = case.plain_loss(model, batch.step)
        loss.backward(torch.full_like(loss, batch.weight / scale))
        found = {}
        for held in _model.tensors_of(model):
            if held.kind == "parameter" and held.owner.grad is not None:
                grad = held.owner.grad.detach()
                dense = grad if grad.layout == torch.strided else grad.to_dense()
                found.setdefault(held.name, _values.as_real(dense).double())
        return found, float(loss.detach())

    def _set(self, batch, met, buffers, wide):
        key = (wide, tuple(sorted(batch.dtypes.items(), key=str)))
        if key not in self._kinds:
            self._kinds[key] = copy.deepcopy(self._model)
            if wide:
                self._kinds[key].register_forward_pre_hook(_widened, with_kwargs=True)
        model = self._kinds[key]
        _modes.put(model, batch.trains, batch.modes)
        model.zero_grad(set_to_none=True)
        for held in _model.tensors_of(model):
            tensor = held.owner
            given = met.get(held.name) if held.kind == "parameter" else buffers.get(held.name)
            value = tensor.detach() if given is None else given
            if not value.is_floating_point() and not value.is_complex():
                if given is not None:
                    tensor.data = value.clone()
                continue
            rounded = value.to(batch.dtypes.get(held.name, value.dtype))
            tensor.data = (_values.wide(rounded) if wide else rounded).clone()
            if held.kind == "parameter":
                tensor.requires_grad_(True)
        return model


def _widened(module, arguments, named):
    """Inputs of a model in F64, such as images."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda each: each.double() if each.is_floating_point() else each,
        (arguments, named),
    )  # fmt: skip


def _near(value, unit, generator):
    """Values that differ by `unit` of their size at most."""
    if not value.is_floating_point() and not value.is_complex():
        return value
    drawn = torch.rand(value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (_values.wide(value) * (1 + unit * drawn)).to(value.dtype)


def _number(batches) -> int:
    weights = [batch.weight for own in batches for batch, _ in own]
    is_even = max(weights) - min(weights) <= 1e-6 * max(map(abs, weights))
    counts = {len(own) for own in batches}
    return counts.pop() if is_even and len(counts) == 1 else 0


def _targets(batches) -> int:
    counts = [batch.summed for own in batches for batch, _ in own]
    return sum(counts) if all(counts) else 0


def _measured(of_rank, wide_of_rank) -> dict:
    """By name: how far the mean over ranks may be off."""
    off = {}
    for name in dict.fromkeys(name for each in of_rank for name in each):
        measured = [
            (total[name] - exact[name]).abs().max()
            for total, exact in zip(of_rank, wide_of_rank, strict=True)
            if name in total and name in exact and total[name].numel()
        ]
        off[name] = FACTOR * float(sum(measured)) / len(of_rank)
    return off


def _other_loss(rank, batch, loss, exact) -> str:
    """Whether a loss is another one than rounding explains."""
    unit = max(_half_ulp(each) for each in [torch.float32, *_dtypes_of(batch)])
    if abs(batch.loss - loss) <= FACTOR * abs(loss - exact) + FACTOR * unit * abs(loss):
        return ""
    return f"the loss of rank {rank} is {batch.loss:.7g}, and {loss:.7g} in the plain twin"


def _dtypes_of(batch):
    return {each for each in [*batch.dtypes.values(), batch.autocast] if each is not None}


def _half_ulp(dtype) -> float:
    is_number = dtype.is_floating_point or dtype.is_complex
    return torch.finfo(dtype).eps / 2 if is_number else 0.0


def _add(total, grads, factor=1.0):
    for name, grad in grads.items():
        total[name] = total[name] + factor * grad if name in total else factor * grad
