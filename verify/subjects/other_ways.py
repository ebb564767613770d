"""Sound ways of making gradients other than one backward before a step: a closure, steps within the
backward pass, terms of the job's own, layers computed anew, gradients that the job reduces by
itself, an optimizer that is made anew, hooks that change gradients, gradients that are dropped."""

import dataclasses

import ddp
import fsdp2
import torch
import torch.distributed
from torch.utils.checkpoint import checkpoint
from training import unseen

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "what is run depends on the option `wrapper`",
    "host_bound": "what is run depends on the option `wrapper`",
    "save": "it only takes steps",
    "keys": "it does not say which keys were missing",
}
SHOWS = {"collectives": ["*reduce*"]}  # with DDP nothing is sharded
RUNS = (
    "closure: 2 llama-tied-small",
    "in_backward: 2 llama-tied-small wrapper=fsdp2 way=in_backward",
    "own_terms: 2 llama-tied-small way=own_terms",
    "lbfgs nightly: 2 llama-tied-small way=lbfgs",
    "computed_anew nightly: 2 llama-tied-small wrapper=fsdp2 way=computed_anew",
    "reduced_by_hand nightly: 2 llama-tied-small wrapper=no way=reduced_by_hand",
    "without_backward nightly: 2 llama-tied-small wrapper=no way=without_backward",
    "new_optimizer nightly: 2 llama-tied-small way=new_optimizer",
    "dropped nightly: 2 llama-tied-small way=dropped",
    "coarse nightly: 2 llama-tied-small way=coarse",
    "hook nightly: 2 llama-tied-small way=hook",
)
OPTIONS = {
    "wrapper": ["ddp", "fsdp2", "no"],
    "way": ["closure", "lbfgs", "in_backward", "own_terms", "computed_anew", "reduced_by_hand",
            "without_backward", "new_optimizer", "dropped", "coarse", "hook"],
}  # fmt: skip


def loaded(case):
    if case.options["wrapper"] == "ddp":
        return ddp.loaded(case, unseen)
    if case.options["wrapper"] == "fsdp2":
        options = {**case.options, "load": "broadcast", "mixed_precision": "no"}
        return fsdp2.loaded(dataclasses.replace(case, options=options))
    model = case.build("cpu")
    model.load_state_dict(case.state_dict(), strict=False)
    return model


def reduce(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= torch.distributed.get_world_size()


def coarsely(_, bucket):
    """Reduces gradients that were rounded, to send less."""
    rounded = (bucket.buffer() * 1024).round() / 1024 / torch.distributed.get_world_size()
    work = torch.distributed.all_reduce(rounded, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def steps_in_backward(parameters):
    """An optimizer for each parameter, which steps when its gradient is there."""
    optimizers = {each: torch.optim.AdamW([each], lr=1e-3) for each in parameters}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in parameters:
        each.register_post_accumulate_grad_hook(step)
    return list(optimizers.values())


class Job:
    def __init__(self, case):
        self.case, self.way, self.model = case, case.options["way"], loaded(case)
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        if self.way == "in_backward":
            self.optimizer = steps_in_backward(self.parameters)
        elif self.way == "lbfgs":
            self.optimizer = torch.optim.LBFGS(self.parameters, lr=0.1, max_iter=2)
        else:
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3)
        if self.way == "computed_anew":
            for block in fsdp2.blocks_of(case, self.model):
                block.forward = computed_anew(block.forward)
        if self.way == "coarse":
            self.model.register_comm_hook(None, coarsely)
        for each in self.parameters if self.way == "hook" else ():
            each.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))

    def loss(self, step):
        loss = self.case.loss(self.model, step)
        if self.way == "own_terms":
            loss = loss + 0.01 * sum(each.square().sum() for each in self.parameters)
        return loss

    def backward(self, step):
        self.optimizer.zero_grad()
        loss = self.loss(step)
        loss.backward()
        return loss

    def step(self, step):
        if self.way in ("closure", "lbfgs"):
            self.optimizer.step(lambda: self.backward(step))
        elif self.way == "in_backward":
            self.loss(step).backward()
        elif self.way == "without_backward":
            grads = torch.autograd.grad(self.loss(step), self.parameters, allow_unused=True)
            for parameter, grad in zip(self.parameters, grads, strict=True):
                parameter.grad = grad
            reduce(self.parameters)
            self.optimizer.step()
        else:
            if self.way == "new_optimizer" and step == 2:
                self.optimizer = torch.optim.AdamW(self.parameters, lr=5e-4)
            self.backward(step)
            if self.way == "dropped":  # by hand, in place of zero_grad
                for each in self.parameters:
                    each.grad = None
                self.loss(100 + step).backward()
            if self.way == "reduced_by_hand":
                reduce(self.parameters)
            self.optimizer.step()


def computed_anew(forward):
    return lambda *arguments, **named: checkpoint(forward, *arguments, use_reentrant=False, **named)


def run(case, observe):
    if not case.steps:
        observe("built", model=case.build("meta"))
        return observe("ready", model=loaded(case))
    job = Job(case)
    observe("ready", model=job.model, optimizer=job.optimizer)
    for step in range(1, case.steps + 1):
        job.step(step)
        observe("stepped", model=job.model, optimizer=job.optimizer, step=step)
    return None
