"""The ways in which people take steps, each of them sound: accumulation, clipping, a loss scaler,
parameters that are frozen for some steps, other optimizers, precisions and wrappers."""

import contextlib

import ddp
import fsdp1
import fsdp2
import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.utils import clip_grad_norm_
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
    "plain: 2 llama-tied-small",
    "averages nightly: 2 llama-tied-small batches=accumulate averages=with",
    "scaler nightly: 2 llama-tied-small wrapper=ddp batches=scaler averages=apart",
)
OPTIONS = {
    "wrapper": ["fsdp2", "fsdp1", "ddp"],
    "optimizer": ["adamw", "sgd", "sgd_plain", "adagrad", "adafactor", "lion", "zero", "two"],
    "batches": ["plain", "accumulate", "no_sync", "schedule", "unfreeze", "weighted", "scaler"],
    "clip": ["no", "norm", "by_hand", "value"],
    "precision": ["fp32", "autocast", "bf16"],  # bf16: of fsdp2 alone
    "dropout": ["no", "yes"],
    "averages": ["no", "with", "apart"],  # observed with the model, or by themselves
}


class Lion(torch.optim.Optimizer):
    """An optimizer of the job's own: steps are signs of an average."""

    def __init__(self, params, lr=1e-4, beta=0.9, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "beta": beta, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                average = state.setdefault("average", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                average.lerp_(p.grad, 1 - group["beta"])
                p.add_(average.sign(), alpha=-group["lr"])


def optimizers_of(case, model):
    """A list of them."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    kind = case.options["optimizer"]
    if kind == "sgd":
        return [torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)]
    if kind == "sgd_plain":  # without a state
        return [torch.optim.SGD(parameters, lr=0.1)]
    if kind == "adagrad":
        return [torch.optim.Adagrad(parameters, lr=1e-2)]
    if kind == "adafactor":
        return [torch.optim.Adafactor(parameters, lr=1e-2)]
    if kind == "lion":
        return [Lion(parameters, weight_decay=0.1)]
    if kind == "zero":
        return [ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=1e-3)]
    if kind == "two":
        half = len(parameters) // 2
        return [
            torch.optim.AdamW(parameters[:half]),
            torch.optim.SGD(parameters[half:], lr=0.1, momentum=0.9),
        ]
    decays = [p for p in parameters if p.dim() > 1]
    rest = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return [torch.optim.AdamW([group for group in groups if group["params"]], lr=1e-3)]


def loaded(case):
    if case.options["dropout"] == "yes":
        build = case.build
        case.build = lambda device: with_dropout(build(device))
    case.options |= {"load": "broadcast", "strict": "no", "cpu_offload": "no", "frozen": "no"}
    case.options["mixed_precision"] = "bf16" if case.options["precision"] == "bf16" else "no"
    wrapper = case.options["wrapper"]
    if wrapper == "fsdp2":
        return fsdp2.loaded(case)
    return fsdp1.loaded(case, unseen) if wrapper == "fsdp1" else ddp.loaded(case, unseen)


def with_dropout(model):
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    return model


def whole_batch(case, model, step, scale):
    """The loss of one step, or the mean of those of its parts."""
    number = 3 if case.options["batches"] in ("accumulate", "no_sync") else 1
    skips = case.options["batches"] == "no_sync" and hasattr(model, "no_sync")
    for part in range(number):
        waits = model.no_sync() if skips and part < number - 1 else contextlib.nullcontext()
        is_cast = case.options["precision"] == "autocast"
        with waits, torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_cast):
            loss = case.loss(model, step * number + part)
            if case.options["batches"] == "weighted":  # ranks have parts of unequal size
                sizes = [3 + rank for rank in range(case.world_size)]
                loss = loss * sizes[case.rank] * case.world_size / sum(sizes)
            scale(loss / number).backward()


def clip(case, model):
    way = case.options["clip"]
    if way == "norm":
        own = getattr(model, "clip_grad_norm_", None)
        own(0.05) if own else clip_grad_norm_(model.parameters(), 0.05)
    elif way == "value":
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)
    elif way == "by_hand":
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        local = sum(getattr(g, "_local_tensor", g).square().sum() for g in grads)
        if case.options["wrapper"] != "ddp":
            torch.distributed.all_reduce(local)
        for grad in grads:
            grad.mul_(min(1.0, 0.05 / (local.sqrt().item() + 1e-6)))


def plain(case):
    """As a twin it has to know what is dropped."""
    model = case.build("cpu")
    model.load_state_dict(case.state_dict(), strict=False)
    return with_dropout(model) if case.options["dropout"] == "yes" else model


def run(case, observe):
    if not case.steps:
        observe("built", model=case.build("meta"))
        return observe("ready", model=loaded(case))
    model = loaded(case)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizers = optimizers_of(case, model)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.5) for each in optimizers]
    scaler = torch.amp.GradScaler("cpu", enabled=case.options["batches"] == "scaler")
    observed = optimizers[0] if len(optimizers) == 1 else optimizers
    averages = {name: p.detach().clone() for name, p in model.named_parameters()}
    observe("ready", model=model, optimizer=observed, averages=averages)
    for step in range(1, case.steps + 1):
        if case.options["batches"] == "unfreeze":
            parameters[-1].requires_grad_(step != 2)
        whole_batch(case, model, step, scaler.scale)
        if case.options["batches"] == "scaler" and step == 3:
            parameters[0].grad.fill_(float("inf"))  # the scaler leaves this step out
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        clip(case, model)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        if case.options["batches"] == "schedule":
            for schedule in schedules:
                schedule.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                averages[name].lerp_(parameter, 0.1)
        more = {"averages": averages} if case.options["averages"] == "with" else {}
        observe("stepped", model=model, optimizer=observed, step=step, **more)
        if case.options["averages"] == "apart":
            observe("ema", averages=averages, step=step)
    return None
