"""What only all stages of a job together show: steps that are never taken, a scaler that a resume
forgets."""

import dataclasses

import torch

from ._gradients import FACTOR
from ._stage import Stage
from ._step_events import Batch, Scaled, Step
from ._values import cut

_LEAST_CHANGE = 0.05  # of a gradient: what is more is another one, in whatever dtype


def never_stepped(moments):
    """Of a job that shows steps, and takes none at all, or none that has a gradient: what to say of
    it. One that leaves some out, for gradients that are not finite, is sound."""
    begun = next((each for each in moments if each[0].stage == "ready"), None)
    shown = [each for each in moments if each[0].stage == "stepped"]
    if begun is None or not shown:
        return None
    until = moments[: moments.index(shown[-1]) + 1]  # a restored job may take its own steps
    events = [event for each in until for own in each for event in own.since]
    steps = [each for each in events if isinstance(each, Step)]
    if any(isinstance(each, Scaled) for each in events):
        return None
    if steps and not _are_without_gradients(steps):
        return None
    kinds = [stepper.kind for own in shown[-1] for stepper in own.steppers]
    if not kinds or not all(issubclass(kind, torch.optim.Optimizer) for kind in kinds):
        return None  # nobody listens to others
    if any(_moved(before, after) for before, after in zip(begun, shown[-1], strict=True)):
        return None
    stage = Stage(f"stepped@{shown[-1][0].step}")
    took = "took all of them without a gradient" if steps else "took none"
    what = f"{shown[-1][0].step} steps are shown, and {kinds[0].__name__} {took}: no parameter"
    stage.deviates("steps", "", range(len(begun)), f"{what} has changed since `ready`")
    return stage


def idle(moments):
    """Of a job one of whose optimizers takes no step at all, while others do: what to say of it."""
    shown = [each for each in moments if each[0].stage == "stepped"]
    begun = next((each for each in moments if each[0].stage == "ready"), None)
    if begun is None or not shown or any(is_scaled(each) for each in moments):
        return None
    events = [event for each in moments for own in each for event in own.since]
    taken = {each.number for each in events if isinstance(each, Step)} - {-1}
    for number, stepper in enumerate(shown[-1][0].steppers):
        names = [name for _, several in stepper.groups for name in several]
        is_known = issubclass(stepper.kind, torch.optim.Optimizer)
        if not taken or number in taken or not names or not is_known:
            continue
        only = [dataclasses.replace(own, model={k: own.model[k] for k in names if k in own.model})
                for own in begun]  # fmt: skip
        if any(_moved(before, after) for before, after in zip(only, shown[-1], strict=True)):
            continue
        stage = Stage(f"stepped@{shown[-1][0].step}")
        stage.why_not = (
            f"{stepper.kind.__name__} of {names[0]} took no step in {shown[-1][0].step} that are "
            "shown, and other optimizers did: more steps would show whether it ever does"
        )
        return stage
    return None


def hold_scaler(stage, known, after):
    """The loss scaler of a resumed job is in each step as it was where nothing interrupted it.
    known: by step, of each rank, when it was shown first."""
    last = [[each.state for each in own.since if isinstance(each, Scaled)][-1:] for own in after]
    first = known.setdefault(after[0].step, last)
    if first is last or not all(first) or not all(last) or len(first) != len(last):
        return
    for rank, ((was,), (now,)) in enumerate(zip(first, last, strict=True)):
        stage.compared += len(was)
        for key, value in was.items():
            if now.get(key) == value:
                stage.exact += 1
                continue
            stage.deviates(
                "scaler", "", [rank], f"the loss scaler has {key.lstrip('_')} = {now.get(key)} in "
                f"this step, and had {value} in the job that was not interrupted",
                "a resume does not restore it", expected=str(value), seen=str(now.get(key)),
            )  # fmt: skip


def hold_order(stage, known, after, expected):
    """Whether a resumed job has the same losses in a step as the one that was not interrupted, and
    the same gradients but for the order in which they are added up: DDP makes its buckets anew
    after its first backward. known: by step, what was shown first. expected: Gradients, or None if
    they are not judged."""
    last = [
        ([each.loss for each in own.since if isinstance(each, Batch)],
         [each.grads for each in own.since if isinstance(each, Step)])
        for own in after
    ]  # fmt: skip
    first = known.setdefault(after[0].step, last)
    if first is last or len(first) != len(last):
        return
    differs = False
    for (losses, grads), (now, grads_now), own in zip(first, last, after, strict=True):
        if losses != now or len(grads) != len(grads_now):
            return
        for step, step_now in zip(grads, grads_now, strict=True):
            for name in {**step, **step_now}:
                was, is_now = step.get(name), step_now.get(name)
                if was is None and is_now is None:
                    continue
                if not _differ_by_order(was, is_now, own, name, expected, len(after)):
                    return
                differs = differs or not torch.equal(was, is_now)
    stage.adds_otherwise = differs


def _differ_by_order(was, now, own, name, expected, ranks) -> bool:
    if was is None or now is None or was.shape != now.shape:
        return False
    if expected is None:
        bound = _of_any_order(was, ranks)
    elif name in expected.names():
        bound = 2 * cut(expected.of_reduction(name), own.copies.get(name, own.model[name]))
    else:
        return False
    bound = bound + torch.finfo(torch.float32).tiny
    return bool(((was.double() - now.double()).abs().reshape(-1) <= bound).all())


def _of_any_order(grad, ranks) -> float:
    """How far apart two orders may be where what is added up is not known: that its elements are
    no larger than FACTOR times the largest of the tensor. From the same weights, which are held
    elsewhere, other batches or random numbers make gradients that are much further apart."""
    size = float(grad.double().abs().max()) if grad.numel() else 0.0
    unit = torch.finfo(grad.dtype).eps / 2
    return size * min(_LEAST_CHANGE, 2 * FACTOR * (ranks + 3) * unit)


def _are_without_gradients(steps) -> bool:
    """Whether no parameter of the model had one in any of them, as far as there are any."""
    grads = [grad for step in steps for grad in step.grads.values()]
    return bool(grads) and all(grad is None for grad in grads)


def _moved(before, after) -> bool:
    return any(
        not torch.equal(part.local, after.model[name].local)
        for name, part in before.model.items()
        if part.kind == "parameter" and name in after.model
    )


def is_scaled(moments) -> bool:
    return any(isinstance(each, Scaled) for own in moments for each in own.since)
