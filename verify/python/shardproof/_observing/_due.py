"""Which elements of a parameter, or of an optimizer's state, a step must have changed.

Everything is told from what is there after the step, of a tensor of which it is known that no bit
changed: then what it was before is known too. Tensors are looked at a piece at a time.
"""

import dataclasses
import inspect
import math

import torch

_PIECE = 1 << 18  # elements
_ULPS = 4  # so many roundings an update may be lost in
_SLACK = 0.05  # of its terms: what an update of a narrow dtype may be off by
_VALUES_MIN = 8


@dataclasses.dataclass
class Due:
    """elements: how many had to change. first: the first, by its place in the rank's own part;
    value, change: what it is, and what it had to change by. values: how many different ones they
    have, of the first piece that has any."""

    elements: int = 0
    first: int = 0
    value: float = 0.0
    change: float = 0.0
    values: int = 0

    @property
    def is_bound(self) -> bool:
        """Whether a job may well have put them all back to a bound: clamped, masked or binary
        parameters have few values."""
        return self.values < _VALUES_MIN


@dataclasses.dataclass
class Given:
    """What a formula is told. state: by key, of the parameter's shape. counter: of steps. rate, and
    the other options of the group."""

    state: dict[str, torch.Tensor]
    grad: torch.Tensor | None
    counter: float | None
    rate: float
    options: dict


def formula_of(optimizer):
    """The function that says what a step of this optimizer adds up to; None if none is known.

    It takes a Given to the names of the tensors that it needs and a function from these to terms:
    their sum is what is taken off the parameter. Or to None, if something is missing.
    """
    step = inspect.unwrap(type(optimizer).step) if hasattr(type(optimizer), "step") else None
    return _FORMULAS.get(getattr(step, "__module__", None))


def is_of_torch(optimizer) -> bool:
    """Whether its step is one of torch's own."""
    step = inspect.unwrap(type(optimizer).step) if hasattr(type(optimizer), "step") else None
    return getattr(step, "__module__", "").startswith("torch.optim.")


@torch.no_grad()
def count(value: torch.Tensor, tensors: dict[str, torch.Tensor], terms_of) -> Due:
    """value: what did not change. terms_of: from pieces of it and of the tensors, flat and on the
    CPU, to the terms of its change."""
    due = Due()
    eps, tiny = torch.finfo(value.dtype).eps, torch.finfo(value.dtype).tiny
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    for offset, pieces in _pieces([value, *tensors.values()]):
        p, *rest = (piece.to(device="cpu", dtype=wide) for piece in pieces)
        terms = terms_of(p, dict(zip(tensors, rest, strict=True)))
        change = sum(terms[1:], terms[0])
        certain = change.abs() - _SLACK * sum(each.abs() for each in terms)
        must = (certain > _ULPS * (eps * p.abs() + tiny)) & change.isfinite() & p.isfinite()
        found = must.nonzero().view(-1)
        if not len(found):
            continue
        if not due.elements:
            at = int(found[0])
            due.first, due.value, due.change = offset + at, p[at].item(), change[at].item()
        if due.values < _VALUES_MIN:
            due.values = max(due.values, len(p[found].unique()))
        due.elements += len(found)
    return due


def _pieces(tensors):
    """Yields (offset, flat pieces) in row-major order, without a copy of more than a piece."""
    if all(each.is_contiguous() for each in tensors):
        flat = [each.reshape(-1) for each in tensors]
        for first in range(0, flat[0].numel(), _PIECE):
            yield first, [each[first : first + _PIECE] for each in flat]
        return
    if len({each.shape for each in tensors}) > 1:
        return  # one is flat, another is not, and neither lies in row-major order
    rows = tensors[0].shape[0]
    row = tensors[0].numel() // rows
    step = max(1, _PIECE // row)
    for first in range(0, rows, step):
        yield first * row, [each[first : first + step].reshape(-1) for each in tensors]


def _adam(given: Given):
    beta1, beta2 = (float(each) for each in given.options["betas"])
    second = "max_exp_avg_sq" if given.options.get("amsgrad") else "exp_avg_sq"
    if given.counter is None or not {"exp_avg", second} <= given.state.keys():
        return None
    decay = _decoupled(given.options) * given.rate
    size = given.rate / (1 - beta1**given.counter)
    root = math.sqrt(1 - beta2**given.counter)
    eps = given.options["eps"]

    def terms(p, of):
        return [size * of["exp_avg"] / (of[second].sqrt() / root + eps), decay * p]

    return ("exp_avg", second), terms


def _decoupled(options) -> float:
    """The weight decay that is taken off the parameter itself; another is in its gradient."""
    return options.get("weight_decay", 0) if options.get("decoupled_weight_decay") else 0.0


def _gradient(given: Given):
    """From (p, of) to what the gradient is made of as the step uses it: with weight decay."""
    sign = -1 if given.options.get("maximize") else 1
    decay = given.options.get("weight_decay", 0)
    return lambda p, of: [sign * of["grad"], decay * p]


def _sgd(given: Given):
    momentum = given.options.get("momentum", 0)
    if momentum and not given.options.get("nesterov"):
        if "momentum_buffer" not in given.state:
            return None
        return ("momentum_buffer",), lambda p, of: [given.rate * of["momentum_buffer"]]
    if given.grad is None:
        return None
    gradient = _gradient(given)
    if not momentum:
        return ("grad",), lambda p, of: [given.rate * each for each in gradient(p, of)]
    if "momentum_buffer" not in given.state:
        return None

    def terms(p, of):
        return [given.rate * each for each in [*gradient(p, of), momentum * of["momentum_buffer"]]]

    return ("grad", "momentum_buffer"), terms


def _rmsprop(given: Given):
    if given.options.get("momentum"):
        if "momentum_buffer" not in given.state:
            return None
        return ("momentum_buffer",), lambda p, of: [given.rate * of["momentum_buffer"]]
    if given.grad is None or given.options.get("centered") or "square_avg" not in given.state:
        return None
    gradient, eps = _gradient(given), given.options["eps"]

    def terms(p, of):
        factor = given.rate / (of["square_avg"].sqrt() + eps)
        return [factor * each for each in gradient(p, of)]

    return ("grad", "square_avg"), terms


def _adagrad(given: Given):
    if given.grad is None or given.counter is None or "sum" not in given.state:
        return None
    rate = given.rate / (1 + (given.counter - 1) * given.options.get("lr_decay", 0))
    gradient, eps = _gradient(given), given.options["eps"]

    def terms(p, of):
        return [rate / (of["sum"].sqrt() + eps) * each for each in gradient(p, of)]

    return ("grad", "sum"), terms


_FORMULAS = {
    "torch.optim.adam": _adam,
    "torch.optim.adamw": _adam,
    "torch.optim.sgd": _sgd,
    "torch.optim.rmsprop": _rmsprop,
    "torch.optim.adagrad": _adagrad,
}


def moments_of(given: Given) -> dict:
    """Of Adam, what a step with this gradient changes its moments by: by key a function as
    `count` takes it."""
    options = given.options
    if options.get("weight_decay") and not options.get("decoupled_weight_decay"):
        return {}  # it is in the gradient, and what the parameter was is not known
    beta1, beta2 = (float(each) for each in options["betas"])
    sign = -1 if options.get("maximize") else 1
    return {
        "exp_avg": lambda m, of: [(1 - beta1) * sign * of["grad"], (beta1 - 1) * m],
        "exp_avg_sq": lambda v, of: [(1 - beta2) * of["grad"].square(), (beta2 - 1) * v],
    }
