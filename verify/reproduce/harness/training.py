"""Checks of an optimizer, its options and the random number generator."""

import torch

from .check import Check
from .tensors import own, tensors_of


class OptimizerLive(Check):
    """The optimizer holds each of the model's own parameters once, and nothing that is not."""

    def look(self, rank, model):
        parameters = tensors_of(rank.model)
        held = [id(one) for group in rank.optimizer.param_groups for one in group["params"]]
        for name in self.tensors:
            count = held.count(id(parameters.get(name)))
            if count != 1:
                rank.fail(name, f"the optimizer holds this parameter of the model {count} times")
        strangers = len(set(held) - {id(one) for one in parameters.values()})
        if strangers and not self.tensors:
            rank.fail("", f"the optimizer holds {strangers} tensors that are not the model's")


def options_of(rank):
    """The options of every parameter's group, as text."""
    name_of = {id(tensor): name for name, tensor in reversed(tensors_of(rank.model).items())}
    return {
        name_of.get(id(parameter), "?"): {k: repr(v) for k, v in group.items() if k != "params"}
        for group in rank.optimizer.param_groups
        for parameter in group["params"]
    }


class OptionsKept(Check):
    """The options of the optimizer's groups are what they were when they were saved."""

    def remember(self, rank, model):
        torch.save(options_of(rank), f"{rank.directory}/options.{rank.case.rank}.pt")

    def look(self, rank, model):
        saved = torch.load(f"{rank.directory}/options.0.pt")
        for name, options in options_of(rank).items():
            was = saved.get(name, {})
            for key in sorted(options.keys() | was.keys()):
                if name in self.tensors and options.get(key) != was.get(key):
                    what = f"its {key} is {options.get(key)}, it was {was.get(key)} when saved"
                    rank.fail(name, what)


class RngKept(Check):
    """The random number generator is in the state that this rank saved."""

    def remember(self, rank, model):
        torch.save(torch.get_rng_state(), self.path(rank))

    def look(self, rank, model):
        if not torch.equal(torch.get_rng_state(), torch.load(self.path(rank))):
            rank.fail("", "the random number generator is in another state than when it was saved")

    def path(self, rank):
        return f"{rank.directory}/rng.{rank.case.rank}.pt"


class StepsAct(Check):
    """Steps change these parameters; if none is named, some parameter."""

    def remember(self, rank, model):
        rank.remembered = {name: own(one).clone() for name, one in tensors_of(model).items()}

    def look(self, rank, model):
        before, stage = rank.remembered, self.reference[1]
        now = {name: own(one) for name, one in tensors_of(model).items()}
        still = [name for name in now if name in before and torch.equal(now[name], before[name])]
        for name in self.tensors:
            if name in still:
                rank.fail(name, f"it is what it was at `{stage}`: the step did not change it")
        if not self.tensors and len(still) == len(now):
            rank.fail("", f"nothing is another than at `{stage}`: the step changed no parameter")
