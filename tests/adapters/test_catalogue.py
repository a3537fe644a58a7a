"""Adapters of others: by `package.module:Class`, and by a name that their package declares."""

import sys

import pytest
import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning.losses import ContrastiveLoss

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.adapters import ENTRY_POINTS, adapter_names, find_adapter, make_adapter
from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

SOURCE = """
from adaptive_memory_bank import Adapter


class Shifted(Adapter):
    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.by = by

    def observe(self, batch):
        return batch._replace(mean=batch.mean + self.by)


class Stranger:
    pass
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with an adapter, and a declaration of it as entry point `shifted`."""
    (tmp_path / "their_package.py").write_text(SOURCE, encoding="utf-8")
    declaration = tmp_path / "their_package-1.0.dist-info"
    declaration.mkdir()
    (declaration / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (declaration / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\nshifted = their_package:Shifted\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_package", raising=False)
    return tmp_path


@pytest.mark.parametrize("name", ["their_package:Shifted", "shifted"])
def test_it_is_found_wherever_a_name_is_taken(package, name):
    assert find_adapter(name).__name__ == "Shifted"
    assert make_adapter(name, by=3.0).by == 3.0
    rows = torch.randn(8, 4)
    bank = AdaptiveMemoryBank(size=16, dim=4, adapter=name)
    bank.update(rows)
    bank.adapt(rows)
    # By default it asks for the mean of the batch plus 1.
    torch.testing.assert_close(bank.moments.mean, rows.mean(0) + 1)
    criterion = NTXentLoss(memory_bank_size=(16, 4))
    swap_memory_bank(criterion, name)
    assert criterion.memory_bank.memory.adapter.by == 1.0
    memory = CrossBatchMemory(ContrastiveLoss(), embedding_size=4, memory_size=16, adapter=name)
    assert memory.bank.adapter.by == 1.0


def test_declared_names_are_listed_after_ours(package):
    assert adapter_names() == ("identity", "xbm", "xbn", "ema", "axbn", "kalman", "auto", "shifted")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:Shifted", "`adapter` nowhere:Shifted cannot be imported: No module named 'nowhere'"),
        ("their_package:Shiftd", "`adapter` their_package:Shiftd cannot be imported: module 'their_package' has no"),
        ("their_package:Stranger", "must be a subclass of `adaptive_memory_bank.Adapter`, got <class"),
        (":Shifted", "`adapter` :Shifted cannot be imported"),
        ("shiftd", "auto, shifted, or `package.module:Class`, got 'shiftd'"),
    ],
)
def test_what_cannot_be_found_is_refused_with_the_reason(package, name, message):
    with pytest.raises(ValueError, match=message):
        make_adapter(name)
