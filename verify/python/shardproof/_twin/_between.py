"""What the ranks of a subject have between two observed stages, as the twin has it: whole tensors,
which it steps, and what was observed after that."""

import dataclasses

import torch

from . import _one_step, _values
from ._causes import cause_of
from ._gradients import FACTOR
from ._step_events import Part


class Between:
    """Whole tensors as the twin has them, between two observed stages."""

    def __init__(self, before, after, followed):
        self._before, self._after = before, after
        self._off = {}  # by name and key: the most that rounding changes in the steps
        self._untold = set()  # names of which ranks have no common value
        self._with_gradient = set()
        names = dict.fromkeys(name for own in before for name in own.model)
        self._model = {
            name: value
            for name in names
            if (parts := [own.model[name] for own in before if name in own.model])
            and parts[0].kind == "parameter"
            and (value := self._whole(name, parts)) is not None
        }
        self._touched = {}  # by name: value after steps, state after them
        self.anew = set()  # numbers of optimizers that were made since
        for own, was in zip(after, before, strict=True):
            for number, stepper in enumerate(own.steppers):
                if number not in followed:
                    continue
                earlier = was.steppers[number].serial if number < len(was.steppers) else None
                if earlier not in (None, stepper.serial):
                    self.anew.add(number)
                for name in [name for _, names in stepper.groups for name in names]:
                    self._begin(name, has_state=number not in self.anew)

    def _whole(self, name, parts):
        """Where copies differ, which another property says, the steps of all cannot be told."""
        full = _values.whole(parts)
        if full is not None and not _values.agree(parts, full):
            self._untold.add(name)
        return full

    def _begin(self, name, has_state):
        """What no step touches is to be what it was."""
        if name in self._touched or (value := self._value_of(name)) is None:
            return
        if (state := self._state_of(name) if has_state else {}) is not None:
            self._touched[name] = (value, state)

    def met(self) -> dict:
        """The model's parameters as they are now."""
        current = {
            name: value.to(self._model[name].dtype)
            for name, (value, _) in self._touched.items()
            if name in self._model
        }
        return {**self._model, **current}

    def gradient_parts(self, peers) -> list[dict]:
        """Of each rank, by name: (its part of the gradient or None, where that lies)."""
        return [
            {
                name: (grad, _stepped(own, name))
                for name, grad in step.grads.items()
                if name in own.model
            }
            for step, own in zip(peers, self._after, strict=True)
        ]

    def take(self, number, peers):
        groups = self._groups(number, peers)
        names = [name for _, held in groups for name in held]
        values = {name: self._touched[name][0] for name in names if name in self._touched}
        grads = {name: self._grad_of(name, peers) for name in values}
        state = {name: self._touched[name][1] for name in values}
        stepper = self._after[0].steppers[number]
        own = peers[0].own
        for name, rows in peers[0].rows.items():
            if grads.get(name) is not None:
                grads[name] = _one_step.as_sparse(grads[name], rows)
        after, kept = _one_step.take(stepper.kind, groups, own, values, grads, state)
        wide, wide_kept = _one_step.take_wide(stepper.kind, groups, own, values, grads, state)
        for name in after:
            self._touched[name] = (after[name], kept[name])
            self._add_off((name, ""), after[name], wide.get(name))
            for key, value in kept[name].items():
                self._add_off((name, key), value, wide_kept.get(name, {}).get(key))

    def _add_off(self, where, value, wide):
        if isinstance(value, torch.Tensor) and isinstance(wide, torch.Tensor) and value.numel():
            value, wide = (_values.as_real(each.to(value.dtype)) for each in (value, wide))
            off = (value.double() - wide.double()).abs().max()
            self._off[where] = self._off.get(where, 0.0) + float(off.nan_to_num())

    def _groups(self, number, peers):
        """Those of all ranks, of which each may have some of the parameters."""
        found = []
        for index, options in enumerate(peers[0].options):
            names = dict.fromkeys(
                name
                for own in self._after
                if index < len(own.steppers[number].groups)
                for name in own.steppers[number].groups[index][1]
            )
            found.append((options, list(names)))
        return found

    def _value_of(self, name):
        copies = [own.copies[name] for own in self._before if name in own.copies]
        copied_later = any(name in own.copies for own in self._after)
        if copied_later and not copies:
            return None
        return _values.whole(copies) if copies else self._model.get(name)

    def _grad_of(self, name, peers):
        parts = [
            dataclasses.replace(_stepped(own, name), local=grad, dtype=grad.dtype)
            for step, own in zip(peers, self._after, strict=True)
            if (grad := step.grads.get(name)) is not None and name in own.model
        ]
        if parts:
            self._with_gradient.add(name)
        return self._whole(name, parts) if parts else None

    def _state_of(self, name):
        """None if the ranks' parts do not make up one."""
        found = {}
        states = [own.state.get(name, {}) for own in self._before if _has(own, name)]
        for key in dict.fromkeys(key for state in states for key in state):
            parts = [state[key] for state in states if key in state]
            value = parts[0]
            if isinstance(value, Part):
                value = self._whole_state(name, parts)
            if value is None and parts[0] is not None:
                return None
            found[key] = value
        return found

    def _whole_state(self, name, parts):
        """State of a part of a parameter that does not lie as that does is each rank's own."""
        own = self._before[0].model.get(name)
        is_own = own is not None and _values.is_cut(own) and len(parts[0].shape) > 0
        if is_own and parts[0].shape != own.shape and parts[0].local.numel() > 1:
            return None
        return self._whole(name, parts)

    def compare(self, stage):
        """Holds what was observed after the steps against what they are here."""
        for name, (value, state) in sorted(self._touched.items()):
            if name in self._untold:
                continue
            before = self._before_of(name)
            dtype = self._model[name].dtype if name in self._model else value.dtype
            self._compare_all(stage, name, "", value.to(dtype), before.get(""))
            if value.dtype != dtype:
                self._compare_all(stage, name, "main_param", value, before.get("main_param"))
            for key, expected in state.items():
                self._compare_all(stage, name, key, expected, before.get(key))

    def _before_of(self, name) -> dict:
        found = {"": self._model.get(name), **(self._state_of(name) or {})}
        copies = [own.copies[name] for own in self._before if name in own.copies]
        if copies:
            found["main_param"] = _values.whole(copies)
        return found

    def _seen(self, own, name, key):
        if key == "":
            return own.model.get(name)
        if key == "main_param":
            return own.copies.get(name)
        return own.state.get(name, {}).get(key)

    def _compare_all(self, stage, name, key, expected, before):
        """On each rank that has it."""
        found = {}
        for rank, own in enumerate(self._after):
            seen = self._seen(own, name, key) if _has(own, name) else None
            off = FACTOR * self._off.get((name, "" if key == "main_param" else key), 0.0)
            said = {} if seen is None else _difference(stage, seen, expected, before, off)
            if said:
                found[rank] = said
        if not found:
            return
        first = found[min(found)]
        first["differing"] = sum(said.get("differing", 0) for said in found.values())
        if name not in self._with_gradient and not first.get("cause"):
            first["cause"] = "it had no gradient in any step"
        full = f"{name}.{key}" if key else name
        stage.deviates("differs", full, found, **first)


