"""How a job trains, saves halfway and resumes: the same for every framework of this folder."""

import torch


def unseen(*_, **__):
    """Stands in for `observe` where a model is only a means."""


def optimizer_of(model):
    return torch.optim.AdamW(
        (p for p in model.parameters() if p.requires_grad), lr=1e-3, weight_decay=0.01
    )


def take_step(case, model, optimizer, step):
    case.loss(model, step).backward()
    optimizer.step()
    optimizer.zero_grad()


def train(case, observe, loaded, save, restored):
    """Takes case.steps, saving after case.saved_step, and takes the rest again from what was saved.

    loaded() -> model; save(model, optimizer) -> None, or a function that waits for the save to be
    done; restored() -> model, optimizer.
    """
    if not case.resumes:
        model = loaded()
        optimizer = optimizer_of(model)
        torch.manual_seed(case.rank)  # each rank draws numbers of its own
        observe("ready", model=model, optimizer=optimizer)
        wait = None
        for step in range(1, case.steps + 1):
            take_step(case, model, optimizer, step)
            observe("stepped", model=model, optimizer=optimizer, step=step)
            if case.saves and step == case.saved_step:
                wait = save(model, optimizer)
                observe("saved", model=model, optimizer=optimizer, step=step)
        if not case.saves:
            return
        if wait:
            wait()
    model, optimizer = restored()
    observe("restored", model=model, optimizer=optimizer, step=case.saved_step)
    if case.resumes:  # on another mesh
        return
    for step in range(case.saved_step + 1, case.steps + 1):
        take_step(case, model, optimizer, step)
        observe("resumed", model=model, optimizer=optimizer, step=step)
