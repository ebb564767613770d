"""Holds the gradients that a subject stepped with against those that it should have had, and says
what else they are if they are not."""

import dataclasses
import math

import torch

from ._gradients import FACTOR, mean_of
from ._values import cut, place_of

_NAMED = 5
_MANY = 16  # elements whose errors together are measured well enough


@dataclasses.dataclass
class Misfit:
    rank: int
    name: str
    count: int
    place: int
    expected: float
    seen: float


def judged(stage, expected, earlier, parts, clips, left_out=False) -> list[dict]:
    """expected, earlier: Gradients of this step, and of the one before if there was one. parts: of
    each rank, by name, its part of the gradient that was seen, None if there was none, and where
    that lies. clips: of each rank, the Clips of this step. left_out: whether another optimizer left
    the step out, as a loss scaler does for gradients that are not finite. \\returns deviations."""
    fit = _Fit(expected, parts)
    deviations = fit.norms(clips)
    factors = fit.factors(clips)
    mean = expected.mean
    misfits = fit.misfits(mean, factors)
    stage.compared += fit.compared
    stage.exact += fit.exact
    if not misfits:
        return deviations + (fit.unlike_ranks(mean, factors) or fit.no_mean(stage, earlier))
    if not (misfits := fit.beyond_kinks(mean, factors, misfits)):
        stage.tell("gradients differ by no more than rounding the weights makes of them")
        return deviations
    if is_sound := fit.sound_otherwise(mean, left_out):
        stage.tell(is_sound)
        return deviations
    scaled, left = fit.mostly_scaled(mean)
    if left:
        misfits, factors = left, scaled
    cause = fit.cause(mean, earlier, factors)
    by_name = {}
    for misfit in misfits:
        by_name.setdefault(misfit.name, []).append(misfit)
    shown = list(by_name)[: 1 if cause else _NAMED]
    for name in shown:
        first = by_name[name][0]
        others = len(by_name) - len(shown)
        more = f"; so do those of {others} other parameters" if others and name == shown[-1] else ""
        e, s = f"{first.expected:.9g}", f"{first.seen:.9g}"
        seen = "there is none" if math.isnan(first.seen) else f"element {first.place} is {s}"
        deviations.append(
            {"kind": "gradient", "tensor": name, "index": first.place, "expected": e, "seen": s,
             "ranks": sorted({each.rank for each in by_name[name]}), "cause": cause,
             "differing": sum(each.count for each in by_name[name]),
             "what": f"its gradient differs from that of the batches of all ranks: {seen}, "
                     f"expected {e}{more}"}
        )  # fmt: skip
    return deviations


