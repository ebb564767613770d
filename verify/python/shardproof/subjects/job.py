"""How a job loads, trains, saves halfway and resumes, whatever framework does each of these."""

import functools


def unseen(*_, **__):
    """Stands in for `observe` where a model is only a means."""


def run(case, observe, load, save=None, restore=None, take_step=None):
    """Does what `case` asks for, and observes it.

    load(observe) -> model, optimizer: observes what comes before "ready". save(model, optimizer)
    writes case.save_to. restore() -> model, optimizer, from there. take_step(model, optimizer,
    step): one step; if left out, the case's loss, optimizer.step() and zero_grad().
    """
    if case.resumes:
        model, optimizer = restore()
        return observe("restored", model=model, optimizer=optimizer, step=_step(case))
    model, optimizer = load(unseen if case.steps else observe)
    observe("ready", model=model, optimizer=optimizer)
    if take_step is None:
        take_step = functools.partial(step_of, case)
    for step in range(1, case.steps + 1):
        take_step(model, optimizer, step)
        observe("stepped", model=model, optimizer=optimizer, step=step)
        if case.saves and step == case.saved_step:
            save(model, optimizer)
            observe("saved", model=model, optimizer=optimizer, step=step)
    if not case.saves:
        return None
    if not case.steps:
        save(model, optimizer)
        observe("saved", model=model)
        if case.measures_memory:
            return None
    model, optimizer = restore()
    observe("restored", model=model, optimizer=optimizer, step=_step(case))
    for step in range(case.saved_step + 1, case.steps + 1):
        take_step(model, optimizer, step)
        observe("resumed", model=model, optimizer=optimizer, step=step)
    return None


def step_of(case, model, optimizer, step):
    case.loss(model, step).backward()
    optimizer.step()
    optimizer.zero_grad()


def _step(case):
    return case.saved_step if case.steps else 0
