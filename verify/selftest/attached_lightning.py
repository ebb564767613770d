"""Training by Lightning's Trainer, with DDP on two processes that it starts itself:
attached_lightning.py [drift] [edited]

With "drift" rank 1 changes a parameter before the last steps.
"""

import sys

import attached_record
import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)
        self.losses = []

    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)

    def on_train_batch_end(self, outputs, batch, index):
        if "drift" in sys.argv and self.global_step == 2 and self.global_rank == 1:
            attached_record.drift(self)

    def on_train_end(self):
        optimizer = self.optimizers().optimizer
        if "edited" in sys.argv:
            import shardproof

            print(shardproof.check(self.trainer.strategy.model, optimizer=optimizer))
        attached_record.record(self.trainer.strategy.model, optimizer, self.losses)


def main():
    lightning.seed_everything(0)
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 6)), 2)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Module(), batches)


if __name__ == "__main__":
    main()
