"""Holds an observation against the one before: what had to change by the steps between, and did
not. verify/decisions/0033 says what has to."""

import dataclasses
import math

import torch

from .._holdings import _optimizer
from .._holdings._steps import Steps, Window
from . import _due

_STEPS = ("stepped", "resumed")
_ANEW = ("ready", "restored", "loaded")  # after which nothing is what steps made of it


@dataclasses.dataclass
class _Base:
    """What was observed last, with an optimizer. Of each name (descriptor, digest)."""

    key: str
    step: int
    model: dict[str, tuple]
    state: dict[str, tuple]
    counters: dict[str, float]  # by parameter


@dataclasses.dataclass
class _Holder:
    """Who steps a parameter."""

    optimizer: object
    group: int
    parameter: object
    window: Window | None


class Moved:
    def __init__(self, writer, steps: Steps):
        self._writer, self._steps = writer, steps
        self._base: _Base | None = None
        self.unsure = ""  # why what did not change may be sound all the same

    def forget(self):
        """Something was loaded: what is observed next is held against nothing."""
        self._base = None

    def record(self, stage, step, read, state, optimizer) -> dict | None:
        """Within a stage of the optimizer, its tensors being on record. read: the model. state: of
        the optimizer. \\returns what to write, if there is anything to say."""
        base = self._base
        if base is None or stage not in _STEPS or step <= base.step:
            return None
        windows = [self._steps.since(each) for each in _optimizer.steppers_in(optimizer)]
        if not windows or None in windows:
            return None
        look = _Look(self._writer, base, read, state, self._holders(read, optimizer))
        found = look.at_all()
        return {
            "taken": max(window.taken for window in windows),
            "since": base.key,
            "held": look.held,
            **({"unsure": self.unsure} if self.unsure else {}),
            "still": found,
        }

    def looked_at(self, stage, step, state, optimizer):
        """After an observation. state: of the optimizer, None if it was not observed."""
        if optimizer is None:
            if stage in _ANEW:
                self._base = None
            return
        key = f"{stage}@{step}" if step else stage
        of_state = _known(self._writer.states("optimizer"))
        counters = {
            held.name.removesuffix(".step"): number
            for held in state
            if (number := _counter(held, self._writer.states("optimizer"))) is not None
        }
        self._base = _Base(key, step, _known(self._writer.states("model")), of_state, counters)
        self._steps.looked_at(_optimizer.steppers_in(optimizer))

    def _holders(self, read, optimizer) -> dict[str, _Holder]:
        """By name; a parameter that is held twice has none."""
        owners = _optimizer.parameters_by_owner(read.tensors)
        found: dict[str, _Holder | None] = {}
        for each in _optimizer.steppers_in(optimizer):
            window = self._steps.since(each)
            for number, group in enumerate(each.param_groups):
                for parameter in group["params"]:
                    if not _is_plain(parameter):
                        continue
                    holder = _Holder(each, number, parameter, window)
                    parts = read.flat.parts.get(id(parameter), [])
                    owned = owners.get(id(parameter)) or [part.own for part in parts]
                    for held in owned:
                        found[held.name] = None if held.name in found else holder
        return {name: holder for name, holder in found.items() if holder is not None}


