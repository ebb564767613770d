#!/usr/bin/env python3
"""Jobs whose optimizers keep what they know in ways of their own, on two to four ranks, each sound
and with a mistake: state_jobs.py [EVIDENCE]

Prints what ranked_jobs.run prints.
"""

import sys
import tempfile

import numpy
import ranked_jobs
import torch
import torch.distributed as dist
from job_pieces import flip, is_odd, mesh, net, on
from strangers_jobs import own_batch, train_own
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel


class Of(torch.optim.Optimizer):
    """An optimizer of these, whose step is one of each parameter."""

    defaults_of = {}

    def __init__(self, parameters, lr=0.02, **options):
        super().__init__(parameters, {"lr": lr, **self.defaults_of, **options})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.step_of(parameter, self.state[parameter], group)


class Projector:
    """The directions in which a gradient is looked at, which GaLore keeps in an object."""

    def __init__(self, gradient):
        self.ortho_matrix = torch.linalg.svd(gradient)[0][:, :2].contiguous()


class Projected(Of):
    """GaLore: moments of the gradient along a few directions."""

    def step_of(self, parameter, state, group):
        if not state:
            state.update(step=0, projector=Projector(parameter.grad))
        state["step"] += 1
        directions = state["projector"].ortho_matrix
        low = directions.T @ parameter.grad
        state.setdefault("exp_avg", torch.zeros_like(low)).lerp_(low, 0.1)
        parameter.sub_(directions @ state["exp_avg"], alpha=group["lr"])


@on(2)
def projected(mistake):
    """Each rank finds the directions in its own gradient, which it should have been given."""
    model = DistributedDataParallel(net())
    matrices = [each for each in model.parameters() if each.ndim == 2]
    optimizer, rest = Projected(matrices), [p for p in model.parameters() if p.ndim == 1]
    train_own(model, optimizer)
    if is_odd(mistake, "own directions", 1):
        optimizer.state[matrices[0]]["projector"] = Projector(matrices[0].grad + 1)
    return model, {"optimizer": [optimizer, torch.optim.SGD(rest)]}


class Estimating(Of):
    """Prodigy: the rate is estimated from all gradients, and is an option of its groups."""

    defaults_of = {"d": 1e-3, "d_numerator": 0.0}

    def step(self, closure=None):
        (group,) = self.param_groups
        own = [p.grad.to_local() for p in group["params"] if p.grad is not None]
        if not own:
            return
        total = sum(each.abs().sum() for each in own)
        if not group["alone"]:
            dist.all_reduce(total)
        group["d_numerator"] += total.item()
        group["d"] = 1e-3 * group["d_numerator"]
        super().step()

    def step_of(self, parameter, state, group):
        state.setdefault("s", torch.zeros_like(parameter)).add_(parameter.grad)
        parameter.sub_(state["s"], alpha=group["d"] * group["lr"])


@on(2)
def estimated(mistake):
    """Shards of FSDP2, of which each rank sums up its own gradients alone."""
    model = fully_shard(net())
    optimizer = Estimating(model.parameters(), alone=mistake == "own sums")
    train_own(model, optimizer)
    return model, {"optimizer": optimizer}


@on(2)
def one_after_the_other(mistake):
    """Two optimizers of the same parameters: Adam for some steps, then Adam with another rate."""
    model = DistributedDataParallel(net())
    both = [torch.optim.Adam(model.parameters(), lr=rate) for rate in (0.1, 0.01)]
    for optimizer in both:
        train_own(model, optimizer)
    weight = model.module[0].weight
    if is_odd(mistake, "moment", 1):
        flip(both[1].state[weight]["exp_avg"], 3)
    return model, {"optimizer": both}


class Searching(torch.optim.LBFGS):
    def step(self, closure=None):
        return closure and super().step(closure)


@on(2)
def line_search(mistake):
    """L-BFGS, which keeps each rank's own loss in its state."""
    model = DistributedDataParallel(net())
    optimizer = Searching(model.parameters(), lr=0.1, max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = model(own_batch()).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    if is_odd(mistake, "direction", 1):
        flip(optimizer.state[model.module[0].weight]["d"], 2)
    return model, {"optimizer": optimizer}


@on(2)
def moved_to_files(mistake):
    """Moments that lie in files, as arrays of numpy."""
    model = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters())
    train_own(model, optimizer)
    for state in optimizer.state.values():
        moment = state["exp_avg"].numpy()
        file = tempfile.NamedTemporaryFile()
        state["exp_avg"] = numpy.memmap(file, moment.dtype, "w+", shape=moment.shape)
        state["exp_avg"][:] = moment
    if is_odd(mistake, "element", 1):
        optimizer.state[model.module[0].weight]["exp_avg"][1, 2] += 1
    return model, {"optimizer": optimizer}


class Muon(Of):
    def step_of(self, parameter, state, group):
        momentum = state.setdefault("momentum_buffer", torch.zeros_like(parameter))
        momentum.mul_(0.9).add_(parameter.grad)
        ahead = parameter.grad.add(momentum, alpha=0.9) if group["nesterov"] else momentum
        left, _, right = torch.linalg.svd(ahead.full_tensor(), full_matrices=False)
        step = distribute_tensor(left @ right, parameter.device_mesh, parameter.placements)
        parameter.sub_(step, alpha=group["lr"])


def orthogonal(mistake):
    """Muon on the matrices of HSDP, and AdamW in two groups on the rest."""
    model = net()
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh(2, 2, names=("replicate", "shard")))
    assert all(isinstance(each, DTensor) for each in model.parameters())
    ahead = not (mistake == "nesterov" and dist.get_rank() >= 2)
    muon = Muon([p for p in model.parameters() if p.ndim == 2], nesterov=ahead)
    groups = [{"params": [model[0].bias], "weight_decay": 0.0}, {"params": [model[1].bias]}]
    adam = torch.optim.AdamW(groups)
    for _ in range(2):
        train_own(model, muon, 1)
        adam.step()
    return model, {"optimizer": [muon, adam]}


JOBS = {
    projected: (None, "own directions"),
    estimated: (None, "own sums"),
    one_after_the_other: (None, "moment"),
    line_search: (None, "direction"),
    moved_to_files: (None, "element"),
    orthogonal: (None, "nesterov"),
}

if __name__ == "__main__":
    ranked_jobs.run(JOBS, *sys.argv[1:])
