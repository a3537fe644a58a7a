"""`MemoryBankMonitor` with a real Lightning trainer and its own CSV logger."""

import csv

import pytest
import pytorch_lightning as pl
import torch
from lightly.loss import NTXentLoss
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.lightning import MemoryBankMonitor
from adaptive_memory_bank.losses import MemoryInfoNCELoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


class Model(pl.LightningModule):
    """One swapped criterion, and a second bank if asked for."""

    def __init__(self, both):
        super().__init__()
        self.encoder = nn.Linear(6, 4)
        self.criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(32, 4)), "xbn")
        self.other = MemoryInfoNCELoss(AdaptiveMemoryBank(64, 4, "identity")) if both else None

    def training_step(self, batch, _):
        queries, keys = self.encoder(batch[0]), self.encoder(batch[0] + 0.1).detach()
        loss = self.criterion(queries, keys)
        return loss if self.other is None else loss + self.other(queries, keys)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder, *, every, epochs=1, **options):
    return pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=CSVLogger(folder, name="", version=""),
        callbacks=[MemoryBankMonitor(every=every)],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
        **options,
    )


def images():
    rows = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(rows), batch_size=8)


def logged(folder):
    with (folder / "metrics.csv").open() as file:
        return [row for row in csv.DictReader(file) if any(value for name, value in row.items() if "bank/" in name)]


def test_whoever_only_swapped_sees_what_the_bank_does(tmp_path):
    model = Model(both=False)
    trainer(tmp_path, every=2).fit(model, images())
    rows = logged(tmp_path)
    assert [int(row["step"]) for row in rows] == [2, 4, 6]
    assert [float(row["bank/fill"]) for row in rows] == [0.5, 1.0, 1.0]
    assert [float(row["bank/age"]) for row in rows] == [0.5, 1.5, 1.5]
    assert {name for name in rows[0] if name.startswith("bank/")} == {
        f"bank/{name}" for name in banks(model)[0].stats()
    }
    assert all(float(row["bank/gain_mean"]) == 1 for row in rows)
    assert float(rows[-1]["bank/shift"]) == pytest.approx(banks(model)[0].stats()["shift"])


def banks(model):
    return [part for part in model.modules() if isinstance(part, AdaptiveMemoryBank)]


def test_several_banks_are_told_apart_by_their_paths(tmp_path):
    trainer(tmp_path, every=6).fit(Model(both=True), images())
    (row,) = logged(tmp_path)
    assert float(row["bank/criterion.memory_bank.memory/gain_mean"]) == 1
    assert float(row["bank/other.bank/gain_mean"]) == 0
    assert float(row["bank/other.bank/fill"]) == 0.75


def test_accumulated_batches_are_one_step_and_a_resumed_run_keeps_the_rhythm(tmp_path):
    first = trainer(tmp_path / "first", every=4, accumulate_grad_batches=2)  # three steps an epoch
    first.fit(Model(both=False), images())
    first.save_checkpoint(tmp_path / "last.ckpt")
    resumed = trainer(tmp_path / "second", every=4, epochs=4, accumulate_grad_batches=2)
    resumed.fit(Model(both=False), images(), ckpt_path=tmp_path / "last.ckpt", weights_only=False)
    assert [int(row["step"]) for row in logged(tmp_path / "second")] == [4, 8, 12]


def test_refuses_what_is_no_number_of_steps():
    with pytest.raises(ValueError, match="`every` must be a positive integer, got 0"):
        MemoryBankMonitor(every=0)
