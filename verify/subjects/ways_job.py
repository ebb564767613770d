"""What takes the steps of ways_to_train.py: a model in a wrapper, and what is done with it."""

import contextlib
import dataclasses

import ddp
import fsdp1
import fsdp2
import torch
from optimizers import optimizers_of
from shardproof.subjects import accelerate_fsdp2, launch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.utils import clip_grad_norm_
from training import unseen


def build_of(case):
    """A function like case.build, of a model as the options want it."""

    def build(device):
        model = type(case).build(case, device)
        if case.options["precision"] in ("all_bf16", "masters"):
            model = model.to(torch.bfloat16)
        for module in model.modules():
            if case.options["dropout"] == "yes" and hasattr(module, "attention_dropout"):
                module.attention_dropout = 0.1
        if case.steps and case.options["frozen"] == "first":
            fsdp2.blocks_of(case, model)[0].requires_grad_(False)
        return model

    return build


def job_of(case):
    """The wrapped model, and the optimizers that step it."""
    case.build = build_of(case)
    case.options["load"] = "broadcast"
    case.options["mixed_precision"] = "bf16" if case.options["precision"] == "bf16" else "no"
    wrapper, kind = case.options["wrapper"], case.options["optimizer"]
    case.options["parameters"] = "flat" if wrapper == "fsdp1_flat" else "original"
    if wrapper.startswith("accelerate"):
        return accelerated(case, kind)
    if wrapper == "fsdp2":
        model = fsdp2.loaded(case)
    else:
        loaded = fsdp1.loaded if wrapper.startswith("fsdp1") else ddp.loaded
        model = loaded(case, unseen)
    masters = []
    if case.options["precision"] == "masters":
        masters = [p.detach().float().requires_grad_(p.requires_grad) for p in model.parameters()]
    return Job(case, model, optimizers_of(kind, masters or list(model.parameters())), None, masters)


def accelerated(case, kind):
    """With FSDP2, or with DDP, which is what Accelerate makes of a CPU."""
    model = case.build("cpu")
    model.load_state_dict(case.state_dict(), strict=False)
    optimizers = optimizers_of(kind, list(model.parameters()))
    if case.options["wrapper"] == "accelerate":
        accelerator = accelerate_fsdp2.AccelerateFsdp2(case).accelerator
    else:
        launch.as_launched(case)
        from accelerate import Accelerator, DistributedDataParallelKwargs

        unused = DistributedDataParallelKwargs(find_unused_parameters=True)
        accelerator = Accelerator(cpu=True, kwargs_handlers=[unused])
    accelerator.gradient_accumulation_steps = parts_of(case)
    model, *optimizers = accelerator.prepare(model, *optimizers)
    return Job(case, model, optimizers, accelerator, [])


def parts_of(case):
    return 3 if case.options["batches"] in ("accumulate", "no_sync") else 1


def scaler_of(case):
    is_fsdp1 = case.options["wrapper"].startswith("fsdp1")
    kind = ShardedGradScaler if is_fsdp1 else torch.amp.GradScaler
    return kind("cpu", enabled=case.options["scaler"] != "no")


@dataclasses.dataclass
class Job:
    """What takes steps. masters: copies in F32 that are stepped in place of the parameters."""

    case: object
    model: nn.Module
    optimizers: list
    accelerator: object
    masters: list

    def data(self):
        """The case whose batches are this rank's: ranks along tp work on the same ones."""
        tp = self.case.mesh.get("tp", 1)
        rank, world_size = self.case.rank // tp, self.case.world_size // tp
        return dataclasses.replace(self.case, rank=rank, world_size=world_size)

    def backward(self, step, scale):
        """Of the whole batch of a step, or of its parts, of which a loss is the mean."""
        number, data = parts_of(self.case), self.data()
        for part in range(number):
            with self.around(part == number - 1):
                loss = data.loss(self.model, step * number + part)
                if self.case.options["batches"] == "weighted":  # parts of unequal size
                    loss = loss * (3 + data.rank) * 2 / (5 + data.world_size)
                if self.accelerator:
                    self.accelerator.backward(loss)
                else:
                    scale(loss / number).backward()

    @contextlib.contextmanager
    def around(self, is_last):
        """A forward and its backward."""
        is_cast = self.case.options["precision"] == "autocast"
        waits = not is_last and self.case.options["batches"] == "no_sync"
        with (
            self.without_sync(waits),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_cast),
        ):
            yield

    def without_sync(self, waits):
        """Gradients are not reduced yet, if it waits."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(not waits)
        elif waits and self.accelerator:
            return self.accelerator.no_sync(self.model)
        elif waits:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def clip(self):
        way, parameters = self.case.options["clip"], self.masters or list(self.model.parameters())
        if way == "norm" and self.accelerator:
            self.accelerator.clip_grad_norm_(parameters, 0.05)
        elif way in ("norm", "infinity"):
            own = getattr(self.model, "clip_grad_norm_", None)  # FSDP1's ranks have parts
            kind = float("inf") if way == "infinity" else 2.0
            own(0.05, kind) if own else clip_grad_norm_(parameters, 0.05, kind)
        elif way == "groups":
            half = len(parameters) // 2
            clip_grad_norm_(parameters[:half], 0.05)
            clip_grad_norm_(parameters[half:], 0.02)
        elif way == "value":
            nn.utils.clip_grad_value_(parameters, 1e-3)
        elif way == "by_hand":
            self.clip_by_hand([p.grad for p in parameters if p.grad is not None])

    def clip_by_hand(self, grads):
        squares = torch.zeros(())
        for grad in grads:
            squares += getattr(grad, "_local_tensor", grad).float().square().sum()
        if "ddp" not in self.case.options["wrapper"]:
            torch.distributed.all_reduce(squares)
            squares /= self.case.mesh.get("dp_replicate", 1)
        for grad in grads:
            grad.mul_(min(1.0, 0.05 / (squares.sqrt().item() + 1e-6)))

    def copy_gradients(self):
        for parameter, master in self.with_masters():
            master.grad = None if parameter.grad is None else parameter.grad.float()

    @torch.no_grad()
    def copy_masters(self):
        for parameter, master in self.with_masters():
            parameter.copy_(master)

    def with_masters(self):
        """(parameter, its copy), if there are copies."""
        return list(zip(self.model.parameters(), self.masters, strict=False))


class Averages:
    """Copies of the weights by name: exponential averages, the best so far, references that stay,
    or averages that begin late."""

    @torch.no_grad()
    def __init__(self, kind, model):
        self.kind, self.of = kind, {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def follow(self, model, step):
        decay = {
            "ema": 0.9,
            "best": 0.0 if step % 2 else 1.0,  # every other step is the best so far
            "reference": 1.0,
            "warm": min(0.9, (1 + step) / (10 + step)),
        }[self.kind]
        if decay == 1.0:
            return
        for name, parameter in model.named_parameters():
            self.of[name].lerp_(parameter, 1 - decay)
