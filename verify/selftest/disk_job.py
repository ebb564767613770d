"""A training script, started by torchrun, that saves and holds what it has against what it saved:
disk_job.py FOLDER SCENARIO ...

Each rank writes to FOLDER/rank<N>.json what came of each scenario: how it ended, and what was said.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import shardproof
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

FORMATS = ("dcp", "safetensors", "torch")


class Model(nn.Module):
    """Two dtypes, dims that two ranks do not halve, a tensor that one rank has nothing of, and a
    tied head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.low = nn.Linear(5, 3, dtype=torch.bfloat16)
        self.one = nn.Linear(3, 1)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(3.0))

    def forward(self, tokens):
        hidden = self.low(self.embed(tokens).bfloat16()).float() * self.scale
        return self.head(self.one(hidden).expand(-1, 5) + self.embed(tokens))


def build():
    torch.manual_seed(0)
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (model.low, model.one, model):
        fully_shard(part, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer):
    model(torch.arange(7)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(model, optimizer, folder):
    """Model and optimizer as DCP, the whole model in one file as safetensors and torch.save."""
    of_model, of_optimizer = get_state_dict(model, optimizer)
    dcp.save({"model": of_model, "optim": of_optimizer}, checkpoint_id=folder / "dcp")
    whole = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() == 0:
        torch.save({"model": whole}, folder / "torch.pt")
        whole.pop("head.weight", None)  # tied: safetensors keeps one name
        save_file({name: value.contiguous() for name, value in whole.items()},
                  folder / "safetensors.safetensors")  # fmt: skip
    dist.barrier()


def path_of(folder, kind):
    return folder / {"dcp": "dcp", "torch": "torch.pt"}.get(kind, f"{kind}.{kind}")


def file_of(folder, kind):
    """A file that holds tensors: of DCP that of rank 1."""
    return folder / "dcp" / "__1_0.distcp" if kind == "dcp" else path_of(folder, kind)


def flip_a_bit(folder, kind, value):
    """Of the last element among these bytes, wherever they are on disk."""
    path = file_of(folder, kind)
    data = bytearray(path.read_bytes())
    at = data.find(value)
    assert at >= 0 and data.find(value, at + 1) < 0, (path, at)
    data[at + len(value) - 2] ^= 1
    path.write_bytes(data)


def told(scenario, model, path, **options):
    """How a check against what is at the path ends on this rank, as data. model: or its digests."""
    try:
        taken = hasattr(model, "check")  # digests of what it was
        outcome = (model.check if taken else partial(shardproof.check, model))(
            against=path, **options
        )
    except shardproof.Mismatch as error:
        findings = [
            [one.kind, one.tensor, list(one.ranks), one.index, one.what] for one in error.findings
        ]
        return {"scenario": scenario, "end": "Mismatch", "said": str(error), "findings": findings}
    except (RuntimeError, TimeoutError) as error:
        return {"scenario": scenario, "end": type(error).__name__, "said": str(error)}
    return {
        "scenario": scenario, "end": "ok", "said": outcome.checkpoint,
        "inconclusive": list(outcome.inconclusive), "comparisons": outcome.comparisons,
    }  # fmt: skip


def sound(model, optimizer, folder):
    for kind in FORMATS:
        # Only DCP has the optimizer's state.
        given = {"optimizer": optimizer} if kind == "dcp" else {}
        yield told(f"sound {kind}", model, path_of(folder, kind), strict=True, **given)


def later(model, optimizer, folder):
    """The save ends when the model has been trained on."""
    taken = shardproof.digests(model, optimizer=optimizer)
    saving = dcp.async_save(
        {"model": get_model_state_dict(model)}, checkpoint_id=folder / "async",
        process_group=dist.new_group(backend="gloo"),  # beside the collectives of training
    )  # fmt: skip
    train(model, optimizer)
    saving.result()
    dist.barrier()
    yield told("later", taken, folder / "async")
    yield told("later dcp", taken, folder / "dcp", strict=True)
    yield told("later stale", shardproof.digests(model), folder / "async")


def stale(model, optimizer, folder):
    train(model, optimizer)
    for kind in FORMATS:
        yield told(f"stale {kind}", model, path_of(folder, kind))


def element(model, optimizer, folder):
    for kind in FORMATS:
        value = marked(model, kind)
        if dist.get_rank() == 0:
            flip_a_bit(folder, kind, value)
        dist.barrier()
        yield told(f"element {kind}", model, path_of(folder, kind))


def marked(model, kind):
    """The bytes on disk of low.weight: of DCP those of rank 1's shard."""
    weight = model.low.weight.full_tensor().detach()
    if kind == "dcp":
        weight = weight[2:]
    return bytes(weight.contiguous().reshape(-1).view(torch.uint8).tolist())


def missing(model, optimizer, folder):
    state = get_model_state_dict(model)
    del state["low.bias"]
    dcp.save(state, checkpoint_id=folder / "missing")
    yield told("missing", model, folder / "missing")
    yield told("missing strict", model, folder / "missing", strict=True)


def truncated(model, optimizer, folder):
    # One rank alone does not see the file: all are told.
    seen = path_of(folder, "torch") if dist.get_rank() == 0 else folder / "elsewhere"
    yield told("one rank", model, seen)
    for kind in FORMATS:
        if dist.get_rank() == 0:
            os.truncate(file_of(folder, kind), os.path.getsize(file_of(folder, kind)) - 100)
        dist.barrier()
        yield told(f"truncated {kind}", model, path_of(folder, kind))
    yield told("no directory", model, folder / "nothing")
    if dist.get_rank() == 0:
        (folder / "dcp" / ".metadata").unlink()
    dist.barrier()
    yield told("no metadata", model, folder / "dcp")


def layouts(model, optimizer, folder):
    """What was saved from one layout, held by models in others."""
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "model")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = Model()
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        whole = parameter.full_tensor().detach()
        cut = distribute_tensor(whole, mesh, [Shard(whole.dim() - 1)])
        owner, _, own = name.rpartition(".")
        setattr(columns.get_submodule(owner), own, nn.Parameter(cut))
    columns.head.weight = columns.embed.weight
    for path in (folder / "model", path_of(folder, "safetensors"), path_of(folder, "torch")):
        yield told(f"columns {path.name}", columns, path, strict=True)
    columns.low.weight.to_local().detach()[1, -1] += 1
    for path in (folder / "model", path_of(folder, "torch")):
        yield told(f"columns {path.name} changed", columns, path)


