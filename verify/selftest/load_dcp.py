#!/usr/bin/env python3
"""FSDP2 and AdamW on a mesh load a DCP directory, and save what they have then, whole: load_dcp.py
DCP OUT MESH

The model is that of save_dcp.py. OUT is a file of torch.save with "model", "optimizer" and "step".
"""

import os
import sys
from pathlib import Path

import save_dcp
import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def load(rank, directory, out, sizes):
    model, optimizer = save_dcp.sharded(rank, f"{out}.store", sizes)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.fill_(-7)  # what is not loaded shows
    of_model, of_optimizer = get_state_dict(model, optimizer)
    for state in of_optimizer["state"].values():
        for tensor in state.values():
            tensor.fill_(-7)
    state = {"model": of_model, "optimizer": of_optimizer, "step": 0}
    dcp.load(state, checkpoint_id=directory)
    set_state_dict(model, optimizer, model_state_dict=of_model, optim_state_dict=of_optimizer)
    full, full_optimizer = save_dcp.gathered(model, optimizer)
    if rank == 0:
        torch.save({"model": full, "optimizer": full_optimizer, "step": state["step"]}, out)
    save_dcp.end()


if __name__ == "__main__":
    source, target = (Path(word).resolve() for word in sys.argv[1:3])
    os.environ.update(MASTER_ADDR="127.0.0.1")
    shape = tuple(int(size) for size in sys.argv[3].split("x"))
    world_size = torch.Size(shape).numel()
    mp.start_processes(load, (source, target, shape), nprocs=world_size, start_method="fork")
