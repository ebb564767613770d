"""PyTorch FSDP2: built on meta, sharded, filled from rank 0, trained with AdamW, saved by DCP.

As a careful user would: non-persistent buffers and keys that the checkpoint lacks get the value
that a model built on the CPU has. What is tied and sharded stays tied through `to_empty`.
"""

import dcp_state
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from training import optimizer_of, train, unseen

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "set_model_state_dict makes no promise about host memory",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {
    "placements": ["shard"],
    "collectives": ["gather", "scatter"],  # DCP plans a save on rank 0
    "files": [".metadata", "*.distcp"],
    "stages": ["built", "sharded", "materialized", "loaded.keys", "saved.state_dict",
               "resumed@*.optimizer"],
}  # fmt: skip
READS = {"load=broadcast": "rank 0"}
RUNS = (
    # Without layers, and with keys that the checkpoint lacks.
    "own_model: 2 keys_differ.json --steps=0",
    "tp: dp_shard=1,tp=2 qwen3-small --steps=0",
    "on_1 nightly: 1 qwen3-small",
    "on_2: 2 llama-tied-small",
    "on_3 nightly: 3 llama-tied-small",
    "on_2x2: 2x2 qwen3-small",
    # Its other ways of working, several at once.
    "full_mixed: 2 llama-tied-small load=full mixed_precision=bf16",
    "by_hand_async: 2 llama-tied-small load=distribute save=async",
    # On a slow disk, what is not waited for is not there.
    "slow_disk nightly: 2 llama-tied-small load=distribute save=async --inject=file/slow@0:0",
)
PLAIN = {"load": "full"}
OPTIONS = {
    "load": ["broadcast", "full", "distribute"],  # from rank 0; every rank reads all; by hand
    "mixed_precision": ["no", "bf16"],
    "save": ["dcp", "async"],
}
# Of matrices that each rank along tp has a part of.
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "up")
ROWS = ("o_proj", "down_proj", "down")


def blocks_of(case, model):
    """The modules that get a group of their own: transformer layers, else untied children."""
    layers = getattr(getattr(model, "model", model), "layers", None)
    if layers is not None:
        return list(layers)
    tied = {name.split(".")[0] for tie in case.ties for name in tie}
    return [child for name, child in model.named_children() if name not in tied]


def cut(model, mesh):
    """Matrices of layers along tp. What is not cut each rank along it has."""
    for name, module in model.named_modules():
        leaf = name.rpartition(".")[2]
        if leaf in COLUMNS:
            parallelize_module(module, mesh, ColwiseParallel())
        elif leaf in ROWS:
            parallelize_module(module, mesh, RowwiseParallel())


def shard(case, model):
    mesh = case.device_mesh()
    if "tp" in case.mesh:
        cut(model, mesh["tp"])
        mesh = mesh[tuple(axis for axis in case.mesh if axis != "tp")]
    policy = MixedPrecisionPolicy()
    if case.options["mixed_precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks_of(case, model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def restore_buffers(model, source):
    """Gives buffers that no checkpoint holds the value that the model's own class gives them."""
    real = dict(source.named_buffers())
    for name, module in model.named_modules():
        for key in module._non_persistent_buffers_set:
            full = f"{name}.{key}" if name else key
            if full in real:  # some have no tensor before the first forward
                module._buffers[key].copy_(real[full])


def materialized(case, observe):
    model = case.build("meta")
    observe("built", model=model)
    shard(case, model)
    observe("sharded", model=model)
    model.to_empty(device="cpu")
    observe("materialized", model=model, content="undefined")
    restore_buffers(model, case.build("cpu"))
    return model


def full_state(case, model):
    """The checkpoint and, for what it lacks, initial values. \\returns it, missing, unexpected
    keys."""
    state = case.state_dict()
    wanted = model.state_dict().keys()
    tied = {name: names for names in ties_of(model) for name in names}
    missing = [key for key in wanted if not any(name in state for name in tied.get(key, [key]))]
    unexpected = [key for key in state if key not in wanted]
    if missing:
        initial = case.build("cpu").state_dict()
        state |= {key: initial[key] for key in missing}
    return {key: value for key, value in state.items() if key in wanted}, missing, unexpected


def ties_of(model):
    names_of = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of.setdefault(parameter, []).append(name)
    return names_of.values()


def load(case, model):
    """\\returns the keys that were missing, and those that were unexpected, as far as this rank
    reads."""
    broadcast = case.options["load"] == "broadcast"
    full, missing, unexpected = {}, None, None
    if (
        case.rank == 0 or not broadcast
    ):  # a copy of the whole checkpoint: no rank has one for nothing
        full, missing, unexpected = full_state(case, model)
    if case.options["load"] == "distribute":
        distribute(model, full)
        return missing, unexpected
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast, strict=False)
    set_model_state_dict(model, full, options=options)
    return missing, unexpected


def distribute(model, full):
    own = model.state_dict()
    for name, value in full.items():
        if isinstance(own[name], DTensor):
            value = distribute_tensor(value, own[name].device_mesh, own[name].placements)
        own[name].copy_(value)


def save(case, model, optimizer=None):
    return dcp_state.save(case, model, optimizer, case.options["save"])


def run(case, observe):
    if case.steps:
        return train(
            case,
            observe,
            loaded=lambda: loaded(case),
            save=lambda model, optimizer: save(case, model, optimizer),
            restored=lambda: restored(case),
        )
    if case.resumes:
        model = materialized(case, unseen)
    else:
        model = materialized(case, observe)
        missing, unexpected = load(case, model)
        if missing is not None:
            observe("loaded", missing=missing, unexpected=unexpected)
        observe("ready", model=model)
        if not case.saves:
            return None
        wait = save(case, model)
        observe("saved", model=model, state_dict=dcp_state.state_of(case, model, None)["model"])
        if wait:
            wait()
        if case.measures_memory:
            return None
        model = materialized(case, unseen)
    dcp_state.restore(case, model)
    return observe("restored", model=model)


def loaded(case):
    model = materialized(case, unseen)
    load(case, model)
    return model


def restored(case):
    model = materialized(case, unseen)
    optimizer = optimizer_of(model)
    dcp_state.restore(case, model, optimizer)
    return model, optimizer
