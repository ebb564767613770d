"""PEFT's LoRA on a base that Transformers loads, prepared by Accelerate's FSDP2.

The base is frozen; the adapter is new, or that of --adapter DIR. efficient=yes: only rank 0 reads
the base, and what it drew for the adapter reaches every rank; no: every rank reads it.
evaluate=yes: after each step the model is evaluated, which must change nothing.
"""

import torch
from shardproof.subjects import job, source
from shardproof.subjects.accelerate_fsdp2 import AccelerateFsdp2

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {"placements": ["shard"], "files": ["pytorch_model_fsdp_0"]}
NEEDS = "peft"
RUNS = ("on_2 nightly: 2 qwen3-small",)
OPTIONS = {
    "efficient": ["yes", "no"],
    "low_cpu_mem_usage": ["no", "yes"],
    "evaluate": ["no", "yes"],
}
PLAIN = {"efficient": "no"}


def run(case, observe):
    from peft import LoraConfig, PeftModel, get_peft_model

    efficient = case.options["efficient"] == "yes"
    fsdp2 = AccelerateFsdp2(case, cpu_ram_efficient_loading=efficient)

    def load(observe):
        model, missing, unexpected = source.loaded(case)
        words = {"low_cpu_mem_usage": case.options["low_cpu_mem_usage"] == "yes"}
        if case.adapter:
            model = PeftModel.from_pretrained(model, case.adapter, is_trainable=True, **words)
        else:
            config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
            model = get_peft_model(model, config, autocast_adapter_dtype=False, **words)
        observe("built", model=model, content=fsdp2.content(model))
        if case.rank == 0 or not efficient:
            observe("loaded", model=model, missing=missing, unexpected=unexpected)
        model.train()  # from_pretrained leaves the base as one that is evaluated
        trained = [each for each in model.parameters() if each.requires_grad]
        return fsdp2.prepare(model, torch.optim.AdamW(trained, lr=1e-3))

    def take_step(model, optimizer, step):
        job.step_of(case, model, optimizer, step)
        if case.options["evaluate"] == "yes":
            model.eval()
            with torch.no_grad():
                model(input_ids=torch.tensor([[1, 2, 3]]))
            model.train()

    job.run(case, observe, load, fsdp2.save, lambda: fsdp2.restore(*load(job.unseen)), take_step)
