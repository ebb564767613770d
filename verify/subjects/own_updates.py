"""Sound jobs that change gradients or parameters by themselves, and say so in CANNOT: noise,
centralised gradients, Lookahead, SAM, weights that are scaled after each step."""

import ddp
import torch
from training import optimizer_of, unseen

CANNOT = {
    "plain": "it has one way of loading",
    "host_bound": "every rank has the whole model",
    "save": "it only takes steps",
    "keys": "it does not say which keys were missing",
    "gradients": "it changes them",
    "updates": "it changes parameters beside its optimizer",
}
SHOWS = {"collectives": ["*reduce*"]}  # with DDP nothing is sharded
RUNS = (
    "noise: 2 llama-tied-small",
    "centralised nightly: 2 llama-tied-small way=centralised",
    "lookahead nightly: 2 llama-tied-small way=lookahead",
    "sam nightly: 2 llama-tied-small way=sam",
    "scaled nightly: 2 llama-tied-small way=scaled",
)
OPTIONS = {"way": ["noise", "centralised", "lookahead", "sam", "scaled"]}


@torch.no_grad()
def change_gradients(way, parameters, generator):
    for parameter in parameters:
        if way == "noise":
            parameter.grad += 1e-3 * torch.randn(parameter.shape, generator=generator)
        elif way == "centralised" and parameter.dim() > 1:
            parameter.grad -= parameter.grad.mean(dim=1, keepdim=True)


@torch.no_grad()
def change_parameters(way, parameters, slow, step):
    for parameter, kept in zip(parameters, slow, strict=True):
        if way == "scaled" and parameter.dim() > 1:
            parameter *= 0.999
        elif way == "lookahead" and step % 2 == 0:
            parameter.copy_(kept.lerp_(parameter, 0.5))


def sharpest(parameters, radius=0.05):
    """How far to go uphill from where the gradients are, by parameter."""
    norm = torch.nn.utils.get_total_norm([each.grad for each in parameters])
    return [each.grad * (radius / (norm + 1e-12)) for each in parameters]


def run(case, observe):
    if not case.steps:
        return observe("ready", model=ddp.loaded(case, observe))
    way, model = case.options["way"], ddp.loaded(case, unseen)
    optimizer = optimizer_of(model)
    parameters = [each for each in model.parameters() if each.requires_grad]
    slow = [each.detach().clone() for each in parameters]
    generator = torch.Generator().manual_seed(case.seed)  # the same on all ranks
    observe("ready", model=model, optimizer=optimizer)
    for step in range(1, case.steps + 1):
        case.loss(model, step).backward()
        if way == "sam":
            before = [each.detach().clone() for each in parameters]
            with torch.no_grad():
                for parameter, uphill in zip(parameters, sharpest(parameters), strict=True):
                    parameter += uphill
            optimizer.zero_grad()
            case.loss(model, step).backward()
            with torch.no_grad():
                for parameter, value in zip(parameters, before, strict=True):
                    parameter.copy_(value)
        change_gradients(way, parameters, generator)
        optimizer.step()
        optimizer.zero_grad()
        change_parameters(way, parameters, slow, step)
        observe("stepped", model=model, optimizer=optimizer, step=step)
    return None
