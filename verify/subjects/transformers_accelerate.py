"""Transformers' `from_pretrained` with FSDP_CPU_RAM_EFFICIENT_LOADING, then Accelerate's FSDP2.

efficient=yes: rank 0 reads the checkpoint; the others have placeholders until `prepare` broadcasts.
"""

import torch
from shardproof.subjects import job, source
from shardproof.subjects.accelerate_fsdp2 import AccelerateFsdp2

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {
    "placements": ["shard"],
    "collectives": ["broadcast"],
    "files": ["pytorch_model_fsdp_0", "optimizer_0", "random_states_*.pkl"],
    "stages": ["built", "loaded", "loaded.keys", "resumed@*.optimizer"],
}
NEEDS = "transformers"
RUNS = (
    "on_2 nightly: 2 qwen3-small",
    # Placeholders that are large enough to lie in pages of their own.
    "pages nightly: 2 qwen3-pages-small --steps=0",
    "own_model nightly: 2 smoke.json efficient=no --steps=0",
)
OPTIONS = {"efficient": ["yes", "no"]}
PLAIN = {"efficient": "no"}  # every rank reads the checkpoint


def run(case, observe):
    efficient = case.options["efficient"] == "yes"
    fsdp2 = AccelerateFsdp2(case, cpu_ram_efficient_loading=efficient)

    def load(observe):
        model, missing, unexpected = source.loaded(case)
        content = fsdp2.content(model)
        observe("built", model=model, content=content)
        observe("loaded", model=model, content=content, missing=missing, unexpected=unexpected)
        return fsdp2.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

    job.run(case, observe, load, fsdp2.save, lambda: fsdp2.restore(*load(job.unseen)))
