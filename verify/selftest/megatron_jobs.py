#!/usr/bin/env python3
"""Jobs of Megatron-LM's own layers, pipeline and optimizers on four ranks over Gloo, each sound and
with a mistake: megatron_jobs.py [EVIDENCE], as ranked_jobs.run says.

Megatron-LM is written for CUDA. What it asks of torch.cuda is answered here for the host: which
device is the current one, its random numbers, where new tensors lie, and that host tensors are of
the types that it knows. All else is its own code.
"""

import sys

import ranked_jobs
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel as DDP
from megatron.core.distributed import DistributedDataParallelConfig as DDPConfig
from megatron.core.distributed import finalize_model_grads
from megatron.core.models import backends
from megatron.core.models.gpt import GPTModel, gpt_layer_specs
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig, transformer_block
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe import moe_utils

RANKS = 4
VOCABULARY, LENGTH, WIDTH = 64, 8, 16


def stand_in_for_cuda():
    random = tensor_parallel.random
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()
    torch.cuda.manual_seed = torch.manual_seed
    torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.cuda.FloatTensor, torch.cuda.IntTensor = torch.FloatTensor, torch.IntTensor
    for name in ("tensor", "zeros", "ones", "empty", "full"):
        setattr(torch, name, _on_the_host(getattr(torch, name)))
    type_of = torch.Tensor.type

    def told_type(self, dtype=None, **named):
        said = type_of(self, dtype, **named)
        return said.replace("torch.", "torch.cuda.", 1) if dtype is None else said

    torch.Tensor.type = told_type
    backends.LNImpl = transformer_block.LayerNormImpl = Norm
    moe_utils.te_general_gemm = None  # this release forgets to, without TransformerEngine


def _on_the_host(factory):
    def made(*arguments, **named):
        if "cuda" in str(named.get("device", "")):
            named["device"] = "cpu"
        return factory(*arguments, **named)

    return made


class Norm(torch.nn.LayerNorm):
    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


class Job:
    """A small GPT. axes: sizes of Megatron's groups; config: of the model; optimizer: of that.
    chunks: of each stage of the pipeline; tied: the output layer has the word embedding."""

    def __init__(self, axes=None, optimizer=None, chunks=1, tied=False, **config):
        parallel_state.initialize_model_parallel(**(axes or {}))
        tensor_parallel.model_parallel_cuda_manual_seed(1)
        torch.manual_seed(1)
        bf16 = config.get("bf16", False)
        dtype = torch.bfloat16 if bf16 else torch.float32
        self.config = TransformerConfig(
            num_layers=2 * chunks, hidden_size=WIDTH, num_attention_heads=4,
            use_cpu_initialization=True, attention_dropout=0.0, hidden_dropout=0.0,
            gradient_accumulation_fusion=False,
            bias_activation_fusion=False, bias_dropout_fusion=False, masked_softmax_fusion=False,
            persist_layer_norm=False, params_dtype=dtype, pipeline_dtype=dtype,
            finalize_model_grads_func=finalize_model_grads, **(axes or {}), **config,
        )  # fmt: skip
        spec = gpt_layer_specs.get_gpt_layer_local_spec(num_experts=config.get("num_moe_experts"))
        distributed = bool(optimizer and optimizer.get("use_distributed_optimizer"))
        ddp = DDPConfig(use_distributed_optimizer=distributed)
        self.chunks = []
        for number in range(chunks):
            net = self._net(spec, tied, {"vp_stage": number} if chunks > 1 else {})
            net = Float16Module(self.config, net) if bf16 else net
            self.chunks.append(DDP(self.config, ddp, net))
            self.chunks[-1].broadcast_params()
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=0.01, bf16=bf16, params_dtype=dtype,
                            **(optimizer or {})),
            self.chunks,
        )  # fmt: skip

    def _net(self, spec, tied, chunk):
        return GPTModel(
            self.config, spec, VOCABULARY, LENGTH, share_embeddings_and_output_weights=tied,
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=not chunk, **chunk),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=not chunk, **chunk),
            **chunk,
        )  # fmt: skip

    def step(self, without=None):
        """One step, each data-parallel rank on data of its own. without: a function of Megatron's
        that is left out, (module, name)."""
        kept = without and getattr(*without)
        if without:
            setattr(*without, lambda *_, **__: None)
        with torch.enable_grad():
            for chunk in self.chunks:
                chunk.zero_grad_buffer()
            get_forward_backward_func()(
                forward_step_func=_forward, data_iterator=[None] * len(self.chunks),
                model=self.chunks, num_microbatches=2 if len(self.chunks) > 1 else 1,
                seq_length=LENGTH, micro_batch_size=2, forward_only=False,
            )  # fmt: skip
        if without:
            setattr(*without, kept)
        self.optimizer.step()
        return self

    def named(self, name):
        (found,) = [
            p for chunk in self.chunks for own, p in chunk.named_parameters()
            if own.endswith("." + name)
        ]  # fmt: skip
        return found

    def told(self):
        model = self.chunks if len(self.chunks) > 1 else self.chunks[0]
        return model, {"optimizer": self.optimizer}


def _forward(_, model):
    own = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    tokens = torch.randint(VOCABULARY, (2, LENGTH), generator=own)
    places = torch.arange(LENGTH).expand(2, LENGTH)
    mask = torch.ones(1, 1, LENGTH, LENGTH).tril() < 0.5
    out = model(tokens, places, mask, labels=tokens)
    return out, lambda losses: (losses.float().mean(), {})


QKV, NORM = "decoder.layers.1.self_attention.linear_qkv.weight", "decoder.final_layernorm.weight"


