"""The adaptive bank in the place of lightly's."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from lightly.loss import NTXentLoss
from lightly.models.modules import NNMemoryBankModule as LightlyNNBank
from lightly.models.modules.memory_bank import MemoryBankModule as LightlyBank
from torch import nn

from adaptive_memory_bank import XBN
from adaptive_memory_bank.integrations.lightly import MemoryBankModule, NNMemoryBankModule, swap_memory_bank


def unit(*shape, generator):
    return F.normalize(torch.randn(*shape, generator=generator), dim=-1)


def pair(size, **settings):
    """Lightly's bank and ours, drawn with the same seed."""
    torch.manual_seed(7)
    theirs = LightlyBank(size, **settings)
    torch.manual_seed(7)
    return theirs, MemoryBankModule(size, "identity", **settings)


class TestDropIn:
    @pytest.mark.parametrize("feature_dim_first", [True, False])
    @pytest.mark.parametrize("batch", [4, 12])
    def test_identity_equals_lightly_bit_for_bit_when_the_size_is_a_multiple_of_the_batch(
        self, generator, batch, feature_dim_first
    ):
        theirs, ours = pair((12, 5), feature_dim_first=feature_dim_first)
        for step in range(10):
            keys = unit(batch, 5, generator=generator)
            update = step % 4 != 3
            (their_output, their_rows), (output, rows) = theirs(keys, update=update), ours(keys, update=update)
            assert output is their_output
            assert torch.equal(rows, their_rows)
            assert rows.shape == their_rows.shape
            assert torch.equal(ours.bank, theirs.bank)
            assert torch.equal(ours.bank_ptr, theirs.bank_ptr)

    @pytest.mark.parametrize("size", [-1, 5, (-1, 3), (4, -3), (3,), (0, 1, 2), (2, 3, 4)])
    def test_errors_about_the_size_are_lightlys(self, size):
        with pytest.raises(ValueError, match=r"(?i)memory bank size") as theirs:
            LightlyBank(size)
        with pytest.raises(ValueError, match=r"(?i)memory bank size") as ours:
            MemoryBankModule(size)
        assert str(ours.value) == str(theirs.value)

    @pytest.mark.parametrize("size", [0, (0,), (0, 8), [0, 8]])
    def test_size_zero_is_no_bank(self, size, generator):
        keys = unit(4, 8, generator=generator)
        theirs, ours = LightlyBank(size), MemoryBankModule(size)
        assert ours.size == theirs.size
        assert ours.bank.shape == theirs.bank.shape
        assert ours(keys, update=True) == (keys, None) == theirs(keys, update=True)
        assert ours.state_dict() == {}

    @pytest.mark.parametrize("size", [(6, 3), [6, 3], torch.Size([6, 3])])
    def test_size_is_any_sequence_of_two(self, size):
        assert MemoryBankModule(size).size == LightlyBank(size).size == (6, 3)

    def test_is_an_instance_of_lightlys_class(self):
        assert isinstance(MemoryBankModule(size=(4, 2)), LightlyBank)
        assert isinstance(NNMemoryBankModule(size=(4, 2)), LightlyNNBank)

    def test_labels_are_ignored(self, generator):
        keys = unit(4, 3, generator=generator)
        bank = MemoryBankModule((8, 3), "auto")
        bank(keys, labels=torch.tensor([0, 0, 1, 1]), update=True)
        assert bank.memory.labels is None

    def test_a_wrong_dimension_is_named(self, generator):
        with pytest.raises(ValueError, match=r"`rows` must have shape \(B, 3\) but has shape \(4, 5\)"):
            MemoryBankModule((8, 3))(unit(4, 5, generator=generator), update=True)

    def test_a_flag_in_the_place_of_the_adapter_is_named(self):
        with pytest.raises(TypeError, match="`adapter` must be an Adapter or a name, got True"):
            MemoryBankModule((8, 3), True)


