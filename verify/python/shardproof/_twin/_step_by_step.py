"""The plain twin takes the steps of a subject: from what was observed at one stage, in one process,
what must be observed at the next.

Every stage begins from what was observed before it, so that no error adds up over steps. First the
gradients with which the subject stepped are held against those of the batches of all ranks; then
what the optimizer makes of them against what was observed.
"""

import dataclasses
import math

from .._observing._evidence import root_cause
from . import (
    _batches,
    _clips,
    _followed_averages,
    _modes,
    _one_step,
    _precision,
    _schedule,
    _talks,
    _twin,
    _values,
    _whole_job,
)
from ._between import Between
from ._causes import judged
from ._gradients import PlainModel
from ._stage import Stage
from ._step_events import END, Again, Batch, Clip, OwnTerms, Reduced, Scaled, Step, Zeroed
from ._whole_job import is_scaled

_AFTER = ("stepped", "resumed")


def run(case, subject, writer, folder):
    """Writes a record for each stage that follows steps."""
    try:
        moments = _values.moments_in(folder)
    except _values.Uneven as why:
        writer.twin_step(**Stage("stepped@1", f"is not judged: {why}").record())
        return
    model, why_not, schedule = None, "", None
    try:
        plain = _twin.built(case, subject)
        model = PlainModel(plain.model, case)
        schedule = _schedule.of(plain, max((each[0].step for each in moments), default=0))
    except _twin.CannotBuild as error:
        why_not = f"gradients are not judged: {error}"
    cannot = getattr(subject, "CANNOT", {})
    if "gradients" in cannot:
        why_not = f"gradients are not judged: {cannot['gradients']}"
    job = _Job(model, why_not, schedule, cannot.get("updates", ""))
    job.computes = _precision.said_by(subject, case)
    job.reduces = getattr(subject, "REDUCES", "")
    unseen = moments.pop()[0].since if moments and moments[-1][0].stage == END else []
    moments = _with_averages(moments)
    saved, scalers, sums = {}, {}, {}  # averages, loss scalers, gradients, of each step
    for before, after in zip([None, *moments], moments, strict=False):
        stage = None
        if before and after[0].stage in _AFTER and after[0].step > before[0].step:
            stage = job.hold(before, after)
        else:
            job.begin_anew()
        if after[0].stage == "restored" and any(saved.get(after[0].step, [])):
            stage = Stage(f"restored@{after[0].step}")
            _followed_averages.hold_restored(stage, saved[after[0].step], _averages(after))
        saved.setdefault(after[0].step, _averages(after))
        if stage is not None:
            _whole_job.hold_scaler(stage, scalers, after)
            _whole_job.hold_order(stage, sums, after, job.earlier)
            writer.twin_step(**stage.record())
    for stage in filter(None, (_whole_job.never_stepped(moments), _whole_job.idle(moments))):
        writer.twin_step(**stage.record())
    if unseen:
        stage = Stage(f"{moments[-1][0].stage}@{moments[-1][0].step}")
        what = "steps were taken after the last observation, which shows none"
        stage.why_not = f"{what}: {len(unseen)}"
        writer.twin_step(**stage.record())


def _with_averages(moments):
    """Averages that were observed by themselves belong to the stage before them."""
    found = []
    for several in moments:
        if several[0].model:
            found.append(several)
        elif found:
            for into, own in zip(found[-1], several, strict=True):
                into.averages.update(own.averages)
    return found


def _averages(moments) -> list[dict]:
    return [own.averages for own in moments]


@dataclasses.dataclass
class _Pending:
    """Of a rank: what came since gradients were zeroed, each with the parameters that it met; and
    from where on each optimizer has not used it yet."""

    events: list = dataclasses.field(default_factory=list)
    begun: dict = dataclasses.field(default_factory=dict)
    scale: float = 1.0
    # Optimizers whose gradients of the last batch were zeroed, and no step has used them.
    given_up: set = dataclasses.field(default_factory=set)

    def take(self, number):
        """What a step of that optimizer uses."""
        first = self.begun.get(number, 0)
        self.begun[number] = len(self.events)
        return self.events[first:]

    def zeroed(self, number, every):
        """The gradients of an optimizer, -1: of each. every: numbers of those that step."""
        for own in every if number == -1 else [number]:
            unused = self.events[self.begun.get(own, 0) :]
            batches = [each for each, _ in unused if isinstance(each, Batch) and each.weight]
            if any(math.isfinite(each.loss) for each in batches):
                self.given_up.add(own)
            self.begun[own] = len(self.events)
        if all(self.begun.get(own) == len(self.events) for own in every):
            self.events, self.begun = [], {}