class _Look:
    """At one observation. held: how many parameters were held against the one before."""

    def __init__(self, writer, base, read, state, holders):
        self._base, self._holders = base, holders
        self._model, self._now = writer.states("model"), writer.states("optimizer")
        self._read = read
        self._state = {held.name: held for held in state}
        self._keys: dict[str, list[str]] = {}  # of each parameter, the names of its state
        for name in self._now:
            self._keys.setdefault(name.rpartition(".")[0], []).append(name)
        self.held = 0

    def at_all(self) -> list[dict]:
        found, seen = [], set()
        for held in self._read.tensors:
            if held.kind != "parameter" or not held.requires_grad or id(held.owner) in seen:
                continue
            if held.local is None or not held.local.numel() or held.unreadable:
                continue
            if len(self._read.flat.parts) == 0:  # parts of a flat parameter have one owner
                seen.add(id(held.owner))
            is_same = self._is_same(self._base.model, self._model, held.name)
            holder = self._holders.get(held.name)
            if is_same is None:
                continue
            self.held += 1
            if holder is None or holder.window is None or not holder.window.taken:
                continue
            found += self._state_of(held, holder)
            if is_same and (said := self._parameter(held, holder)):
                found.append(said)
        return found + self._counters_of_all({each["name"] for each in found})

    def _is_same(self, before, now, name) -> bool | None:
        """Whether a tensor is what it was; None if it was, or is, not on record so."""
        was, record = before.get(name), now.get(name)
        if was is None or record is None or record["content"] != "defined":
            return None
        descriptor, digest = _known_of(record)
        return None if descriptor != was[0] else digest == was[1]

    def _parameter(self, held, holder) -> dict | None:
        """What there is to say of a parameter that did not change."""
        window, name = holder.window, held.name
        if holder.group >= len(window.rates):
            return None  # the group came after the last step
        rate = window.rates[holder.group]
        if rate == 0 or not self._was_stepped(name, window):
            return None
        if name not in self._keys and id(holder.parameter) not in window.grads:
            return None  # the last step had no gradient of it
        kind = type(holder.optimizer).__name__
        formula = _due.formula_of(holder.optimizer)
        if formula is None:
            return _undecided(name, f"how {kind} computes its step is not known")
        if rate is None:
            return _undecided(name, "its rate is a tensor on a device")
        if held.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            return _undecided(name, f"its dtype is {held.dtype}")
        state = self._tensors_of(held)
        grad = _part(window.grad_of(holder.parameter), held) if not window.scaled else None
        counter = self._counter(name)
        given = _due.Given(state, grad, counter, rate, window.options[holder.group])
        told = formula(given)
        if told is None:
            return _undecided(
                name, f"{kind} keeps nothing from which its step can be computed, and the gradient "
                "of that step is gone"
            )  # fmt: skip
        keys, terms = told
        every = {**state, "grad": grad}
        due = _due.count(held.local, {key: every[key] for key in keys}, terms)
        if not due.elements:
            return None
        if due.is_bound:
            return _undecided(
                name, f"the elements that {kind} should have changed have fewer than 8 different "
                "values, so that the job may clamp them"
            )  # fmt: skip
        if window.taken > 1 and not self._moment_moved(name):
            return _undecided(
                name, f"{window.taken} steps were taken, and nothing that {kind} keeps tells "
                "whether they cancelled each other out"
            )  # fmt: skip
        place = _global(held, due.first)
        what = f"the step of {kind} takes {due.change:.3g} off {due.value:.6g}"
        return {"name": name, "why": "due", "detail": what, "elements": due.elements,
                **({} if place is None else {"index": place})}  # fmt: skip

    def _was_stepped(self, name, window) -> bool:
        """Whether the optimizer's state says that a step came to this parameter."""
        counter = self._counter(name)
        if counter is not None:
            return 0 < counter - self._base.counters.get(name, 0) <= window.taken
        return name not in self._keys or self._moment_moved(name)

    def _moment_moved(self, name) -> bool:
        return any(
            self._base.state.get(key, ("", ""))[1] != _known_of(self._now[key])[1]
            for key in self._keys.get(name, [])
            if not key.endswith(".step")
        )

    def _counter(self, name) -> float | None:
        held = self._state.get(f"{name}.step")
        return None if held is None else _counter(held, self._now)

    def _tensors_of(self, held) -> dict[str, torch.Tensor]:
        """State that lies as the parameter does, by key."""
        named = [(key, self._state.get(key)) for key in self._keys.get(held.name, [])]
        return {
            key.rpartition(".")[2]: each.local
            for key, each in named
            if each is not None and each.local is not None and each.local.dim()
            and each.local.numel() == held.local.numel()
        }  # fmt: skip

    def _state_of(self, held, holder) -> list[dict]:
        """State that did not change although the step had a gradient."""
        window, name = holder.window, held.name
        if window.scaled or not _due.is_of_torch(holder.optimizer):
            return []
        grad = _part(window.grad_of(holder.parameter), held)
        before, counter = self._base.counters.get(name), self._counter(name)
        if grad is None or before is None or counter is None or not _is_sound(grad):
            return []
        if _stands_still(before, counter, window):
            return [_stuck(name, window.taken, "with a gradient")]
        formula = _due.formula_of(holder.optimizer)
        if window.taken != 1 or getattr(formula, "__name__", "") != "_adam":
            return []
        given = _due.Given({}, grad, counter, 0, window.options[holder.group])
        found = []
        for key, terms in _due.moments_of(given).items():
            moment = self._tensors_of(held).get(key)
            full = f"{name}.{key}"
            if moment is None or not self._is_same(self._base.state, self._now, full):
                continue
            due = _due.count(moment, {"grad": grad}, terms)
            if due.elements and not due.is_bound:
                found.append({"name": full, "why": "moment", "elements": due.elements,
                              "detail": "the step had a gradient that changes it"})  # fmt: skip
        return found

    def _counters_of_all(self, known) -> list[dict]:
        """Counters of an optimizer that changed parameters and counted none of its steps."""
        stuck: dict[int, list[dict]] = {}
        counted = set()
        for name, holder in self._holders.items():
            window, of = holder.window, id(holder.optimizer)
            if window is None or not window.given or window.scaled:
                continue  # without a gradient, something else has changed the parameters
            before, now = self._base.counters.get(name), self._counter(name)
            if now is None or not _due.is_of_torch(holder.optimizer):
                continue
            if before is None or not _stands_still(before, now, window):
                counted.add(of)
            elif self._is_same(self._base.model, self._model, name) is False:
                said = _stuck(name, window.taken, "that changed the parameter")
                stuck.setdefault(of, []).append(said)
        return [
            said
            for of, every in stuck.items()
            if of not in counted
            for said in every
            if said["name"] not in known
        ]


