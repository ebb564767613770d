"""DeepSpeed's ZeRO-3 on its own accelerator of the host: Transformers loads into parameters that
zero.Init has partitioned, and the engine trains, saves and resumes."""

import torch
from shardproof.subjects import job, source
from shardproof.subjects.launch import as_launched

CANNOT = {
    "plain": "it has one way of loading",
    "host_bound": "every rank reads every tensor of the checkpoint",
    "rng": "its checkpoints do not hold it",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {"placements": ["flat_shard"]}
NEEDS = "deepspeed"
RUNS = ("on_2 nightly: 2 qwen3-small --resume-world=2",)


def run(case, observe):
    as_launched(case, DS_ACCELERATOR="cpu", DS_BUILD_OPS="0")
    import deepspeed
    from transformers.integrations import HfDeepSpeedConfig

    deepspeed.init_distributed("gloo")
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": torch.bfloat16 in case.dtypes.values()},
        "zero_allow_untested_optimizer": True,
    }

    def load(observe):
        kept = HfDeepSpeedConfig(config)  # from_pretrained asks for it while it is alive
        model, missing, unexpected = source.loaded(case)
        observe("built", model=model)
        observe("loaded", model=model, missing=missing, unexpected=unexpected)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        engine, optimizer, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config
        )
        del kept
        return engine, optimizer

    def take_step(engine, optimizer, step):
        engine.backward(case.loss(engine, step))
        engine.step()

    def save(engine, optimizer):
        engine.save_checkpoint(case.save_to)

    def restore():
        engine, optimizer = load(job.unseen)
        engine.load_checkpoint(case.save_to)
        return engine, optimizer

    job.run(case, observe, load, save, restore, take_step)
