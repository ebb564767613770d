"""What a rank of a job came to, for a test to hold runs of it against each other."""

import atexit
import hashlib
import json
import random
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

random.seed(0)

# A thread of torch that asks for the interpreter while that is taken down has been seen to abort a
# rank whose work was done ("terminate called without an active exception"): it may end before.
atexit.register(time.sleep, 0.3)


def finish(model, optimizer, losses=()):
    """record(). With the word "drift" rank 1 has changed an element of a parameter before, and with
    "edited" the job asks shardproof.check, as an edited script does."""
    if "drift" in sys.argv and dist.get_rank() == 1:
        drift(model)
    if "edited" in sys.argv:
        import shardproof

        print(shardproof.check(model, optimizer=optimizer))
    return record(model, optimizer, losses)


def drift(model):
    with torch.no_grad():
        next(model.parameters()).view(-1)[2] += 1


def record(model, optimizer, losses=()):
    """Leaves losses, weights, the optimizer's state, random numbers and collectives in
    rank<K>.json."""
    came = came_to([model], [optimizer], losses)
    with open(f"rank{dist.get_rank()}.json", "w") as file:
        json.dump(came, file)
    return came


def came_to(models, optimizers, losses):
    """What `record` leaves."""
    own = nn.Module  # a wrapper of Megatron-LM's has a list in place of its method
    state = [each for model in models for each in (*own.parameters(model), *own.buffers(model))]
    state = [_part_of(each) if hasattr(each, "ds_tensor") else each for each in state]
    for optimizer in optimizers:
        state += [p for group in optimizer.param_groups for p in group["params"]]
        state += [v for each in optimizer.state.values() for v in each.values()]
    every = dist.distributed_c10d._world.pg_map
    groups = [group for group in every if dist.get_backend(group) != "fake"]  # which does nothing
    return {
        "losses": [loss.hex() for loss in losses],
        "sums": [_sum_of(value) for value in state if isinstance(value, torch.Tensor)],
        "torch": _sum_of(torch.get_rng_state()),
        "random": random.random(),
        "collectives": [group._get_sequence_number_for_group() for group in groups],
    }


def _part_of(parameter):
    """Of a parameter of ZeRO-3's, what this rank keeps, without padding, which nothing fills."""
    part = parameter.ds_tensor
    return part[: max(0, parameter.ds_numel - dist.get_rank() * part.numel())]


def _sum_of(value):
    local = getattr(value, "_local_tensor", value).detach()
    return hashlib.sha256(local.cpu().contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