def _stepped(own, name) -> Part:
    """What of a parameter, or of its copy, a rank steps."""
    return own.copies.get(name, own.model[name])


def _has(own, name) -> bool:
    """Whether a rank has any element of a parameter: else it takes no step of it."""
    return name not in own.model or own.model[name].local.numel() > 0


def _difference(stage, seen, expected, before, off) -> dict:
    """What to say of a rank's part, or of a value; empty if it is as it should be. off: how far it
    may be from that."""
    if not isinstance(seen, Part):
        stage.compared += 1
        stage.exact += seen == expected
        if isinstance(expected, torch.Tensor) or seen == expected:
            return {}
        return {"expected": str(expected), "seen": str(seen),
                "what": f"is {seen}, and {expected} after the steps of the plain twin"}  # fmt: skip
    if not isinstance(expected, torch.Tensor) or _values.as_real(expected).shape != seen.shape:
        return {}
    should = _values.cut(expected.detach(), seen).double()
    was = torch.zeros_like(should)
    if isinstance(before, torch.Tensor):
        was = _values.cut(before.detach(), seen).double()
    now = seen.local.double()
    stage.compared += now.numel()
    stage.exact += int((now == should).sum())
    wrong = now != should
    if seen.dtype.is_floating_point:
        unit = torch.finfo(seen.dtype).eps / 2
        bound = 8 * unit * (was.abs() + should.abs()) + off + torch.finfo(seen.dtype).tiny
        wrong &= ~((now - should).abs() <= bound) & ~(now.isnan() & should.isnan())
    count = int(wrong.sum())
    if not count:
        return {}
    at = int(wrong.nonzero()[0])
    place = _values.place_of(seen, at)
    e, s = should[at].item(), now[at].item()
    return {"index": place, "differing": count, "expected": f"{e:.9g}", "seen": f"{s:.9g}",
            "what": f"element {place} is {s:.9g}, and the optimizer of the plain twin makes "
                    f"{e:.9g} of what was there and of the gradients that were observed",
            "cause": cause_of(now[wrong], should[wrong], was[wrong])}  # fmt: skip
