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

from adaptive_memory_bank import AXBN, XBN, AdaptiveMemoryBank, Identity
from adaptive_memory_bank.integrations.lightly import MemoryBankModule, NNMemoryBankModule, swap_memory_bank


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
def test_identity_leaves_every_loss_and_gradient_as_it_was(make, generator):
    theirs = make(memory_bank_size=(12, 4))
    ours = swap_memory_bank(copy.deepcopy(theirs), "identity")
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
        (nn.Linear(2, 2), "Linear has none to swap .0 of size 0, 0 adaptive"),
        (NTXentLoss(), "NTXentLoss has none to swap .1 of size 0, 0 adaptive"),
        (MemoryBankModule((4, 2)), "0 of size 0, 1 adaptive already"),
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
