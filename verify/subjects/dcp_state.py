"""Model, optimizer and random number generator in one DCP checkpoint, as FSDP1 and FSDP2 save
them."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)


def state_of(case, model, optimizer):
    if optimizer is None:
        return {"model": get_model_state_dict(model)}
    of_model, of_optimizer = get_state_dict(model, optimizer)
    state = {"model": of_model, "optimizer": of_optimizer}
    if not case.resumes:  # on another mesh there are other ranks, with streams of their own
        state[f"rng_{case.rank}"] = torch.get_rng_state()
    return state


def save(case, model, optimizer=None, how="dcp"):
    """how: "dcp", or "async"; then it returns a function that waits. Either ends with a collective
    of all ranks, after rank 0 has written the metadata."""
    state = state_of(case, model, optimizer)
    if how == "async":
        # In the background it makes collectives of its own: on the default group they would meet
        # those of the training that goes on.
        group = dist.new_group()
        return dcp.async_save(state, checkpoint_id=case.save_to, process_group=group).result
    dcp.save(state, checkpoint_id=case.save_to)
    return None


def restore(case, model, optimizer=None):
    """Fills a model, and an optimizer, that were built anew."""
    state = state_of(case, model, optimizer)
    dcp.load(state, checkpoint_id=case.save_to)
    if optimizer is None:
        set_model_state_dict(model, state["model"])
        return
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    if not case.resumes:
        torch.set_rng_state(state[f"rng_{case.rank}"])
