"""`swap_memory_bank`: every lightly bank of a module tree, in place."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.loss.regularizer import CO2Regularizer
from lightly.models.modules import NNMemoryBankModule as LightlyNNBank
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from torch import nn

from adaptive_memory_bank import AXBN, XBN, AdaptiveMemoryBank, AutoAXBN, Identity
from adaptive_memory_bank.integrations.lightly import (
    MemoryBankModule,
    NNMemoryBankModule,
    export_memory_bank,
    swap_memory_bank,
)


def unit(*shape, generator):
    return F.normalize(torch.randn(*shape, generator=generator), dim=-1)


class OwnLoss(LightlyBank):
    """A loss that is a bank, the way lightly's docstring shows it (at module level: pickle needs its name)."""

    def forward(self, output):
        output, negatives = super().forward(output, update=True)
        return (output @ negatives).logsumexp(1).mean()


class OwnQueue(LightlyBank):
    def _dequeue_and_enqueue(self, batch):
        self.bank.copy_(batch)


@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning:lightly")
@pytest.mark.parametrize("make", [NTXentLoss, CO2Regularizer])
def test_identity_leaves_every_loss_and_gradient_as_it_was_where_nothing_is_fused(make, generator):
    theirs = make(memory_bank_size=(12, 4))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity", fused=False)
    for _ in range(8):
        queries, keys = torch.randn(2, 4, 4, generator=generator)
        losses = []
        for criterion in (theirs, ours):
            leaf = queries.clone().requires_grad_()
            loss = criterion(leaf, keys)
            if make is NTXentLoss:  # CO2 detaches its result
                loss.backward()
            losses.append((loss.detach(), leaf.grad))
        assert torch.equal(losses[0][0], losses[1][0])
        assert make is CO2Regularizer or torch.equal(losses[0][1], losses[1][1])


def test_nearest_neighbours_stay_lightlys(generator):
    theirs = LightlyNNBank(size=(12, 4))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
    assert type(ours) is NNMemoryBankModule
    for step in range(9):
        rows = 3 * torch.randn(4, 4, generator=generator)
        assert torch.equal(ours(rows, update=step % 2 == 0), theirs(rows, update=step % 2 == 0))


def test_nearest_neighbours_are_realigned_and_keep_their_length(generator):
    bank = NNMemoryBankModule((4, 3), XBN())
    first, second = 5 * torch.randn(2, 4, 3, generator=generator)
    bank(first, update=True)
    nearest = bank(second, update=True)
    moved = (first - first.mean(0)) / first.std(0) * second.std(0) + second.mean(0)
    index = F.cosine_similarity(second[:, None], moved[None], dim=2).argmax(1)
    torch.testing.assert_close(nearest, moved[index])


def test_every_bank_of_a_tree_is_swapped_and_has_its_own_adapter():
    model = nn.ModuleDict(
        {
            "loss": NTXentLoss(memory_bank_size=(8, 4), gather_distributed=True),
            "co2": CO2Regularizer(memory_bank_size=[6, 4]),
            "deep": nn.Sequential(nn.Linear(2, 2), LightlyNNBank(size=(5, 4))),
            "plain": LightlyBank((7, 4), feature_dim_first=False),
        }
    )
    adapter = AXBN(q=0.5)
    assert swap_memory_bank(model, adapter) is model
    banks = [model["loss"].memory_bank, model["co2"].memory_bank, model["deep"][1], model["plain"]]
    assert [type(b) for b in banks] == [MemoryBankModule, MemoryBankModule, NNMemoryBankModule, MemoryBankModule]
    assert [tuple(b.size) for b in banks] == [(8, 4), (6, 4), (5, 4), (7, 4)]
    assert [b.gather_distributed for b in banks] == [True, False, False, False]
    assert [b.feature_dim_first for b in banks] == [True, True, True, False]
    assert len({id(b.memory.adapter) for b in banks}) == 4
    assert all(b.memory.adapter.q == 0.5 for b in banks)
    adapter.attach()  # serves none of them: it would refuse


@pytest.mark.parametrize("adapter", ["xbn", XBN(), XBN, lambda: XBN()])
def test_the_adapter_is_a_name_an_instance_or_a_factory(adapter):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 4)), adapter)
    assert isinstance(criterion.memory_bank.memory.adapter, XBN)


def test_an_adapter_in_use_elsewhere_is_copied():
    adapter = AXBN()
    bank = AdaptiveMemoryBank(4, 2, adapter)
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 4)), adapter)
    assert criterion.memory_bank.memory.adapter is not adapter
    assert bank.adapter is adapter


@pytest.mark.parametrize(
    ("module", "found"),
    [
        (nn.Linear(2, 2), "Linear has none to swap .0 of size 0"),
        (NTXentLoss(), "NTXentLoss has none to swap .1 of size 0"),
    ],
)
def test_a_tree_without_a_bank_is_refused(module, found):
    with pytest.raises(ValueError, match=f"`module` must contain a lightly memory bank, but .*{found}"):
        swap_memory_bank(module, "xbn")


def test_an_unknown_adapter_changes_nothing():
    criterion = NTXentLoss(memory_bank_size=(8, 4))
    with pytest.raises(ValueError, match="`adapter` must be one of"):
        swap_memory_bank(criterion, "nope")
    with pytest.raises(TypeError, match="`adapter` must be an Adapter or a name, got 3"):
        swap_memory_bank(criterion, 3)
    assert type(criterion.memory_bank) is LightlyBank


