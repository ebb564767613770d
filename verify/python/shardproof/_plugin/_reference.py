"""The fixture `reference`: what a plain process, which is in no process group, makes of a model."""

import base64
import collections.abc
import inspect
import os
import pickle
import sys

import torch
from torch import nn


class Reference(collections.abc.Mapping):
    """The tensors by name, as the plain process has saved them. path: of that file, which
    `shardproof.check(model, against=path)` reads."""

    def __init__(self, path):
        self.path = path
        self._tensors = torch.load(path, weights_only=True, mmap=True)

    def __getitem__(self, name):
        return self._tensors[name]

    def __iter__(self):
        return iter(self._tensors)

    def __len__(self):
        return len(self._tensors)

    def __repr__(self):
        return f"<reference of {len(self)} tensors, {self.path}>"


class Maker:
    """reference(factory, *args, checkpoint=None, **kwargs), on every rank alike.

    A process that is in no process group calls factory(*args, **kwargs), a function at the top
    level of the test's module, or a class there. It returns a model, (model, optimizer), or a dict
    of tensors. With `checkpoint`, a path to safetensors, torch.save or DCP, the model is loaded
    from it, strictly. The ranks get a Reference: the names and values of the state dict, and of the
    optimizer's state under "optimizer.<FQN>.<key>". It is made once for all ranks of a test.
    """

    def __init__(self, job):
        self._job = job

    def __call__(self, factory, *args, checkpoint=None, **kwargs) -> Reference:
        """\\raises TypeError for a function that another process cannot find, or arguments that
        cannot be sent. \\raises RuntimeError if it fails there, with what it raised."""
        order = {
            "path": self._job.path, "module": factory.__module__, "name": factory.__qualname__,
            "arguments": _packed(factory, (args, kwargs)), "scratch": self._job.scratch,
            "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        }  # fmt: skip
        self._job.channel.send(reference=order)
        answer = self._job.channel.receive()
        if "made" not in answer:
            raise RuntimeError(f"reference: {answer['why']}\n{answer['trace']}")
        return Reference(answer["made"])


def _packed(factory, arguments) -> str:
    name = factory.__qualname__
    if not (inspect.isfunction(factory) or inspect.isclass(factory)) or "<" in name:
        raise TypeError(f"reference: {name} must be a function at the top level of its module")
    try:
        return base64.b64encode(pickle.dumps(arguments)).decode()
    except Exception as error:
        raise TypeError(f"reference: its arguments cannot be sent: {error}") from error


def make(order):
    """In the plain process: calls the function, and saves what it gives to order["to"]."""
    factory = sys.modules.get(order["module"])
    if factory is None:
        raise LookupError(f"there is no module {order['module']}")
    for part in order["name"].split("."):
        factory = getattr(factory, part)
    args, kwargs = pickle.loads(base64.b64decode(order["arguments"]))
    made = factory(*args, **kwargs)
    model, optimizer = made if isinstance(made, tuple) else (made, None)
    if order["checkpoint"] is not None:
        _load(model, order["checkpoint"])
    torch.save(_tensors_of(model, optimizer), order["to"])


def _tensors_of(model, optimizer) -> dict:
    if isinstance(model, nn.Module):
        found = dict(model.state_dict())
    elif isinstance(model, collections.abc.Mapping):
        found = dict(model)
    else:
        raise TypeError(f"expected a model or a dict of tensors, and got a {type(model).__name__}")
    if optimizer is not None:
        names = {parameter: name for name, parameter in model.named_parameters()}
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    found[f"optimizer.{names[parameter]}.{key}"] = value
    wrong = [name for name, value in found.items() if not isinstance(value, torch.Tensor)]
    if wrong:
        raise TypeError(f"{wrong[0]} is a {type(found[wrong[0]]).__name__}, and not a tensor")
    return {name: value.detach().cpu() for name, value in found.items()}


def _load(model, path):
    if os.path.isdir(path) and os.path.exists(os.path.join(path, ".metadata")):
        import torch.distributed.checkpoint as dcp

        state = model.state_dict()
        dcp.load(state, checkpoint_id=path, no_dist=True)
    else:
        files = [path]
        if os.path.isdir(path):
            names = sorted(os.listdir(path))
            ends = (".safetensors",) if any(n.endswith(".safetensors") for n in names) else (
                ".bin", ".pt", ".pth")  # fmt: skip
            files = [os.path.join(path, name) for name in names if name.endswith(ends)]
        state = {}
        for file in files:
            state.update(_read(file))
    model.load_state_dict(state)


def _read(file) -> dict:
    if file.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(file)
    return torch.load(file, weights_only=True, map_location="cpu")
