#!/usr/bin/env python3
"""Jobs of torchtitan's own models and parallelisms on four ranks over Gloo, each sound and with a
mistake: torchtitan_jobs.py [EVIDENCE], as ranked_jobs.run says.

Models are its debug models; what parallelises them and cuts them into stages is its own. Attention
is torch's plain one, since FlexAttention has no backward pass on the host.
"""

import os
import sys

import ranked_jobs
import torch
import torch.distributed as dist
import torchtitan.models.deepseek_v3 as deepseek
import torchtitan.models.llama3 as llama
from torch.distributed.fsdp import FSDPModule
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed import ParallelDims, parallel_dims, utils
from torchtitan.models.common.attention import FlexAttention
from torchtitan.models.deepseek_v3.sharding import set_deepseek_v3_sharding_config
from torchtitan.models.llama3.sharding import set_llama3_sharding_config

RANKS = 4
LENGTH = 16


def _attention(self, q_BLNH, k_BLNH, v_BLNH, *, scale=None, enable_gqa=False, **_):
    """As FlexAttention's forward, of a causal mask."""
    out = torch.nn.functional.scaled_dot_product_attention(
        *(each.transpose(1, 2) for each in (q_BLNH, k_BLNH, v_BLNH)),
        is_causal=True, scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip
    return out.transpose(1, 2)


class Job:
    """spec: of the model. The rest: fields of torchtitan's ParallelismConfig."""

    def __init__(self, spec, **degrees):
        parallel_dims.device_type = "cpu"
        utils.set_spmd_backend("partial_dtensor")
        parallelism = ParallelismConfig(spmd_backend="partial_dtensor", **degrees)
        self.dims = ParallelDims.from_config(parallelism, RANKS)
        self.dims.build_mesh()
        training = TrainingConfig(
            local_batch_size=2, seq_len=LENGTH, mixed_precision_param="float32"
        )
        with torch.device("meta"):
            model = spec.model.build()
        common = dict(
            parallel_dims=self.dims, training=training, parallelism=parallelism,
            compile_config=CompileConfig(), ac_config=None, dump_folder=os.devnull,
        )  # fmt: skip
        self.schedule, self.parts = None, None
        if self.dims.pp_enabled:
            self.schedule, self.parts, self.first, self.last = spec.pipelining_fn(
                model, device=torch.device("cpu"), model_config=spec.model,
                parallelize_fn=spec.parallelize_fn,
                loss_fn=lambda *words, **_: (_loss(*words), None), **common,
            )  # fmt: skip
        else:
            self.parts = [spec.parallelize_fn(model, **common)]
        torch.manual_seed(1)
        for part in self.parts:
            part.to_empty(device="cpu")
            with torch.no_grad():
                part.init_weights(buffer_device=torch.device("cpu"))
            part.train()
            for module in part.modules():
                if isinstance(module, FSDPModule):  # Gloo has no weighted sum
                    module.set_force_sum_reduction_for_comms(True)
        self.optimizers = [torch.optim.AdamW(part.parameters(), lr=0.01) for part in self.parts]

    def step(self):
        own = torch.Generator().manual_seed(dist.get_rank() // (self.dims.tp * self.dims.pp))
        tokens = torch.randint(2048, (2, LENGTH), generator=own)
        with torch.enable_grad():
            if self.schedule is None:
                _loss(self.parts[0](tokens), tokens).backward()
            else:
                given = (tokens,) if self.first else ()
                target = tokens if self.last else None
                self.schedule.step(*given, target=target, losses=[] if self.last else None)
        for optimizer in self.optimizers:
            optimizer.step()
        return self

    def named(self, name):
        """This rank's part of a parameter."""
        (found,) = [p for part in self.parts for n, p in part.named_parameters() if n == name]
        return found.detach().to_local()

    def told(self, **said):
        return self.parts[0] if len(self.parts) == 1 else self.parts, {
            "optimizer": self.optimizers, **said,
        }  # fmt: skip


def _loss(out, tokens):
    out = getattr(out, "full_tensor", lambda: out)()
    return torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), tokens.flatten())


def dense():
    spec = llama.model_registry("debugmodel", attn_backend="flex")
    set_llama3_sharding_config(spec.model, enable_sp=True)
    return spec


def of_experts():
    spec = deepseek.model_registry("debugmodel", attn_backend="flex")
    set_deepseek_v3_sharding_config(spec.model, enable_sp=True, enable_ep=True)
    return spec


def sharded(mistake):
    """fsdp 4."""
    job = Job(dense()).step()
    if mistake == "nan" and ranked_jobs.is_rank(2):
        job.named("layers.1.attention.wo.weight")[0, 3] = torch.nan
    return job.told()


def hybrid(mistake):
    """dp_replicate 2 x fsdp 2."""
    job = Job(dense(), data_parallel_replicate_degree=2).step()
    if mistake == "replica" and ranked_jobs.is_rank(3):
        job.named("norm.weight")[1] += 1
    return job.told()


def tensor_parallel(mistake):
    """fsdp 2 x tp 2."""
    job = Job(dense(), tensor_parallel_degree=2).step()
    if mistake == "norm" and ranked_jobs.is_rank(3):
        job.named("norm.weight")[1] += 1
    return job.told(mesh=job.dims.get_mesh(["fsdp", "tp"]))


def pipeline(mistake):
    """pp 2 x fsdp 2."""
    job = Job(dense(), pipeline_parallel_degree=2, pipeline_parallel_schedule="1F1B").step()
    if mistake == "nan" and ranked_jobs.is_rank(3):
        job.named("norm.weight")[1] = torch.nan
    ranks = {axis: dist.get_process_group_ranks(job.dims.get_mesh(axis).get_group())
             for axis in ("pp", "fsdp")}  # fmt: skip
    return job.told(mesh=ranks)


def experts(mistake):
    """ep 2: dense weights on fsdp 4, experts on efsdp 2 x ep 2."""
    job = Job(of_experts(), expert_parallel_degree=2).step()
    if mistake == "nan" and ranked_jobs.is_rank(3):
        job.named("layers.1.moe.routed_experts.inner_experts.w1_EFD")[0, 1, 2] = torch.nan
    return job.told()


JOBS = {
    sharded: (None, "nan"),
    hybrid: (None, "replica"),
    tensor_parallel: (None, "norm"),
    pipeline: (None, "nan"),
    experts: (None, "nan"),
}

if __name__ == "__main__":
    FlexAttention.forward = _attention
    sys.exit(ranked_jobs.run(JOBS, *sys.argv[1:2]))
