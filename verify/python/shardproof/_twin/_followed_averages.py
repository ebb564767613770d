"""Averages of the weights (exponential ones, best-so-far copies, references), followed by formula.

After a step an average is d times what it was and 1 - d times the weights, with one d for all, or
for all elements of a tensor: 1 where it was left as it was, 0 where it is a copy of the weights.
"""

import dataclasses
import os

import torch

from . import _values
from ._step_events import Part
from ._values import place_of

_ELEMENTS_MIN = 8


def hold_restored(stage, saved, restored):
    """Averages are what they were when they were saved. Each: of the ranks, by name."""
    if not any(restored):
        stage.why_not = "the job's averages were not observed at that stage"
        return
    for name in sorted({name for own in saved for name in own}):
        wrong = []
        for rank, (before, after) in enumerate(zip(saved, restored, strict=True)):
            if name not in before or name not in after:
                continue
            stage.compared += before[name].local.numel()
            same = torch.equal(before[name].local, after[name].local)
            stage.exact += before[name].local.numel() * same
            if not same:
                wrong.append(rank)
        if wrong:
            stage.deviates(
                "average", name, wrong, "its average differs from the one that was saved"
            )


def hold(stage, before, after, weights_before, weights):
    """Each: of the ranks, by name."""
    _hold_ranks(stage, after)
    if any(before) != any(after):
        where = "at the stage before" if any(after) else "here, and were at the stage before"
        stage.tell(f"averages are not judged: they were not observed {where}")
    if not any(before) or not any(after):
        return
    fit = _Fit(before, after, weights)
    misfits = fit.misfits(stage)
    if not misfits:
        return
    if own := fit.decay_of_each():
        low, high = min(own, key=own.get), max(own, key=own.get)
        stage.tell("averages are not held against each other: each has a decay of its own, "
                   f"from {own[low]:.6g} of {low} to {own[high]:.6g} of {high}")  # fmt: skip
        return
    cause = ""
    if not _Fit(before, after, weights_before).misfits():
        cause = "it was updated with the weights from before the step"
    names = sorted({name for _, name, *_ in misfits})
    first = next(each for each in sorted(misfits) if each[1] == names[0])
    _, name, place, expected, seen = first
    more = f"; so are those of {len(names) - 1} other parameters" if len(names) > 1 else ""
    stage.deviates(
        "average", name, {rank for rank, *_ in misfits},
        "its average is not a mean of its earlier value and the weights: "
        f"element {place} is {seen:.9g}, expected {expected:.9g} with the decay {fit.decay:.6g} "
        f"of the others{more}",
        cause, index=place, expected=f"{expected:.9g}", seen=f"{seen:.9g}",
    )  # fmt: skip


def of_frozen(before, after) -> list[str]:
    """Frozen parameters of the model that became means of what they were and of a trainable one,
    as those of a momentum encoder or a target network. Each: of the ranks, the model's parts by
    name."""
    moved = [
        name for name, part in after[0].items()
        if part.kind == "parameter" and not part.trainable and part.dtype.is_floating_point
        and any(name in was and not torch.equal(was[name].local, now[name].local)
                for was, now in zip(before, after, strict=True) if name in now)
    ]  # fmt: skip
    found = {}
    for name in moved:
        was, now = _whole(before, name), _whole(after, name)
        if was is None or now is None:
            continue
        if any(_is_mean(was, now, weight) for weight in _likely(before, after, name)):
            found[name] = now.local.numel()
    # Of a few elements a mean can be any value: they count beside others alone.
    return sorted(found) if max(found.values(), default=0) >= _ELEMENTS_MIN else []


def _whole(ranks, name) -> Part | None:
    """The tensor that their parts make up, if its copies are alike."""
    parts = [own[name] for own in ranks if name in own]
    full = _values.whole(parts) if parts else None
    if full is None or not _values.agree(parts, full):
        return None
    return dataclasses.replace(parts[0], local=_values.as_real(full).reshape(-1))


def _likely(before, after, name):
    """Yields trainable parameters of that shape, after a step and before it: first those whose name
    ends alike."""
    names = [
        other for other, part in after[0].items()
        if part.trainable and part.shape == after[0][name].shape
    ]  # fmt: skip
    names.sort(key=lambda other: -len(os.path.commonprefix([other[::-1], name[::-1]])))
    for other in names:
        yield from filter(None, (_whole(after, other), _whole(before, other)))


def _is_mean(was, now, weight) -> bool:
    fit = _Fit([{"": was}], [{"": now}], [{"": weight}])
    return fit.is_known and fit.decay < 1 and bool(weight.local.any()) and not fit.misfits()


def _hold_ranks(stage, averages):
    """Copies of an average are alike on all ranks."""
    for name in sorted({name for own in averages for name in own}):
        parts = [own[name] for own in averages if name in own]
        full = _values.whole(parts)
        stage.compared += 1
        alike = full is None or _values.agree(parts, full)
        stage.exact += alike
        if not alike:
            stage.deviates("average", name, range(len(averages)),
                           "its averages differ between ranks")  # fmt: skip


class _Fit:
    """One step of all averages of a job."""

    def __init__(self, before, after, weights):
        self._given = before, after, weights
        self._parts = [
            (rank, name, part, own[name].local.double(), weights[rank][name].local.double())
            for rank, (own, later) in enumerate(zip(before, after, strict=True))
            for name, part in sorted(later.items())
            if name in own and name in weights[rank]
            and own[name].local.numel() == part.local.numel() and part.dtype.is_floating_point
        ]  # fmt: skip
        over = sum(float(((a.local.double() - w) * (b - w)).sum()) for _, _, a, b, w in self._parts)
        self._under = sum(float((b - w).square().sum()) for _, _, _, b, w in self._parts)
        self.is_known = self._under > 0  # else weights and averages are the same
        self.decay = min(1.0, max(0.0, over / self._under)) if self._under else 1.0
        bounds = [_bound(a, b, w) for _, _, a, b, w in self._parts]
        off = sum(float(bound.square().sum()) for bound in bounds)
        self._slack = (off / self._under) ** 0.5 if self._under else 0.0
        self._bounds = bounds

    def decay_of_each(self) -> dict:
        """By name, if each tensor is such a mean with a decay of its own; else empty."""
        before, after, weights = self._given
        found = {}
        for name in sorted({name for own in after for name in own}):
            one = _Fit([{k: v for k, v in own.items() if k == name} for own in before], after,
                       weights)  # fmt: skip
            if one.misfits():
                return {}
            if one.is_known:
                found[name] = one.decay
        return found

    def misfits(self, stage=None) -> list[tuple]:
        """(rank, name, index, expected, seen)."""
        found = []
        for (rank, name, part, before, weight), bound in zip(
            self._parts, self._bounds, strict=True
        ):
            now = part.local.double()
            should = weight + self.decay * (before - weight)
            wrong = (now - should).abs() > bound + self._slack * (before - weight).abs()
            if stage is not None:
                stage.compared += now.numel()
                stage.exact += int((now == should.to(part.dtype).double()).sum())
            if bool(wrong.any()):
                at = int(wrong.nonzero()[0])
                index = place_of(part, at)
                found.append((rank, name, index, float(should[at]), float(now[at])))
        return found


def _bound(part, before, weight):
    unit = torch.finfo(part.dtype).eps / 2
    return 8 * unit * (part.local.double().abs() + before.abs() + weight.abs())