class _Job:
    """why_not: why gradients are not judged. updates_by: what else changes parameters than the
    optimizer; "" if nothing does."""

    def __init__(self, model, why_not, schedule=None, updates_by=""):
        self._model, self._why_not, self._schedule = model, why_not, schedule
        self._updates_by = updates_by
        self.computes, self.reduces = {}, ""  # see _precision
        self._scaled_to = {}  # by optimizer: of its steps, see Gradients
        self._scaled_in = None  # the last stage of which one is
        self._has_batches = False
        self._modes = set()  # of the losses of steps so far: whether the model was training
        self._followed = set()  # numbers of optimizers that were seen to step
        self.begin_anew()

    def begin_anew(self):
        """What comes does not go on from the stage before."""
        self.earlier = None  # the gradients of the step before
        self._pending = {}  # of each rank
        self._taken = {}  # by optimizer: the batches of its steps

    def hold(self, before, after) -> Stage:
        """What was observed after steps against what was before them; of each rank."""
        stage = Stage(f"{after[0].stage}@{after[0].step}", self._why_not)
        seen = {each.number for own in after for each in own.since if isinstance(each, Step)}
        self._followed |= seen - {-1}
        self._passes(stage, after)
        self._mode(stage, after)
        _precision.hold(stage, self.computes, after)
        if self.reduces:
            _precision.hold_reduced(stage, self.reduces, after)
        if before[0].step and not before[0].steppers:
            stage.tell("is not judged: the optimizer was not observed before this stage")
            return stage
        if not self._followed:
            stage.tell(f"is not judged: {_why_not_followed(after, seen)}")
            return stage
        now = Between(before, after, self._followed)
        if now.anew:
            stage.tell("its optimizer was made anew, and began without state")
        steps = [[each for each in own.since if isinstance(each, Step) and each.number >= 0]
                 for own in after]  # fmt: skip
        if len({tuple(each.number for each in own) for own in steps}) > 1:
            counts = [len(own) for own in steps]
            stage.deviates("steps", "", range(len(after)), f"ranks took {counts} optimizer steps")
            return stage
        self._count(stage, before, after, steps[0])
        if any(each.evaluates for each in steps[0]):
            stage.tell("is not judged: its optimizer computes losses within its step")
            return stage
        events = [list(own.since) for own in after]
        left_out = is_scaled(after) and bool(self._followed - {each.number for each in steps[0]})
        for number, step in enumerate(steps[0]):
            for rank, own in enumerate(events):
                self._go_to_step(rank, own, now.met())
            peers = [own[number] for own in steps]
            self._gradients(stage, now, before, peers, left_out)
            if self._schedule and len(steps[0]) == after[0].step - before[0].step:
                _schedule.hold(stage, self._schedule, before[0].step + number, peers, after)
            try:
                now.take(step.number, peers)
            except _one_step.CannotStep as why:
                stage.tell(f"what the optimizer makes is not judged: {why}")
                self._scales(stage)
                return stage
        self._scales(stage)
        for rank, own in enumerate(events):
            self._go_to_step(rank, own, now.met())
        if self._updates_by:
            stage.tell(f"what the optimizer makes is not judged: {self._updates_by}")
        else:
            now.compare(stage)
        if len(steps[0]) <= len(after[0].steppers):
            weights = [[own.model for own in each] for each in (before, after)]
            _followed_averages.hold(stage, _averages(before), _averages(after), *weights)
            stage.averages = _followed_averages.of_frozen(*weights)
        elif any(_averages(after)):
            stage.tell("averages are not judged: the weights between these steps were not observed")
        return stage

    def _count(self, stage, before, after, steps):
        since, shown = before[0].stage, after[0].step - before[0].step
        taken = [each.number for each in steps]
        most = max((taken.count(number) for number in self._followed), default=0)
        if most < shown and self._explains(after):
            what = f"steps shown since `{since}`: {shown}; steps taken: {most}"
            batches = max(_count_batches(own) for own in after)
            # A job may leave a step out, for a loss that is not finite: there is a batch of it.
            is_from_step = before[0].step or since == "ready"
            if is_from_step and 0 < batches < shown:
                what += f", of batches: {batches}"
                stage.deviates("steps", "", range(len(after)), what)
            else:
                stage.why_not = what
        for number, stepper in enumerate(after[0].steppers):
            count = taken.count(number)
            stage.compared += 1
            stage.exact += count <= shown
            if count > shown:
                stage.deviates(
                    "steps", "", range(len(after)), f"{stepper.kind.__name__} took {count} steps "
                    f"since `{since}`, and {shown} are shown", "one step too many",
                )  # fmt: skip

    def _passes(self, stage, after):
        """A sampler that shuffles has another order each time."""
        found = {rank: each for rank, own in enumerate(after) for each in own.since
                 if isinstance(each, Again)}  # fmt: skip
        if found:
            first = found[min(found)]
            what = f"{first.sampler} has gone through its data twice in the order of epoch"
            cause = "set_epoch was not called between"
            stage.deviates("batch", "", found, f"{what} {first.epoch}", cause)

    def _mode(self, stage, after):
        """Ranks compute their losses in one mode, training or not."""
        batches = [[each for each in own.since if isinstance(each, Batch) and each.weight]
                   for own in after]  # fmt: skip
        self._modules(stage, batches)
        modes = [{each.trains for each in own} for own in batches]
        shown = [each for each in modes if each]
        if not shown:
            return
        stage.compared += len(shown) - 1
        usual = max(shown, key=shown.count)
        unlike = [rank for rank, each in enumerate(modes) if each and each != usual]
        stage.exact += len(shown) - 1 - len(unlike)
        if unlike:
            is_on = "in training mode" if usual == {True} else "not all in training mode"
            stage.deviates("mode", "", unlike, "the model is in another mode in the step's losses "
                           f"than on other ranks, where they are {is_on}")  # fmt: skip
        elif self._modes and usual != self._modes:
            now = "training" if usual == {True} else "evaluation"
            stage.tell(f"has its losses in {now} mode, unlike the steps before: eval() or train() "
                       "may be missing")  # fmt: skip
        self._modes |= usual

    def _modules(self, stage, batches):
        """What plain(case) puts in evaluation mode is not training in losses. batches: of each
        rank."""
        evaluating = self._model.evaluating if self._model else []
        found = {rank: name for rank, own in enumerate(batches) for each in own
                 if (name := _modes.trained(each, evaluating))}  # fmt: skip
        stage.compared += len(evaluating)
        if found:
            stage.deviates(
                "mode", "", found, f"{found[min(found)]} is in training mode in the step's losses, "
                "and in evaluation mode in plain(case)", "eval() is missing, or undone by train()",
            )  # fmt: skip

    def _explains(self, after) -> bool:
        """Whether every step that is shown was seen: none was of an optimizer that is not torch's,
        and none was left out for gradients that are not finite."""
        return not is_scaled(after) and self._followed >= set(range(len(after[0].steppers)))

    def _go_to_step(self, rank, events, met):
        """Takes off a rank's events what came until its next step."""
        pending = self._pending.setdefault(rank, _Pending())
        while events:
            event = events.pop(0)
            if isinstance(event, Step) and event.number >= 0:
                return
            if isinstance(event, Scaled):
                pending.scale = event.scale
            elif isinstance(event, Zeroed):
                pending.zeroed(event.number, self._followed)
            else:
                if isinstance(event, Batch):
                    pending.given_up.clear()
                pending.events.append((event, met))

    def _gradients(self, stage, now, before, peers, left_out):
        """Holds the gradients of a step against those of the batches since the step before.
        left_out: whether another optimizer leaves this step out."""
        scale = self._pending[0].scale
        events = [self._pending[rank].take(peers[0].number) for rank in range(len(peers))]
        given_up = all(peers[0].number in own.given_up for own in self._pending.values())
        for own in self._pending.values():
            own.given_up.discard(peers[0].number)
        if self._why_not:
            return
        batches = [
            [(each, met) for each, met in own if isinstance(each, Batch) and each.weight]
            for own in events
        ]
        own_terms = any(isinstance(each, OwnTerms) for own in events for each, _ in own)
        if own_terms and (self._has_batches or any(batches)):
            stage.tell("gradients are not judged: terms of the job's own are added to case.loss")
            return
        if not any(batches):
            self._without_batch(stage, peers, events, given_up)
            return
        self._has_batches = True
        try:
            same = _batches.same_batches(batches)
        except _batches.Unequal as why:
            stage.tell(f"gradients are not judged: {why}")
            return
        self._same_batch(stage, batches, same)
        taken = self._taken.setdefault(peers[0].number, set())
        for why in _batches.unusual(batches, taken, scale):
            stage.tell(why)
        buffers = [_buffers_of(own) for own in before]
        narrow = [each.dtype for own in events for each, _ in own if isinstance(each, Reduced)]
        try:
            expected = self._model.gradients(batches, same, buffers, scale, narrow)
        except Exception as error:  # a loss may ask for what only the job's ranks have
            stage.tell(f"gradients are not judged: in the plain twin {root_cause(error)}")
            return
        clips = [[each for each, _ in own if isinstance(each, Clip)] for own in events]
        clips = _clips.whole(clips)
        parts = now.gradient_parts(peers)
        found = judged(stage, expected, self.earlier, parts, clips, left_out)
        altered = [each.altered_by for each in peers if each.altered_by]
        if found and (why := _talks.told(batches)):
            stage.tell(f"gradients are not judged: {why}")
            found = []
        if found and altered and not any(each["cause"] for each in found):
            stage.tell(f"gradients are not judged: {altered[0]} may change them")
            found = []
        if found and expected.drawn:
            stage.why_not = "the subject draws random numbers that the plain twin does not draw: "
            stage.why_not += "expected plain(case), which makes the same model"
        else:
            # A norm is the same at the step of each optimizer.
            stage.deviations += [each for each in found if each not in stage.deviations]
        if expected.scaled_to:
            self._scaled_to.setdefault(peers[0].number, []).append(expected.scaled_to)
            self._scaled_in = stage
        self.earlier = expected

    def _scales(self, stage):
        """Once all optimizers have stepped, since what is clipped by hand has one norm of all."""
        if self._scaled_in is stage and not stage.why_not:
            stage.why_not = _unlike_scales(list(self._scaled_to.values()))

    def _same_batch(self, stage, batches, same):
        """No two ranks have the same part of the batch, but those that share theirs."""
        ranks, told = _batches.taken_twice(batches, same)
        stage.compared += len(set(same))
        stage.exact += len(set(same)) - len(ranks)
        if ranks:
            what = f"ranks {ranks[0]} and {ranks[1]} have taken the same part of the batch"
            stage.deviates("batch", "", ranks, what)
        elif told:
            stage.tell(told)

    def _without_batch(self, stage, peers, events, given_up):
        """A step for which no backward began since the one before, or whose gradients were zeroed:
        given_up. events: of each rank, what came since then."""
        grads = [grad for step in peers for grad in step.grads.values() if grad is not None]
        if given_up and not any(grad.any() for grad in grads):
            what = "the gradients of its batches were zeroed before the step, which had none"
            stage.deviates("steps", "", range(len(peers)), what)
        elif not grads and all(map(_has_unused_loss, events)):
            what = "losses were computed for a step that had no gradient: backward never began"
            stage.deviates("steps", "", range(len(peers)), what)
        elif self._has_batches and grads:
            what = "a step was taken without a new batch since the step before"
            stage.deviates("steps", "", range(len(peers)), what, "one step too many")
        elif not self._has_batches:
            stage.tell("gradients are not judged: the subject does not train on case.loss, so its "
                       "batches are not known")  # fmt: skip


