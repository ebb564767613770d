"""Training of a small Llama by Transformers' Trainer or by Accelerate:
attached_trainer.py WHAT [drift] [edited]
"""

import sys

import attached_record
import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        tokens = torch.randint(64, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def model():
    """Loaded as users load one: each rank reads the same files."""
    torch.manual_seed(0)
    if dist.get_rank() == 0:
        LlamaForCausalLM(CONFIG).save_pretrained("pretrained")
    dist.barrier()
    return LlamaForCausalLM.from_pretrained("pretrained")


def by_trainer():
    arguments = TrainingArguments(
        output_dir="trained", max_steps=4, save_steps=2, per_device_train_batch_size=2,
        use_cpu=True, report_to=[], logging_steps=1, disable_tqdm=True, seed=3,
    )  # fmt: skip
    trainer = Trainer(model=model(), args=arguments, train_dataset=Tokens())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    attached_record.finish(trainer.model, trainer.optimizer, [float(loss) for loss in losses])
    return trainer


def by_accelerate():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    own = model()
    optimizer = torch.optim.AdamW(own.parameters(), lr=0.01)
    batches = torch.utils.data.DataLoader(Tokens(), batch_size=2)
    own, optimizer, batches = accelerator.prepare(own, optimizer, batches)
    losses = []
    for batch in batches:
        loss = own(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    accelerator.save_state("accelerated")
    accelerator.wait_for_everyone()
    accelerator.load_state("accelerated")
    attached_record.finish(own, optimizer.optimizer, losses)
    return own


if __name__ == "__main__":
    kept = {"trainer": by_trainer, "accelerate": by_accelerate}[sys.argv[1]]()
