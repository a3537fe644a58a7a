"""A MoCo-like run on Lightning with two CPU processes. Run by test_distributed.py."""

import sys
from pathlib import Path

import pytorch_lightning as pl
import torch
from lightly.loss import NTXentLoss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from adaptive_memory_bank.integrations.lightly import swap_memory_bank


class MoCo(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(130, 4), gather_distributed=True), "auto")

    def training_step(self, batch, _):
        (images,) = batch
        queries = self.encoder(images)
        keys = self.encoder(images + 0.1 * torch.randn_like(images))
        return 0.5 * (self.criterion(queries, keys.detach()) + self.criterion(keys, queries.detach()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder):
    images = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    torch.seed()  # every rank draws its own random rows
    model = MoCo()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, DataLoader(TensorDataset(images), batch_size=4))
    trainer.save_checkpoint(folder / "last.ckpt")
    bank = model.criterion.memory_bank
    torch.save({"bank": bank.bank, "filled": len(bank.memory)}, folder / f"rank{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