class TestRows:
    def test_no_row_is_lost_at_the_wrap(self, generator):
        bank = MemoryBankModule((10, 3), "identity", feature_dim_first=False)
        stream = unit(24, 3, generator=generator)
        for batch in stream.split(4):
            bank(batch, update=True)
        slots = torch.arange(14, 24) % 10  # row i of a stream lives in slot i % size
        assert torch.equal(bank.bank[slots], stream[-10:])

    def test_a_batch_larger_than_the_bank_leaves_its_newest_rows(self, generator):
        bank = MemoryBankModule((4, 3), "identity", feature_dim_first=False)
        keys = unit(9, 3, generator=generator)
        bank(keys, update=True)
        assert torch.equal(bank.bank[torch.arange(5, 9) % 4], keys[-4:])

    def test_the_snapshot_is_from_before_the_enqueue_and_after_the_adaptation(self, generator):
        bank = MemoryBankModule((8, 3), XBN(), feature_dim_first=False)
        first, second = unit(4, 3, generator=generator), unit(4, 3, generator=generator)
        bank(first, update=True)
        _, rows = bank(second, update=True)
        # XBN by hand: the four stored rows take the mean and the spread of the new batch, then unit length.
        moved = (first - first.mean(0)) / first.std(0) * second.std(0) + second.mean(0)
        torch.testing.assert_close(rows[:4], F.normalize(moved, dim=1))
        assert not torch.isclose(rows[4:], second).all(1).any()

    def test_realigned_rows_have_unit_length(self, generator):
        bank = MemoryBankModule((16, 6), "axbn", feature_dim_first=False)
        for _ in range(9):
            _, rows = bank(unit(5, 6, generator=generator), update=True)
            torch.testing.assert_close(rows.norm(dim=1), torch.ones(16))

    def test_random_rows_are_neither_counted_nor_moved(self, generator):
        bank = MemoryBankModule((32, 4), XBN(), feature_dim_first=False)
        before = bank.bank
        torch.testing.assert_close(before.norm(dim=1), torch.ones(32))
        for _ in range(3):
            keys = F.normalize(3 + torch.randn(6, 4, generator=generator), dim=1)
            bank(keys, update=True)
        assert torch.equal(bank.bank[18:], before[18:])
        assert bank.memory.moments.count == 18
        torch.testing.assert_close(bank.memory.moments.mean, bank.memory.embeddings.mean(0))

    def test_without_update_nothing_changes(self, generator):
        bank = MemoryBankModule((8, 3), "auto")
        bank(unit(4, 3, generator=generator), update=True)
        before = bank.bank
        bank(unit(4, 3, generator=generator), update=False)
        assert torch.equal(bank.bank, before)
        assert len(bank.memory) == 4

    def test_nothing_has_a_gradient_and_the_snapshot_is_ones_own(self, generator):
        bank = MemoryBankModule((8, 3), "axbn")
        keys = unit(4, 3, generator=generator).requires_grad_()
        _, rows = bank(keys, update=True)
        kept = rows.clone()
        bank(keys, update=True)
        assert not rows.requires_grad
        assert torch.equal(rows, kept)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_rows_come_in_the_type_of_the_batch_and_stay_in_their_own(self, dtype, generator):
        bank = MemoryBankModule((8, 3), "xbn")
        for _ in range(3):
            _, rows = bank(unit(4, 3, generator=generator).to(dtype), update=True)
            assert rows.dtype == dtype
        assert bank.memory.dtype == torch.float32
        assert bank.half().bank.dtype == torch.float16

    def test_the_bank_follows_the_device_of_the_batch(self):
        bank = MemoryBankModule((8, 3))
        _, rows = bank(torch.zeros(4, 3, device="meta"))
        assert rows.device.type == bank.memory.device.type == "meta"


class TestState:
    @pytest.mark.parametrize("filled", [0, 6, 30])
    def test_a_loaded_bank_goes_on_as_if_it_had_never_stopped(self, filled, generator):
        batches = unit(20, 6, 4, generator=generator)
        bank = MemoryBankModule((20, 4), "auto")
        for batch in batches[: filled // 6]:
            bank(batch, update=True)
        buffer = io.BytesIO()
        torch.save(bank.state_dict(), buffer)
        buffer.seek(0)
        resumed = MemoryBankModule((20, 4), "auto")
        for batch in batches:  # whatever it held is gone
            resumed(batch, update=True)
        resumed.load_state_dict(torch.load(buffer))
        for batch in batches:
            assert torch.equal(bank(batch, update=True)[1], resumed(batch, update=True)[1])

    @pytest.mark.parametrize("filled", [2, 5])
    def test_copies_and_pickles_are_whole(self, filled, generator):
        criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(10, 4)), "axbn")
        for _ in range(filled):
            criterion(unit(3, 4, generator=generator).requires_grad_(), unit(3, 4, generator=generator))
        for other in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
            assert torch.equal(other.memory_bank.bank, criterion.memory_bank.bank)
            other.memory_bank(unit(3, 4, generator=generator), update=True)
            assert not torch.equal(other.memory_bank.bank, criterion.memory_bank.bank)

    def test_a_checkpoint_without_queue_loads_with_a_warning_that_it_refills(self, generator):
        old = nn.Sequential(nn.Linear(3, 4), NTXentLoss(memory_bank_size=(10, 4)))
        new = swap_memory_bank(copy.deepcopy(old), "axbn")
        new[1].memory_bank(unit(3, 4, generator=generator), update=True)
        with pytest.warns(UserWarning, match="has no memory bank .* refills"):
            new.load_state_dict(old.state_dict())  # strict
        assert len(new[1].memory_bank.memory) == 0
        assert torch.equal(new[0].weight, old[0].weight)

    def test_another_size_is_refused(self):
        with pytest.raises(ValueError, match="A bank of size 8 and dim 4 cannot be loaded into one of size 10"):
            MemoryBankModule((10, 4)).load_state_dict(MemoryBankModule((8, 4)).state_dict())

    def test_the_queue_is_in_the_state_but_not_in_the_buffers(self):
        criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(10, 4)))
        assert any("ring.stored" in key for key in criterion.state_dict())
        assert any("filler" in key for key in criterion.state_dict())
        assert list(criterion.buffers()) == []

    def test_reset_draws_new_random_rows_for_a_bank_that_was_full(self, generator):
        bank = MemoryBankModule((6, 4), "xbn", feature_dim_first=False)
        bank(unit(6, 4, generator=generator), update=True)
        bank.memory.reset()
        assert len(bank.memory) == 0
        torch.testing.assert_close(bank.bank.norm(dim=1), torch.ones(6))


@pytest.mark.parametrize("adapter", ["identity", "xbn", "ema", "axbn", "auto"])
def test_a_symmetric_loss_is_two_forwards_and_one_backward(adapter, generator):
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(12, 4)), adapter)
    encoder = nn.Linear(6, 4)
    for _ in range(5):
        first, second = encoder(torch.randn(2, 4, 6, generator=generator))
        loss = 0.5 * (criterion(first, second.detach()) + criterion(second, first.detach()))
        encoder.zero_grad()
        loss.backward()
        assert encoder.weight.grad.isfinite().all()
        assert encoder.weight.grad.abs().sum() > 0
    assert criterion.memory_bank.memory.is_full