def test_rows_of_a_bank_in_use_stay_and_leave_oldest_first(generator):
    bank = LightlyBank((8, 3), feature_dim_first=False)
    for _ in range(3):
        bank(unit(2, 3, generator=generator), update=True)
    oldest_first = bank.bank.roll(-6, dims=0)
    swap_memory_bank(bank, "xbn")
    assert torch.equal(bank.bank, oldest_first)
    bank(unit(2, 3, generator=generator), update=True)
    assert torch.equal(bank.bank[2:], oldest_first[2:])


def test_a_users_own_subclass_is_swapped_copied_and_pickled(generator):
    torch.manual_seed(0)
    theirs = OwnLoss((8, 3))
    ours = swap_memory_bank(copy.deepcopy(theirs), Identity())
    for other in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(other, OwnLoss)
        assert isinstance(other, MemoryBankModule)
    for _ in range(3):
        keys = unit(4, 3, generator=generator)
        assert torch.equal(ours(keys), theirs(keys))
    assert len(pickle.loads(pickle.dumps(ours)).memory) == 8


def test_a_subclass_with_its_own_queue_is_refused():
    with pytest.raises(TypeError, match="OwnQueue has its own `_dequeue_and_enqueue`"):
        swap_memory_bank(OwnQueue((8, 3)))


def test_swapped_again_a_bank_keeps_its_rows_and_its_filter_starts_anew(generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(8, 4)), "xbn")
    for _ in range(3):
        criterion(torch.randn(3, 4, generator=generator).requires_grad_(), torch.randn(3, 4, generator=generator))
    before, position = criterion.memory_bank.bank, criterion.memory_bank.bank_ptr
    for adapter, fused in ((AutoAXBN, True), (AXBN, False), (Identity, True)):
        assert swap_memory_bank(criterion, adapter, fused=fused) is criterion
        assert type(criterion.memory_bank.memory.adapter) is adapter
        torch.testing.assert_close(criterion.memory_bank.bank, before)
        assert torch.equal(criterion.memory_bank.bank_ptr, position)
        assert isinstance(criterion, NTXentLoss)
        assert getattr(criterion, "is_fused", False) == fused
    keys = unit(2, 4, generator=generator)
    criterion(torch.randn(2, 4, generator=generator).requires_grad_(), keys)
    torch.testing.assert_close(criterion.memory_bank.bank[1:3], keys)  # nine rows went before, in eight slots


@pytest.mark.parametrize("adapter", ["identity", "auto"])
@pytest.mark.parametrize("batches", [1, 2, 5])
def test_exported_the_originals_have_the_rows_and_the_position(adapter, batches, generator):
    model = nn.Sequential(nn.Linear(2, 2), NTXentLoss(memory_bank_size=(10, 4)), OwnLoss((6, 3)), LightlyNNBank((5, 3)))
    kinds = [type(part) for part in model.modules()]
    swap_memory_bank(model, adapter)
    for _ in range(batches):
        model[1](torch.randn(4, 4, generator=generator).requires_grad_(), torch.randn(4, 4, generator=generator))
        model[2](unit(4, 3, generator=generator))
        model[3](torch.randn(4, 3, generator=generator), update=True)
    banks = [model[1].memory_bank, model[2], model[3]]
    rows, positions = [bank.bank for bank in banks], [bank.bank_ptr for bank in banks]
    assert export_memory_bank(model) is model
    assert [type(part) for part in model.modules()] == kinds
    for bank, held, position in zip(banks, rows, positions, strict=True):
        assert torch.equal(bank.bank, held)
        assert torch.equal(bank.bank_ptr, position)
        assert set(bank.state_dict()) == set()  # lightly saves no rows
    fresh = nn.Sequential(nn.Linear(2, 2), NTXentLoss(memory_bank_size=(10, 4)), OwnLoss((6, 3)), LightlyNNBank((5, 3)))
    assert [set(part.__dict__) for part in model.modules()] == [set(part.__dict__) for part in fresh.modules()]
    model[1](torch.randn(4, 4, generator=generator).requires_grad_(), torch.randn(4, 4, generator=generator))
    assert model[1].memory_bank.bank_ptr != positions[0]


class Derived(MemoryBankModule):
    pass


def test_where_there_is_no_original_export_refuses():
    with pytest.raises(ValueError, match="`module` must contain an adaptive lightly bank, but NTXentLoss has none"):
        export_memory_bank(NTXentLoss(memory_bank_size=(10, 4)))
    with pytest.raises(TypeError, match="Derived derives from an adaptive bank: there is no original"):
        export_memory_bank(Derived((4, 2)))


def test_a_checkpoint_of_another_adapter_loads_with_its_rows(generator):
    saved = swap_memory_bank(NTXentLoss(memory_bank_size=(10, 4)), "auto")
    for _ in range(4):
        saved(torch.randn(3, 4, generator=generator).requires_grad_(), torch.randn(3, 4, generator=generator))
    other = swap_memory_bank(NTXentLoss(memory_bank_size=(10, 4)), "xbn")
    with pytest.warns(UserWarning, match="another adapter than XBN: rows, labels and position were loaded") as warned:
        other.load_state_dict(saved.state_dict())
    assert len(warned) == 1
    assert torch.equal(other.memory_bank.bank, saved.memory_bank.bank)
    assert torch.equal(other.memory_bank.bank_ptr, saved.memory_bank.bank_ptr)