def fsdp1(model, optimizer, folder):
    """FSDP1 keeps a stretch of all parameters, laid end to end."""
    torch.manual_seed(0)
    flat = FullyShardedDataParallel(
        nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 1)), use_orig_params=True,
        device_id=torch.device("cpu"),
    )  # fmt: skip
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    # On the CPU these are views of memory that FSDP1 uses again.
    whole = {
        name: each.clone() for name, each in get_model_state_dict(flat, options=options).items()
    }
    if dist.get_rank() == 0:
        torch.save(whole, folder / "flat.pt")
    dist.barrier()
    yield told("flat", flat, folder / "flat.pt", strict=True)
    if dist.get_rank() == 0:
        whole["1.weight"][0, 2] = 0.5
        torch.save(whole, folder / "changed.pt")
    dist.barrier()
    yield told("flat changed", flat, folder / "changed.pt")


def replicas(model, optimizer, folder):
    """A model that both ranks have whole: one of them reads a tensor."""
    torch.manual_seed(0)
    whole = nn.parallel.DistributedDataParallel(Model())
    for name, changed in (("sound", {}), ("other", {"head.weight": torch.zeros(7, 5)})):
        if dist.get_rank() == 0:
            torch.save(get_model_state_dict(whole) | changed, folder / f"{name}.pt")
        dist.barrier()
        yield told(f"replicas {name}", whole, folder / f"{name}.pt")
    yield told("replicas alone", whole, None)


def sealed(model, optimizer, folder):
    """Seals what is live, and saves the model alone beside it."""
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / "model")
    shardproof.seal(model, optimizer, to=folder / "live.json", prefix="model.",
                    optimizer_prefix="optim.state.")  # fmt: skip
    of_model, of_optimizer = get_state_dict(model, optimizer)
    shardproof.seal({"model": of_model, "optim": of_optimizer}, to=folder / "state.json")
    shardproof.seal(model, to=folder / "model.json", prefix="model.")
    yield told("seal", model, folder / "live.json", strict=True, optimizer=optimizer)
    train(model, optimizer)
    yield told("stale seal", model, folder / "live.json")


def main(folder, *scenarios):
    dist.init_process_group("gloo")
    results = []
    for scenario in scenarios:
        own = Path(folder) / scenario
        if dist.get_rank() == 0:
            own.mkdir()
        dist.barrier()
        model, optimizer = build()
        train(model, optimizer)
        save(model, optimizer, own)
        results += globals()[scenario](model, optimizer, own)
        dist.barrier()
    (Path(folder) / f"rank{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
