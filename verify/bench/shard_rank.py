"""One rank of the loaders that, like `each-reads-own`, do not send every tensor to every rank. Each
line of input names one and asks for a round, which is answered by when it began and ended; see
run.py.

    dcp-hf           torch.distributed.checkpoint with its HuggingFaceStorageReader, into FSDP2's
                     shards
    transformers     from_pretrained with a tensor-parallel plan: each rank reads its slices
    fastsafetensors  each rank reads the whole files that are its own, then scatters what is in them
                     along dim 0

The first round of each is compared with the files: a load that is fast and wrong is no rival.
"""

import json
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from fsdp_rank import empty_shards, files_of, give_back, join
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


def by_dcp(directory, shapes, mesh):
    """\\returns {name: DTensor}"""
    state = empty_shards(shapes, mesh).state_dict()
    dcp.load(state, storage_reader=HuggingFaceStorageReader(directory))
    return state


def by_transformers(directory, _shapes, _mesh):
    """\\returns {name: DTensor, or a whole tensor where the plan replicates it}"""
    from transformers import AutoModelForCausalLM
    from transformers.distributed import DistributedConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    plan = DistributedConfig(tp_size=dist.get_world_size(), tp_plan="auto")
    model = AutoModelForCausalLM.from_pretrained(directory, distributed_config=plan, dtype="auto")
    return dict(model.named_parameters())


def by_fastsafetensors(directory, shapes, mesh):
    """\\returns {name: DTensor}; a tensor whose rows the ranks do not divide is whole on every
    rank."""
    from fastsafetensors import SafeTensorsFileLoader

    world_size = dist.get_world_size()
    loader = SafeTensorsFileLoader(dist.group.WORLD, device="cpu", nogds=True)
    files = files_of(directory)
    loader.add_filenames({rank: files[rank::world_size] for rank in range(world_size)})
    buffers = loader.copy_files_to_device()
    loaded = {}
    for name, (shape, _) in shapes.items():
        if shape[0] % world_size:
            loaded[name] = buffers.get_tensor(name)
        else:
            loaded[name] = DTensor.from_local(buffers.get_sharded(name, 0), mesh, [Shard(0)])
    buffers.close()
    loader.close()
    return loaded


LOADERS = {"dcp-hf": by_dcp, "transformers": by_transformers, "fastsafetensors": by_fastsafetensors}


def check(what, loaded, directory):
    """That there is every tensor of the files, and this rank's part of each holds what they say."""
    full = {}
    for path in files_of(directory):
        full.update(load_file(path))
    where = f"shard_rank: {what}, rank {dist.get_rank()}"
    if loaded.keys() != full.keys():
        raise SystemExit(f"{where}: other tensors than the files have")
    for name, tensor in loaded.items():
        expected, seen = full[name], tensor.detach()
        if isinstance(seen, DTensor):
            expected = distribute_tensor(
                expected, seen.device_mesh, seen.placements, src_data_rank=None
            )
            expected, seen = expected.to_local(), seen.to_local()
        if seen.dtype != expected.dtype or not torch.equal(seen, expected):
            raise SystemExit(f"{where}: {name} is not what the file holds")


def main():
    directory, shapes, mesh = join()
    checked = set()
    for line in sys.stdin:
        what = line.strip()
        dist.barrier()
        begin = time.monotonic_ns()
        loaded = LOADERS[what](directory, shapes, mesh)
        end = time.monotonic_ns()
        if what not in checked:
            check(what, loaded, directory)
        checked.add(what)
        held = sum(
            t.to_local().nbytes if isinstance(t, DTensor) else t.nbytes for t in loaded.values()
        )
        del loaded
        give_back()
        print(json.dumps({"begin": begin, "end": end, "held_bytes": held}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
