"""PyTorch DDP: every rank holds the whole model; construction broadcasts rank 0's values."""

import os

import torch
import torch.distributed as dist
from safetensors.torch import load_model, save_model
from torch.nn.parallel import DistributedDataParallel
from training import optimizer_of, train, unseen

CANNOT = {
    "plain": "it has one way of loading",
    "host_bound": "every rank holds the whole model",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {
    "collectives": ["broadcast"],
    "files": ["model.safetensors"],
    "stages": ["built", "loaded.keys", "saved.state_dict", "resumed@*.optimizer"],
}
READS = "rank 0"
RUNS = (
    "on_1 nightly: 1 qwen3-small",
    "on_2: 2 llama-tied-small",
    "on_3 nightly: 3 llama-tied-small",
    "on_2x2 nightly: 2x2 qwen3-small",
    # On a slow disk, what is not waited for is not there.
    "slow_disk nightly: 2 llama-tied-small --inject=file/slow@0:0",
)


def wrap(model):
    # Otherwise DDP orders its buckets anew after the first step, and with more than two ranks sums
    # are rounded otherwise from then on: a resumed job would differ in the last bit from one that
    # went on.
    return DistributedDataParallel(model, find_unused_parameters=True)


def loaded(case, observe):
    model = case.build("cpu")
    observe("built", model=model)
    if case.rank == 0:
        keys = model.load_state_dict(case.state_dict(), strict=False)
        observe("loaded", missing=keys.missing_keys, unexpected=keys.unexpected_keys)
    return wrap(model)


def save(case, model, optimizer=None):
    """Rank 0 writes what all have; of the random number generator every rank its own."""
    if case.rank == 0:
        os.makedirs(case.save_to, exist_ok=True)
        save_model(model.module, f"{case.save_to}/model.safetensors")
        if optimizer is not None:
            torch.save(optimizer.state_dict(), f"{case.save_to}/optimizer.pt")
    dist.barrier()
    if optimizer is not None:
        torch.save(torch.get_rng_state(), f"{case.save_to}/rng_{case.rank}.pt")


def restored(case):
    model = case.build("cpu")
    load_model(model, f"{case.save_to}/model.safetensors")
    model = wrap(model)
    if not case.steps:
        return model, None
    optimizer = optimizer_of(model)
    optimizer.load_state_dict(torch.load(f"{case.save_to}/optimizer.pt"))
    if not case.resumes:
        torch.set_rng_state(torch.load(f"{case.save_to}/rng_{case.rank}.pt"))
    return model, optimizer


def run(case, observe):
    if case.steps:
        return train(
            case,
            observe,
            loaded=lambda: loaded(case, unseen),
            save=lambda model, optimizer: save(case, model, optimizer),
            restored=lambda: restored(case),
        )
    if not case.resumes:
        model = loaded(case, observe)
        observe("ready", model=model)
        if not case.saves:
            return None
        save(case, model)
        observe("saved", model=model, state_dict=model.module.state_dict())
        if case.measures_memory:
            return None
    return observe("restored", model=restored(case)[0])