def _why_not_followed(after, seen) -> str:
    """Why no step of an observed optimizer is known. seen: numbers of those that stepped."""
    kinds = " and ".join(dict.fromkeys(each.kind.__name__ for each in after[0].steppers))
    if kinds and -1 in seen:
        return (f"{kinds} was observed, and another optimizer took the steps. If it is inside, "
                "pass that one as optimizer=, and declare in CANNOT what is changed besides: "
                '"updates" for parameters, "gradients" for gradients')  # fmt: skip
    return f"{kinds or 'its optimizer'} is not one of torch's, or was not observed"


def _unlike_scales(of_each) -> str:
    """Of factors by which a job has scaled the gradients of each optimizer, and the norms that
    these then had: why it cannot be told whether they are meant."""
    unlike = [each for each in of_each if not _are_alike(each)]
    if not unlike or _are_alike(_of_all(of_each)):
        return ""
    first, (factor, norm, _) = unlike[0][0][1], unlike[0][-1]
    return (f"gradients were scaled by {factor:.6g} alike, to the norm {norm:.6g}, and in an "
            f"earlier step to {first:.6g}: clipping by hand makes one norm, that over all ranks, "
            'of all that is larger. If it is meant, declare "gradients" in CANNOT')  # fmt: skip


def _are_alike(scaled) -> bool:
    """Clipping makes one norm of all, and a mean one factor."""
    if not scaled:
        return False
    factors, norms, slacks = zip(*scaled, strict=True)
    return _is_one(factors, slacks) or _is_one(norms, slacks)


def _is_one(values, slacks) -> bool:
    return max(values) - min(values) <= max(0.01, *slacks) * max(values)


def _of_all(of_each) -> list:
    """The same of all optimizers together, whose gradients have one norm; none if they were not
    scaled by one factor in each step."""
    if len({len(each) for each in of_each}) > 1:
        return []
    together = []
    for step in zip(*of_each, strict=True):
        factors, norms, slacks = zip(*step, strict=True)
        if not _is_one(factors, slacks):
            return []
        together.append((factors[0], math.hypot(*norms), max(slacks)))
    return together


def _count_batches(moment) -> int:
    return sum(isinstance(each, Batch) for each in moment.since)


def _has_unused_loss(events) -> bool:
    return any(isinstance(each, Batch) and each.weight == 0 for each, _ in events)


def _buffers_of(moment) -> dict:
    found = {}
    for name, part in moment.model.items():
        if part.kind == "buffer" and not _values.is_cut(part):
            found[name] = _values.whole([part])
    return found