def tensor_parallel_layers(mistake):
    """tp 2 x dp 2: column, row and vocabulary parallel."""
    job = Job({"tensor_model_parallel_size": 2}).step()
    if mistake == "norm" and ranked_jobs.is_rank(3):
        job.named(NORM).data[1] += 1
    if mistake == "part" and ranked_jobs.is_rank(3):
        job.named(QKV).data[2, 1] += 1
    if mistake == "vocabulary" and ranked_jobs.is_rank(2):
        job.named("embedding.word_embeddings.weight").data[5, 3] += 1
    return job.told()


def sequence_parallel(mistake):
    """The gradients of what each rank computes of a part of the sequence are to be added up."""
    job = Job({"tensor_model_parallel_size": 2}, sequence_parallel=True)
    module = sys.modules["megatron.core.distributed.finalize_model_grads"]
    name = "_allreduce_non_tensor_model_parallel_grads"
    return job.step((module, name) if mistake == "no_reduce" else None).told()


def data_parallel(mistake):
    """dp 4 with Megatron's DDP, whose gradients are to be added up."""
    job = Job()
    without = (type(job.chunks[0]), "finish_grad_sync") if mistake == "no_reduce" else None
    return job.step(without).told()


def pipeline(mistake):
    """pp 2 x dp 2."""
    job = Job({"pipeline_model_parallel_size": 2}).step()
    if mistake == "drift" and ranked_jobs.is_rank(3):
        job.named("decoder.layers.0.mlp.linear_fc1.bias").data[4] += 1
    return job.told()


def all_three(mistake):
    """tp 2 x pp 2."""
    job = Job({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}).step()
    if mistake == "norm" and ranked_jobs.is_rank(3):
        job.named(NORM).data[1] += 1
    return job.told()


def interleaved(mistake):
    """pp 2 x dp 2, with two chunks a stage: layers 0 and 2 on the first, 1 and 3 on the second."""
    axes = {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2}
    job = Job(axes, chunks=2).step()
    if mistake == "drift" and ranked_jobs.is_rank(3):
        job.chunks[1].module.decoder.layers[0].mlp.linear_fc1.bias.data[4] += 1
    return job.told()


def tied_stages(mistake):
    """pp 2 x dp 2: the last stage has a copy of the first one's word embedding. untied: the last
    stage has changed it, alike on both its ranks."""
    job = Job({"pipeline_model_parallel_size": 2}, tied=True).step()
    if mistake == "untied" and not parallel_state.is_pipeline_first_stage():
        job.named("output_layer.weight").data[1, 2] += 1
    return job.told()


def state_of(job, name):
    """What the distributed optimizer keeps on this rank of a parameter."""
    (optimizer,) = job.optimizer.chained_optimizers
    parameter = job.named(name)
    if parameter not in optimizer.model_param_group_index_map:
        return None
    group, place = optimizer.model_param_group_index_map[parameter]
    return optimizer.optimizer.state[optimizer.optimizer.param_groups[group]["params"][place]]


def distributed_optimizer(mistake, **config):
    """tp 2 x dp 2: each data-parallel rank has the state of a stretch of the parameters."""
    job = Job({"tensor_model_parallel_size": 2}, {"use_distributed_optimizer": True}, **config)
    job.step()
    if mistake == "stale" and ranked_jobs.is_rank(
        2
    ):  # as if it had not gathered what rank 0 updated
        job.named("embedding.position_embeddings.weight").data[0] -= 0.25
    state = state_of(job, NORM)
    if mistake == "moment" and ranked_jobs.is_rank(1):
        state["exp_avg"][3] += 1
    if mistake == "step" and ranked_jobs.is_rank(1):
        state["step"] += 1
    if mistake == "lost" and ranked_jobs.is_rank(1):
        state.clear()
    if mistake == "master" and ranked_jobs.is_rank(1):
        job.named(NORM).main_param.data[3] += 1
    return job.told()


def masters(mistake):
    """The same of a bf16 model, of which the optimizer has fp32 copies."""
    return distributed_optimizer(mistake, bf16=True)


def experts(mistake, optimizer=None):
    """ep 2 x expert dp 2: ranks 0 and 2 have the same experts, ranks 1 and 3 others."""
    job = Job(
        {"expert_model_parallel_size": 2}, optimizer, num_moe_experts=4, moe_router_topk=1,
        moe_router_pre_softmax=True, moe_token_dispatcher_type="allgather", add_bias_linear=False,
    ).step()  # fmt: skip
    expert = "decoder.layers.0.mlp.experts.local_experts.1.linear_fc2.weight"
    if mistake == "expert" and ranked_jobs.is_rank(3):
        job.named(expert).data[1, 2] += 1
    if mistake == "router" and ranked_jobs.is_rank(2):
        job.named("decoder.layers.1.mlp.router.weight").data[1, 2] += 1
    return job.told()


def experts_with_owners(mistake):
    """The same with distributed optimizers, one for the experts and one for the rest."""
    return experts(mistake, {"use_distributed_optimizer": True})


JOBS = {
    data_parallel: (None, "no_reduce"),
    tensor_parallel_layers: (None, "norm", "part", "vocabulary"),
    sequence_parallel: (None, "no_reduce"),
    pipeline: (None, "drift"),
    interleaved: (None, "drift"),
    tied_stages: (None, "untied"),
    all_three: (None, "norm"),
    distributed_optimizer: (None, "stale", "moment", "step", "lost"),
    masters: (None, "master"),
    experts: (None, "expert", "router"),
    experts_with_owners: (None, "expert"),
}

if __name__ == "__main__":
    stand_in_for_cuda()
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[1:2]))
