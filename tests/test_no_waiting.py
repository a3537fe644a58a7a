"""No step reads a value back, which would make a GPU wait for everything before it.

Two ways to see it without a GPU. Fake tensors have shapes and a device but no values; they can pretend to be on a GPU,
and whatever depends on values, or mixes devices, raises (autograd's engine alone asks for a true GPU). And on the CPU,
with its shortcuts forbidden, reading operations are counted, backward passes included, and the numbers are the same.
"""

import pytest
import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.adapters import ADAPTERS
from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss

READ = {"_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "unique_consecutive", "masked_select", "equal"}
# Where shortcuts are taken:
SHORTCUTS = (
    "masks",
    "moments",
    "batch",
    "adapters.auto_axbn",
    "losses.related",
    "losses.walk",
    "integrations.pml.memory",
)
STEPS = 5  # of 8 rows, in a bank of 20: it fills, wraps, and folds


class CountReads(TorchDispatchMode):
    """Notes operations whose result or shape depends on values."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put_", "index_put") else ()
        if name in READ or any(i is not None and i.dtype == torch.bool for i in indices):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def pretended_gpu():
    if not hasattr(torch.compiler, "set_stance"):
        pytest.skip("before torch 2.6 a pretended GPU asks for a true one")
    with FakeTensorMode(), torch.device("cuda"):
        yield


@pytest.fixture
def no_shortcuts(monkeypatch):
    _set_shortcuts(monkeypatch, False)


def _set_shortcuts(patch, allowed):
    for module in SHORTCUTS:
        patch.setattr(f"adaptive_memory_bank.{module}.reading_is_free", lambda device: allowed)


def batches(device=None):
    generator = torch.Generator().manual_seed(0) if device is None else None
    for step in range(STEPS):
        rows = step / 4 + torch.randn(8, 4, device=device, generator=generator)
        yield rows, torch.arange(8, device=device) // 2 + step


def bank_steps(bank, device=None, labelled=True):
    """Every verb of a bank; the similarities of the last step."""
    for rows, labels in batches(device):
        labels = labels if labelled else None
        bank.update(rows, labels)
        bank.adapt(rows, labels)
        bank.enqueue(rows[:3], None if labels is None else labels[:3])
        found = bank.similarity(rows)
    return found


def loss_steps(loss, device=None, gradient=True):
    """Values and gradients of a few steps; InfoNCE takes the labels for ids."""
    results = []
    for rows, labels in batches(device):
        queries = rows.detach().requires_grad_(gradient)
        if isinstance(loss, MemoryInfoNCELoss):
            value = loss(queries, rows.flip(1), labels)
        else:
            value = loss(queries, rows.flip(1) if isinstance(loss, NTXentLoss) else labels)
        if gradient:
            value.backward()
        results += [value.detach(), queries.grad]
    return results


def supcon(**options):
    return MemorySupConLoss(AdaptiveMemoryBank(20, 4, **options), pos_margin=0.0, neg_margin=1.5, batch_weight=0.5)


def infonce(**options):
    return MemoryInfoNCELoss(AdaptiveMemoryBank(20, 4, **options))


def lightly(**options):
    torch.manual_seed(0)  # of the random rows that a queue begins with
    return swap_memory_bank(NTXentLoss(memory_bank_size=(20, 4)), options.get("adapter", "auto"))


def pml(loss, miner):
    def make(**options):
        memory = CrossBatchMemory(loss, 4, memory_size=20, miner=miner, **options)
        assert memory.is_fused
        return memory

    return make


PML = {
    "pml supcon": pml(pml_losses.SupConLoss(), miners.PairMarginMiner(0.0, 1.5)),
    "pml contrastive": pml(pml_losses.ContrastiveLoss(), None),
    "pml ntxent": pml(pml_losses.NTXentLoss(), miners.PairMarginMiner(0.0, 1.5)),
    "pml multi similarity": pml(pml_losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner()),
}
LOSSES = {"supcon": supcon, "infonce": infonce, "lightly": lightly, **PML}
losses = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
every_adapter = pytest.mark.parametrize("name", ADAPTERS)


def test_a_value_that_is_read_would_be_noticed(pretended_gpu):
    labels = torch.zeros(8, dtype=torch.int64)
    with pytest.raises(DynamicOutputShapeException):
        torch.unique(labels)
    with pytest.raises(Exception, match=r"data-dependent|_local_scalar_dense"):
        bool(labels.sum() > 0)


def test_a_value_that_is_read_would_be_counted():
    rows = torch.randn(3, 2)
    with CountReads() as reads:
        rows.sum().item(), rows[rows > 0], rows.tolist(), rows[rows > 0], rows.nonzero(), torch.unique(rows)
    assert len(reads.seen) >= 5


@every_adapter
@pytest.mark.parametrize("labelled", [False, True])
def test_verbs_of_a_bank_on_a_pretended_gpu(pretended_gpu, name, labelled):
    found = bank_steps(AdaptiveMemoryBank(20, 4, name), "cuda", labelled)
    assert (found.shape, found.device.type) == ((8, 20), "cuda")


@every_adapter
@losses
def test_losses_on_a_pretended_gpu(pretended_gpu, make, name):
    results = loss_steps(make(adapter=name), "cuda", gradient=False)
    assert results[0].device.type == "cuda"


@every_adapter
def test_verbs_of_a_bank_read_nothing_and_do_the_same(no_shortcuts, name):
    careful = AdaptiveMemoryBank(20, 4, name)
    with CountReads() as reads:
        found = bank_steps(careful)
    assert reads.seen == []
    with pytest.MonkeyPatch.context() as patch:
        _set_shortcuts(patch, True)
        torch.testing.assert_close(found, bank_steps(AdaptiveMemoryBank(20, 4, name)))


@losses
@every_adapter
def test_losses_read_nothing_and_do_the_same(no_shortcuts, make, name):
    with CountReads() as reads:
        results = loss_steps(make(adapter=name))
    assert reads.seen == []
    with pytest.MonkeyPatch.context() as patch:
        _set_shortcuts(patch, True)
        torch.testing.assert_close(results, loss_steps(make(adapter=name)))


@pytest.mark.parametrize("make", [supcon, infonce, *PML.values()], ids=["supcon", "infonce", *PML])
def test_a_bank_too_large_to_look_at_every_row_is_asked_once_a_step(no_shortcuts, monkeypatch, make):
    expected = loss_steps(make(adapter="auto"))
    monkeypatch.setattr("adaptive_memory_bank.losses.related.WIDEST", 0)
    with CountReads() as reads:
        results = loss_steps(make(adapter="auto"))
    asked = STEPS - (make is infonce)  # which compares before it enqueues: at first there are no rows
    assert reads.seen == ["nonzero"] * asked
    torch.testing.assert_close(results, expected)
