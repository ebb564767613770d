"""torchtitan's Llama: built on meta, made parallel by its own function (FSDP2, tp), made real and
initialised, filled and saved by DCP as its checkpointer does. The checkpoint has torchtitan's
names: --model verify/subjects/torchtitan_llama.py:make.

Its steps need a compiler and a GPU, so it takes none.
"""

import torch
import torch.distributed.checkpoint as dcp
from shardproof.subjects import job
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

CANNOT = {
    "plain": "it has one way of loading",
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "it makes no promise about host memory",
    "keys": "DCP says of none that it is missing",
    "train": "its attention is compiled, for GPUs",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {"placements": ["shard"], "files": [".metadata", "*.distcp"]}
NEEDS = "torchtitan"
RUNS = ()  # none of the checkpoints that tests make has its names


def make():
    """Its debug model, smaller, with q, k and v apart as in files."""
    from torchtitan.models.common import ComplexRoPE
    from torchtitan.models.llama3 import _build_llama3_layers, _debugmodel
    from torchtitan.models.llama3.sharding import set_llama3_sharding_config

    config = _debugmodel("flex")
    config.layers = _build_llama3_layers(
        fuse_qkv=False, n_layers=2, dim=config.dim, n_heads=8, n_kv_heads=4, hidden_dim=512,
        rope=ComplexRoPE.Config(dim=config.dim // 8, max_seq_len=128), attn_backend="flex",
    )  # fmt: skip
    set_llama3_sharding_config(config, enable_sp=False)
    return config.build()


def run(case, observe):
    from torchtitan import config
    from torchtitan.distributed import ParallelDims, parallel_dims
    from torchtitan.models.llama3 import parallelize_llama

    parallel_dims.device_type = "cpu"  # it takes CUDA for granted
    parallelism = config.ParallelismConfig(
        data_parallel_replicate_degree=case.mesh.get("dp_replicate", 1),
        data_parallel_shard_degree=case.mesh.get("dp_shard", 1),
        tensor_parallel_degree=case.mesh.get("tp", 1),
    )

    dims = ParallelDims.from_config(parallelism, case.world_size)  # it has the meshes

    def load(observe, filled=True):
        model = case.build("meta")
        observe("built", model=model)
        parallelize_llama(
            model, parallel_dims=dims, training=config.TrainingConfig(), parallelism=parallelism,
            compile_config=config.CompileConfig(enable=False), ac_config=None, dump_folder="",
        )  # fmt: skip
        observe("sharded", model=model)
        model.to_empty(device="cpu")
        with torch.no_grad():
            model.init_weights(buffer_device=None)
        if filled:
            read(model, case.checkpoint, HuggingFaceStorageReader(case.checkpoint))
        return model, None

    def save(model, _):
        dcp.save(get_model_state_dict(model), checkpoint_id=case.save_to)

    def restore():
        model, _ = load(job.unseen, filled=False)
        read(model, case.save_to)
        return model, None

    job.run(case, observe, load, save, restore)


def read(model, directory, reader=None):
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=directory, storage_reader=reader)
    set_model_state_dict(model, state)