class _Fit:
    """Gradients of one step on all ranks."""

    def __init__(self, expected, parts):
        self._of, self._parts = expected, parts
        self.compared = self.exact = 0
        self._ranks = len(parts)
        self._shares = expected.shares or self._ranks
        self._bounds = {name: expected.bound(name) for name in expected.names()}
        self._far = {
            name: expected.far(name)
            for name, bound in self._bounds.items()
            if expected.is_narrow and bound.numel() >= _MANY
        }
        held = {name for own in parts for name, (grad, _) in own.items() if grad is not None}
        self._names = [name for name in expected.names() if name in held]
        self._slack = self._error()
        mean, exact = expected.mean, mean_of(expected.exact_of_rank)
        self._drift = max(self._drift_of(own, mean, exact) for own in parts)

    def _norm(self, values, names=None):
        every = [values[name].square().sum() for name in names or self._names if name in values]
        return math.sqrt(float(sum(every)))

    def _error(self, names=None) -> float:
        """How far off, of its size, a norm may be."""
        norm = self._norm(self._of.mean, names)
        return self._norm(self._bounds | self._far, names) / norm if norm else 0.0

    def _drift_of(self, own, mean, exact) -> float:
        """How far off, of its size, a factor may be that all of a rank's gradients have in common:
        rounding moves an element far more than it does all of them together. own: its parts."""
        names = [name for name in self._names if name in exact and name in own]
        pairs = [[cut(each[name], own[name][1]) for each in (exact, mean)] for name in names]
        measured = abs(_factor_of(pairs) - 1) if pairs else 0.0
        return max(1e-3, FACTOR * measured + (self._of.terms + 3) * self._of.half_ulp)

    # ---- Clipping

    def _clip_names(self, clips, index):
        """Those of other optimizers, which have steps of their own, among them."""
        several = [own[index].names for own in clips if index < len(own)]
        return [name for name in self._of.names() if any(name in each for each in several)]

    def _expected_norms(self, clips) -> list:
        """Of each call of clip_grad_norm_: (names, the norm over all ranks)."""
        found, mean = [], dict(self._of.mean)
        for index, clip in enumerate(clips[0]):
            names = self._clip_names(clips, index)
            flat = [mean[name].reshape(-1) for name in names]
            if not flat:
                found.append((names, 0.0))
                continue
            norm = float(torch.linalg.vector_norm(torch.cat(flat), clip.norm_type))
            found.append((names, norm))
            for name in names:
                mean[name] = mean[name] * _coefficient(clip, norm)
        return found

    def norms(self, clips) -> list[dict]:
        """The norm that clipping used is that over all ranks."""
        deviations = []
        for index, (names, norm) in enumerate(self._expected_norms(clips)):
            wrong = {}
            for rank, own in enumerate(clips):
                seen = own[index].norm if index < len(own) else None
                self.compared += seen is not None
                if seen is None or not math.isfinite(seen):
                    continue
                if abs(seen - norm) > 2 * (self._error(names) + 1e-6) * norm:
                    wrong[rank] = seen
            if wrong:
                first = min(wrong)
                deviations.append(
                    {"kind": "norm", "tensor": "", "ranks": sorted(wrong), "differing": 0,
                     "expected": f"{norm:.9g}", "seen": f"{wrong[first]:.9g}",
                     "what": f"gradients were clipped by the norm {wrong[first]:.9g}, and that of "
                             f"all ranks' gradients is {norm:.9g}",
                     "cause": self._norm_cause(wrong, norm, names)}
                )  # fmt: skip
        return deviations

    def _norm_cause(self, wrong, norm, names) -> str:
        local = {rank: self._norm(self._local_mean(rank), names) for rank in wrong}
        if all(abs(seen - local[rank]) <= 0.01 * local[rank] for rank, seen in wrong.items()):
            return "it is the norm of this rank's part alone"
        ratios = [seen / norm for seen in wrong.values() if norm]
        if ratios and all(abs(each - self._shares) < 0.01 * self._shares for each in ratios):
            return "it is that of gradients that were summed over ranks, not averaged"
        if ratios and all(abs(each * self._shares - 1) < 0.01 for each in ratios):
            return "it is that of gradients that were divided by the number of ranks twice"
        if ratios and all(each > 4 and math.log2(each) % 1 < 1e-3 for each in ratios):
            return "it is that of gradients that a loss scaler has not unscaled yet"
        return ""

    def _local_mean(self, rank) -> dict:
        mean = self._of.mean
        return {
            name: cut(mean[name], part)
            for name, (_, part) in self._parts[rank].items()
            if name in mean
        }

    def factors(self, clips) -> list[dict]:
        """Of each rank, by name, what clipping multiplied by."""
        found = [{} for _ in self._parts]
        for index, (names, norm) in enumerate(self._expected_norms(clips)):
            for rank, own in enumerate(clips):
                if index >= len(own):
                    continue
                used = norm if own[index].norm is None else own[index].norm
                for name in names:
                    factor = _coefficient(own[index], used)
                    found[rank][name] = found[rank].get(name, 1.0) * factor
        return found

    # ---- Comparing

    def misfits(self, values, factors=None, counts=True) -> list[Misfit]:
        """values: by name, whole; or of each rank, by name. factors: of each rank, by name."""
        found = []
        for rank, own in enumerate(self._parts):
            of_rank = values[rank] if isinstance(values, list) else values
            for name, (grad, part) in sorted(own.items()):
                if name not in of_rank:
                    continue
                factor = 1.0 if factors is None else factors[rank].get(name, 1.0)
                misfit = self._misfit(rank, name, grad, part, of_rank[name], factor, counts)
                if misfit:
                    found.append(misfit)
        return found

    def _misfit(self, rank, name, grad, part, value, factor, counts):
        should = cut(value, part) * factor
        bound = cut(self._bounds[name], part) * abs(factor)
        bound = bound + should.abs() * (self._slack * (factor != 1.0) + _unit(grad))
        bound = bound + torch.finfo(torch.float32).tiny
        now = torch.full_like(should, math.nan) if grad is None else grad.double()
        if counts:
            self.compared += now.numel()
            self.exact += int((now == should.float().double()).sum())
        wrong = ~((now - should).abs() <= bound) & should.isfinite()
        if grad is None:
            wrong &= should.abs() > 2 * bound  # none, where there is nothing, is as good as zeros
        if bool(wrong.any()):
            at, count = int(wrong.nonzero()[0]), int(wrong.sum())
        elif self._is_far(name, part, should, grad, factor):
            off = should.abs() if grad is None else (now - should).abs()
            at, count = int(off.argmax()), off.numel()
        else:
            return None
        return Misfit(rank, name, count, place_of(part, at), float(should[at]), float(now[at]))

    def _is_far(self, name, part, should, grad, factor) -> bool:
        """Whether all elements together are further off than rounding explains, if none is."""
        if name not in self._far or not bool(should.isfinite().all()):
            return False
        far = float(cut(self._far[name], part).norm()) * abs(factor)
        far += float(should.norm()) * (self._slack * (factor != 1.0) + _unit(grad))
        off = should if grad is None else grad.double() - should
        return float(off.norm()) > far + torch.finfo(torch.float32).tiny

    def beyond_kinks(self, mean, factors, misfits) -> list[Misfit]:
        """Those that are left if an element may be as far off as shifts of the weights make it."""
        most = self._of.shifted()
        for name in {each.name for each in misfits} & set(most):
            self._bounds[name] = self._bounds[name] + 2 * most[name]
            if name in self._far:
                self._far[name] = self._far[name] + 2 * most[name]
        return self.misfits(mean, factors, counts=False)

    def _fits(self, values, factors=None) -> bool:
        return not self.misfits(values, factors, counts=False)

    def _ratio(self, values, ranks, names) -> float | None:
        """By what factor the seen gradients are most like the values."""
        factor = _factor_of(
            (cut(values[name], part), grad.double())
            for rank in ranks
            for name, (grad, part) in self._parts[rank].items()
            if name in names and grad is not None and name in values
        )
        return factor if math.isfinite(factor) else None

    def _ratios(self, mean, factors=None) -> list:
        """Of each rank: by what factor all its gradients are most like those that it should have;
        None where it has too few to tell."""
        found = []
        norms = [self._norm(self._local_mean(rank)) for rank in range(self._ranks)]
        for rank, norm in enumerate(norms):
            should = mean if factors is None else {
                name: value * factors[rank].get(name, 1.0) for name, value in mean.items()
            }  # fmt: skip
            is_much = norm > 0.1 * max(norms)
            found.append(self._ratio(should, [rank], self._names) if is_much else None)
        return found

    def unlike_ranks(self, mean, factors) -> list[dict]:
        """Whether ranks have scaled their gradients by different factors where no element shows it,
        since those of a narrow dtype may be far off."""
        ratios = self._ratios(mean, factors)
        self.compared += len(ratios)
        if self._of.other or self._are_alike(ratios):
            return []
        return [{"kind": "gradient", "tensor": "", "ranks": list(range(self._ranks)),
                 "differing": 0, "expected": "one factor", "seen": _in_words(ratios),
                 "what": "the gradients that ranks have are those of the batches of all ranks, "
                         f"scaled by different factors: {_in_words(ratios)}",
                 "cause": ""}]  # fmt: skip

    def _are_alike(self, ratios) -> bool:
        known = [each for each in ratios if each is not None]
        return not known or max(known) - min(known) <= 2 * self._drift * max(map(abs, known))

    def _scaled(self, factor) -> list[dict]:
        return [dict.fromkeys(self._names, factor) for _ in self._parts]

    def no_mean(self, stage, earlier) -> list[dict]:
        """Of gradients that are those of the losses as the job weighs them: whether these make up
        the mean of its batches. Sums are meant, and what is less where data ends early."""
        number, share, ranks = self._of.number, self._of.share, self._shares
        if not number or abs(share - 1) <= 1e-3:
            return []
        targets, divisor = self._of.targets, number / self._of.weight
        what = f"a loss was multiplied by {share:.6g}"
        if targets:
            what = (f"the losses are sums over {targets} targets of all ranks, and were divided by "
                    f"{divisor:.6g} each, where {targets / ranks:.6g} ({targets} / {ranks} ranks) "
                    "makes their mean")  # fmt: skip
        elif number > 1:
            what = f"the losses of {number} batches were divided by {divisor:.6g} each"
        cause = ""
        if ranks > 1 and abs(share * ranks - 1) < 1e-3:
            cause = "they were divided by the number of ranks twice"
        elif ranks > 1 and abs(share - ranks) < 1e-3 and (targets or number == 1):
            cause = "they were summed over the ranks, not averaged"
        elif number > 1 and not targets and _is_whole(divisor) and round(divisor) > 1:
            cause = "that is no mean of them"
        if not cause or (earlier is not None and abs(earlier.share - 1) <= 1e-3):
            stage.tell(f"what its losses are multiplied by is taken as meant: {what}")
            return []
        return [{"kind": "gradient", "tensor": "", "ranks": list(range(self._ranks)),
                 "differing": 0, "expected": "1", "seen": f"{share:.6g}",
                 "what": f"gradients are not those of the mean over its batches: {what}",
                 "cause": cause}]  # fmt: skip

    # ---- What else they may be

    def sound_otherwise(self, mean, left_out) -> str:
        """What a job may well have done by hand; empty if nothing is known that fits."""
        if left_out and self._fits(mean, self._scaled(0.0)):
            return ("all its gradients are 0, as clipping by hand makes finite ones where "
                    "others are not; another optimizer left this step out")  # fmt: skip
        ranks = range(self._ranks)
        factor = self._ratio(mean, ranks, self._names)
        weight = self._of.weight
        if weight and abs(weight - 1) > 1e-3 and self._fits(mean, self._scaled(1 / weight)):
            return "its loss was scaled by hand, and therefore its gradients"
        is_divided = factor is not None and abs(factor * self._shares - 1) < 1e-3
        is_divided = is_divided and self._shares > 1
        is_one = factor is not None and self._are_alike(self._ratios(mean))
        if is_one and 0 < factor < 1 and not is_divided and self._fits(mean, self._scaled(factor)):
            self._of.scaled_to = factor, factor * self._norm(mean), self._slack
            return f"its gradients were scaled by {factor:.6g} alike, as clipping by hand does"
        seen = [grad for own in self._parts for grad, _ in own.values() if grad is not None]
        high = max((float(grad.abs().max()) for grad in seen if grad.numel()), default=0.0)
        if high and self._fits({name: value.clamp(-high, high) for name, value in mean.items()}):
            return f"its gradients were clipped to values of {high:.6g}"
        return ""

    def mostly_scaled(self, mean) -> tuple[list[dict], list[Misfit]]:
        """Where one factor below 1, as of clipping by hand, is that of more than half of what ranks
        have: it, as `factors` returns it, and what else is wrong. Empty if there is none."""
        each = [(rank, name) for rank, own in enumerate(self._parts) for name in own]
        ratios = [self._ratio(mean, [rank], [name]) for rank, name in each]
        ratios = sorted(ratio for ratio in ratios if ratio is not None)
        factor = ratios[len(ratios) // 2] if ratios else 1.0
        if not 0 < factor < 1 - 1e-3:
            return [], []
        left = self.misfits(mean, self._scaled(factor), counts=False)
        is_most = 2 * len({(misfit.rank, misfit.name) for misfit in left}) < len(each)
        return (self._scaled(factor), left) if is_most else ([], [])

    def cause(self, mean, earlier, factors) -> str:
        """The likely cause; empty if nothing that is known fits."""
        if self._of.other:
            return self._of.other + ": its forward pass differs"
        one, many = 1 / self._shares, self._shares
        known = [
            ("they were summed over the ranks, not averaged", _times(mean, many)),
            ("they were divided by the number of ranks twice", _times(mean, one)),
        ]
        for rank, own in enumerate(self._of.of_rank):
            known.append((f"they are those of the batch of rank {rank} alone", own))
        if many > 1:
            known.append(("each rank has the gradients of its own batch: they were not reduced",
                          self._of.of_rank))  # fmt: skip
        if earlier is not None:
            before = earlier.mean
            both = {name: mean[name] + before[name] for name in mean if name in before}
            known.append(("they are those of the step before", before))
            known.append(("the gradients of the step before were not zeroed", both))
        for number, part in enumerate(self._of.parts):
            if len(self._of.parts) > 1:
                rest = {name: mean[name] - part[name] for name in mean if name in part}
                which = f"batch {number + 1} of {len(self._of.parts)}"
                known += [(f"{which} is not in them", rest), (f"{which} alone is in them", part)]
        for what, values in known:
            if self._fits(values) or (any(factors) and self._fits(values, factors)):
                return what
        return self._local_factor(mean) or self._rounded(mean) or self._alike(mean)

    def _local_factor(self, mean) -> str:
        ratios = [self._ratio(mean, [rank], self._names) for rank in range(self._ranks)]
        if None in ratios or max(ratios) - min(ratios) <= 1e-3 * max(ratios):
            return ""
        if not self._fits(mean, [dict.fromkeys(self._names, each) for each in ratios]):
            return ""
        norms = [ratio * self._norm(self._local_mean(rank)) for rank, ratio in enumerate(ratios)]
        clipped = [norm for norm, ratio in zip(norms, ratios, strict=True) if ratio < 1 - 1e-3]
        if len(clipped) > 1 and max(clipped) - min(clipped) <= 0.01 * max(clipped):
            return "each rank clipped them by the norm of its own part"
        return f"ranks scaled them by different factors: {_in_words(ratios)}"

    def _rounded(self, mean) -> str:
        """Whether all that is wrong is what rounding to a narrow dtype makes."""
        if all(grad is None for own in self._parts for grad, _ in own.values()):
            return ""
        for dtype in (torch.bfloat16, torch.float16):
            if all(
                grad is None or torch.equal(grad.to(dtype).to(grad.dtype), grad)
                for own in self._parts
                for grad, _ in own.values()
            ) and self._is_near(mean, torch.finfo(dtype).eps):
                return f"they were rounded through {str(dtype).removeprefix('torch.')}"
        return ""

    def _is_near(self, mean, eps) -> bool:
        return all(
            bool(((grad.double() - cut(mean[name], part)).abs()
                  <= eps * cut(mean[name], part).abs() + cut(self._bounds[name], part)
                  + eps * 1e-3).all())
            for own in self._parts
            for name, (grad, part) in own.items()
            if grad is not None and name in mean
        )  # fmt: skip

    def _alike(self, mean) -> str:
        factor = self._ratio(mean, range(self._ranks), self._names)
        if factor and self._fits(mean, self._scaled(factor)):
            return f"they were scaled by {factor:.6g}"
        return ""


def _is_whole(value) -> bool:
    return abs(value - round(value)) < 1e-3


def _factor_of(pairs) -> float:
    """Of (should, seen): by what `should` must be multiplied to be most like `seen`. NaN if it is 0
    everywhere."""
    over = under = 0.0
    for should, seen in pairs:
        over += float((should * seen).sum())
        under += float(should.square().sum())
    return over / under if under else math.nan


def _in_words(ratios) -> str:
    return ", ".join("unknown" if each is None else f"{each:.6g}" for each in ratios)


def _times(values, factor) -> dict:
    return {name: value * factor for name, value in values.items()}


def _unit(grad) -> float:
    return 0.0 if grad is None else 2 * torch.finfo(grad.dtype).eps


def _coefficient(clip, norm) -> float:
    return min(1.0, clip.norm_max / (norm + 1e-6))


def cause_of(now, should, was) -> str:
    """Of elements that are not what the optimizer makes: what else they are."""
    if torch.equal(now, was):
        return "it is what it was before the step"
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(should.to(dtype).double(), now):
            return f"it was rounded through {str(dtype).removeprefix('torch.')}"
    ratios = ((now - should) / was)[was != 0]
    middle = float(ratios.median()) if len(ratios) > 1 else 0.0
    if middle and bool(((ratios - middle).abs() <= 0.02 * abs(middle)).all()):
        return f"it is multiplied by {1 + middle:.6g} besides, as weight decay does"
    return ""
