"""PyTorch DDP: every rank holds the whole model; construction broadcasts rank 0's values."""

import os

import torch.distributed as dist
from safetensors.torch import load_model, save_model
from torch.nn.parallel import DistributedDataParallel

CANNOT = {
    "plain": "it has one way of loading",
    "host_bound": "every rank holds the whole model",
}


def run(case, observe):
    observe_loading = (lambda *_, **__: None) if case.resumes else observe
    model = case.build("cpu")
    buffers = {name for name, _ in model.named_buffers()}  # parameters still await their values
    observe_loading(
        "built", model=model, content=lambda name: "defined" if name in buffers else "undefined"
    )
    if case.resumes:
        load_model(model, f"{case.save_to}/model.safetensors")
        return observe("restored", model=DistributedDataParallel(model))
    if case.rank == 0:
        keys = model.load_state_dict(case.state_dict(), strict=False)
        observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
    model = DistributedDataParallel(model)
    observe("ready", model=model)
    if not case.saves:
        return None
    if case.rank == 0:
        os.makedirs(case.save_to, exist_ok=True)
        save_model(model.module, f"{case.save_to}/model.safetensors")
    dist.barrier()
    observe("saved", model=model)
    if case.phase == "memory":
        return None
    restored = case.build("cpu")
    load_model(restored, f"{case.save_to}/model.safetensors")
    return observe("restored", model=DistributedDataParallel(restored))
