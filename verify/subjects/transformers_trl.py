"""TRL's SFTTrainer on a model that Transformers loads, whose Accelerator prepares FSDP2.

efficient=yes: only rank 0 reads the checkpoint. The batches are the trainer's own.
"""

import contextlib

import torch
from shardproof.subjects import source
from shardproof.subjects.accelerate_fsdp2 import AccelerateFsdp2

CANNOT = {
    "identity": "fully_shard replaces every parameter by a DTensor of its own",
    "host_bound": "rank 0 has the whole model until it is sharded",
    "save": "only its loading and its steps are looked at",
    "lost_ranks": "Gloo says that a connection was closed, and torch not whose",
}
SHOWS = {"placements": ["shard"], "collectives": ["broadcast"]}
NEEDS = "trl"
RUNS = ("on_2 nightly: 2 qwen3-small",)
OPTIONS = {"efficient": ["yes", "no"]}
PLAIN = {"efficient": "no"}


def run(case, observe):
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    class Watch(TrainerCallback):
        def on_train_begin(self, *_, model, optimizer, **__):
            observe("ready", model=model, optimizer=optimizer)
            if not case.steps:
                raise Ready

        def on_step_end(self, _, state, *__, model, optimizer, **___):
            observe("stepped", model=model, optimizer=optimizer, step=state.global_step)

    efficient = case.options["efficient"] == "yes"
    arguments = SFTConfig(
        f"{case.save_to}.trainer", use_cpu=True, bf16=False, max_steps=max(1, case.steps),
        per_device_train_batch_size=2, gradient_checkpointing=False, save_strategy="no",
        report_to="none", disable_tqdm=True,
    )  # fmt: skip
    assert arguments.device.type == "cpu"  # which makes Accelerate forget what it was told before
    fsdp2 = AccelerateFsdp2(case, cpu_ram_efficient_loading=efficient)
    model, missing, unexpected = source.loaded(case)
    observe("built", model=model, content=fsdp2.content(model))
    if case.rank == 0 or not efficient:
        observe("loaded", model=model, missing=missing, unexpected=unexpected)
    trainer = SFTTrainer(
        model, arguments, train_dataset=rows(model.config.vocab_size),
        processing_class=tokenizer(), callbacks=[Watch()],
    )  # fmt: skip
    with contextlib.suppress(Ready):
        trainer.train()


class Ready(Exception):
    """Nothing but the loading is asked for."""


def rows(vocabulary):
    from datasets import Dataset

    tokens = torch.randint(vocabulary, (64, 8), generator=torch.Generator().manual_seed(0))
    return Dataset.from_dict({"input_ids": tokens.tolist()})


def tokenizer():
    """It has two words, for none is looked up: the rows are numbers."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