def _stands_still(before, now, window) -> bool:
    """Whether a counter did not count. That of a state that was made anew may have come again to
    where it was, in several steps."""
    return before == now and (window.taken == 1 or now > window.taken)


def _stuck(name, taken, how) -> dict:
    there = "there was a step" if taken == 1 else f"there were {taken} steps"
    return {"name": f"{name}.step", "why": "counter", "detail": f"{there} {how}"}


def _undecided(name, why) -> dict:
    return {"name": name, "why": "undecided", "detail": why}


def _is_plain(parameter) -> bool:
    """Whether its values are in memory of its own kind, and not put together from several."""
    return not hasattr(type(getattr(parameter, "_local_tensor", parameter)), "__tensor_flatten__")


def _known(states) -> dict[str, tuple]:
    return {
        name: _known_of(record) for name, record in states.items() if record["content"] == "defined"
    }


def _known_of(record) -> tuple:
    return record["tensor"], record.get("digest", "")


def _counter(held, states) -> float | None:
    """The value of a counter of steps, from what is on record of it."""
    record = states.get(held.name)
    if not held.name.endswith(".step") or record is None or held.local is None:
        return None
    if held.local.numel() != 1 or len(record.get("bytes", [])) != 1:
        return None
    data = bytearray.fromhex(record["bytes"][0]["hex"])
    return float(torch.frombuffer(data, dtype=held.dtype)[0])


def _part(grad, held):
    """This rank's part of a gradient, if it lies as the parameter does."""
    local = getattr(grad, "_local_tensor", grad)
    if local is None or local.layout != torch.strided or local.numel() != held.local.numel():
        return None
    return local.detach() if local.is_floating_point() else None


def _is_sound(grad) -> bool:
    """Whether it is finite and not all zeros."""
    high = float(torch.linalg.vector_norm(grad.detach(), torch.inf))
    return 0 < high < math.inf


def _global(held, local) -> int | None:
    """The place in the whole tensor of an element of this rank's part."""
    for run in held.runs:
        for number in range(run.count):
            at = local - run.local_start - number * run.local_stride
            if 0 <= at < run.length:
                return run.start + number * run.stride + at
    return None
