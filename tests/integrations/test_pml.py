"""The adaptive memory in the place of PML's: equal where it should be, whole where the original breaks."""

import inspect

import pytest
import torch
from pytorch_metric_learning import losses, miners
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import CrossBatchMemory as Original
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

from adaptive_memory_bank import XBN, AdaptiveMemoryBank, AutoAXBN
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

DIM, SIZE, BATCH = 8, 40, 12
SUPPORTED = Original.supported_losses()
MINERS = {"all": lambda: None, "pairs": miners.PairMarginMiner, "triplets": miners.TripletMarginMiner}


class OwnSupCon(losses.SupConLoss):
    """A subclass as users write them."""


def batch(generator, size=BATCH, classes=4):
    return torch.randn(size, DIM, generator=generator), torch.randint(classes, (size,), generator=generator)


def memory_of(loss=None, size=SIZE, **settings):
    return CrossBatchMemory(losses.SupConLoss() if loss is None else loss, DIM, size, **settings)


class TestEqualsTheOriginal:
    @pytest.mark.parametrize("call", ["plain", "mask", "pairs", "triplets"])
    @pytest.mark.parametrize("miner", MINERS)
    @pytest.mark.parametrize("loss", SUPPORTED)
    def test_identity_has_the_value_and_the_gradient_of_the_original(self, loss, miner, call, generator):
        # PML reads given positives and negatives as slots of the memory. A size of whole batches with the same labels
        # makes row i and slot i agree; elsewhere the ring may wrap inside a batch.
        size, batch_size = {"plain": 19, "mask": 10}.get(call, 16), 8
        pair = [
            Original(getattr(losses, loss)(), DIM, size, miner=MINERS[miner]()),
            CrossBatchMemory(
                getattr(losses, loss)(), DIM, size, miner=MINERS[miner](), adapter="identity", fused=False
            ),
        ]
        labels = torch.arange(batch_size) % 3
        for _ in range(4):
            rows = torch.randn(batch_size, DIM, generator=generator)
            arguments = {"enqueue_mask": torch.arange(batch_size) % 2 == 0} if call == "mask" else {}
            if call in ("pairs", "triplets"):
                arguments["indices_tuple"] = MINERS[call]()(rows, labels)
            results = []
            for memory in pair:
                torch.manual_seed(0)  # some losses draw triplets
                leaf = rows.clone().requires_grad_()
                value = memory(leaf, labels, **arguments)
                value.backward()
                results.append((value.detach(), leaf.grad))
            assert results[0][1].isfinite().all()
            torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)
        assert torch.equal(pair[0].embedding_memory, pair[1].embedding_memory)
        assert torch.equal(pair[0].label_memory, pair[1].label_memory)

    @pytest.mark.parametrize("name", ["forward", "add_to_memory", "create_indices_tuple", "reset_queue", "__init__"])
    def test_the_parameters_of_the_original_come_first_and_have_its_defaults(self, name):
        theirs = inspect.signature(getattr(Original, name)).parameters.values()
        ours = inspect.signature(getattr(CrossBatchMemory, name)).parameters.values()
        plain = [p for p in theirs if p.kind is not p.VAR_KEYWORD]
        assert [(p.name, p.default) for p in plain] == [(p.name, p.default) for p in ours][: len(plain)]

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32])
    def test_labels_of_any_type_are_compared_alike(self, dtype, generator):
        pair = Original(losses.SupConLoss(), DIM, SIZE), memory_of(adapter="identity")
        for _ in range(5):
            rows, labels = batch(generator)
            torch.testing.assert_close(pair[1](rows, labels.to(dtype)), pair[0](rows, labels.to(dtype)))
        assert torch.equal(pair[1].label_memory, pair[0].label_memory)

    def test_labels_that_are_no_whole_numbers_are_refused(self, generator):
        rows, labels = batch(generator)
        with pytest.raises(ValueError, match="`labels` must be whole numbers"):
            memory_of()(rows, labels + 0.5)


class TestAdapts:
    def test_the_default_adapter_is_auto(self):
        assert isinstance(memory_of().bank.adapter, AutoAXBN)

    def test_raw_rows_are_realigned_before_the_batch_joins_them(self, generator):
        memory = memory_of(adapter=XBN())
        (first, labels), (second, _) = batch(generator), batch(generator)
        second = 3 + 2 * second
        memory(first, labels)
        memory(second, labels)
        moved = (first - first.mean(0)) / first.std(0) * second.std(0) + second.mean(0)
        torch.testing.assert_close(memory.embedding_memory[:BATCH], moved)
        torch.testing.assert_close(memory.embedding_memory[BATCH : 2 * BATCH], second)
        assert not memory.embedding_memory[2 * BATCH :].any()

    @pytest.mark.parametrize("adapter", ["xbn", "ema", "axbn", "auto"])
    def test_it_is_the_plain_loss_against_the_core_bank(self, adapter, generator):
        loss = losses.SupConLoss()
        memory, bank = memory_of(loss, size=1000, adapter=adapter), AdaptiveMemoryBank(1000, DIM, adapter)
        for step in range(4):
            rows, labels = batch(generator)
            leaf = rows.clone().requires_grad_()
            memory(leaf, labels).backward()
            bank.update(rows, labels)
            own = torch.arange(BATCH) + step * BATCH
            expected = rows.clone().requires_grad_()
            same = labels[:, None] == bank.labels
            same[torch.arange(BATCH), own] = False
            pairs = (*torch.where(same), *torch.where(labels[:, None] != bank.labels))
            loss(expected, labels, pairs, bank.embeddings, bank.labels).backward()
            torch.testing.assert_close(leaf.grad, expected.grad)

    def test_with_a_mask_it_adapts_to_the_keys_only(self, generator):
        keys_alone, memory = memory_of(adapter="axbn"), memory_of(adapter="axbn")
        mask = torch.arange(2 * BATCH) >= BATCH
        for step in range(5):
            (queries, labels), (keys, _) = batch(generator), batch(generator)
            memory(torch.cat([100 * queries, keys + step]), torch.cat([labels, labels]), enqueue_mask=mask)
            keys_alone.add_to_memory(keys + step, labels, BATCH)
            torch.testing.assert_close(memory.embedding_memory, keys_alone.embedding_memory)

    def test_several_forwards_may_precede_one_backward(self, generator):
        memory = memory_of()
        leaf = torch.randn(BATCH, DIM, generator=generator, requires_grad=True)
        labels = torch.arange(BATCH) % 4
        total = sum(memory(leaf * scale, labels) for scale in range(1, 6))  # past the wrap: PML's raises here
        total.backward()
        assert leaf.grad.isfinite().all()


class TestWhereTheOriginalBreaks:
    @pytest.mark.parametrize("loss", SUPPORTED)
    def test_an_empty_mask_stores_nothing_and_a_full_one_compares_nothing(self, loss, generator):
        memory = memory_of(getattr(losses, loss)(), adapter="axbn")
        none, all_rows = torch.zeros(BATCH, dtype=torch.bool), torch.ones(BATCH, dtype=torch.bool)
        for mask, filled in ((none, 0), (all_rows, BATCH), (none, BATCH)):
            rows, labels = batch(generator)
            rows.requires_grad_()
            value = memory(rows, labels, enqueue_mask=mask)
            value.backward()
            assert rows.grad.isfinite().all()
            assert memory.queue_idx == filled
            assert not memory.has_been_filled

    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("miner", MINERS)
    def test_more_rows_than_the_memory_leave_the_newest(self, miner, masked, generator):
        memory = memory_of(size=5, miner=MINERS[miner](), adapter="identity")
        for _ in range(3):
            rows, labels = batch(generator)
            rows.requires_grad_()
            mask = torch.arange(BATCH) < 9 if masked else None
            start = memory.queue_idx
            memory(rows, labels, enqueue_mask=mask).backward()
            stored = (rows[:9] if masked else rows).detach()
            slots = torch.arange(start, start + len(stored))[-5:] % 5
            assert torch.equal(memory.embedding_memory[slots], stored[-5:])
            assert memory.has_been_filled

    def test_self_comparisons_are_left_out_also_where_only_the_newest_rows_are_stored(self, generator):
        memory = memory_of(size=5, adapter="identity")
        rows, labels = batch(generator, classes=1)
        memory(rows, labels)
        assert memory.curr_batch_idx.tolist() == [-1] * 7 + [2, 3, 4, 0, 1]  # rows 7 to 11 live in slots i % 5
        anchor, positive, *_ = memory.create_indices_tuple(
            rows, labels, memory.embedding_memory, memory.label_memory, None, True
        )
        assert len(anchor) == BATCH * 5 - 5
        assert not torch.equal(rows[anchor], memory.embedding_memory[positive])
        assert not (rows[anchor] == memory.embedding_memory[positive]).all(1).any()

    def test_a_row_with_nan_is_not_stored_and_the_others_keep_their_slots(self, generator):
        memory = memory_of(adapter="xbn")
        rows, labels = batch(generator)
        rows[3] = float("nan")
        memory(rows, labels)
        assert memory.curr_batch_idx.tolist() == [0, 1, 2, -1, *range(4, 12)]
        assert (memory.queue_idx, len(memory.bank)) == (BATCH, BATCH - 1)  # it leaves a gap
        rows, labels = batch(generator)
        assert memory(rows, labels).isfinite()

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("loss", ["SupConLoss", "NTXentLoss", "ContrastiveLoss", "MultiSimilarityLoss"])
    def test_mixed_precision_never_changes_the_memory(self, loss, dtype, generator):
        memory = memory_of(getattr(losses, loss)(distance=CosineSimilarity()), adapter="axbn")
        for step in range(6):
            rows, labels = batch(generator)
            leaf = rows.to(dtype if step % 2 else torch.float32).requires_grad_()
            memory(leaf, labels).backward()
            assert leaf.grad.isfinite().all()
            assert memory.embedding_memory.dtype == torch.float32
            assert memory.bank.dtype == torch.float32

    def test_autocast_trains(self, generator):
        memory, encoder = memory_of(adapter="axbn"), torch.nn.Linear(DIM, DIM)
        for step in range(5):
            rows, labels = batch(generator)
            with torch.autocast("cpu", torch.bfloat16, enabled=step != 2):
                memory(encoder(rows), labels).backward()
        assert memory.embedding_memory.dtype == torch.float32

    def test_double_precision_is_kept(self, generator):
        memory = memory_of(adapter="identity")
        rows, labels = batch(generator)
        memory(rows.double() / 3, labels)
        assert torch.equal(memory.embedding_memory[:BATCH], rows.double() / 3)

    def test_a_subclass_of_a_supported_loss_is_supported_and_of_another_not(self):
        assert memory_of(OwnSupCon()).loss
        own_proxy = type("OwnProxy", (losses.ProxyNCALoss,), {})  # which PML derives from a supported one
        for loss, name in ((own_proxy(4, DIM), "ProxyNCALoss"), (torch.nn.Linear(1, 1), "Linear")):
            with pytest.raises(Exception, match=f"CrossBatchMemory not supported for {name}"):
                memory_of(loss)

    def test_one_process_inside_the_distributed_wrapper(self, generator):
        memory, plain = memory_of(), memory_of()
        wrapped = DistributedLossWrapper(memory)
        for _ in range(4):
            rows, labels = batch(generator)
            with pytest.warns(UserWarning, match="non-distributed setting"):
                value = wrapped(rows, labels)
            assert torch.equal(value, plain(rows, labels))
        with (
            pytest.warns(UserWarning, match="non-distributed setting"),
            pytest.raises(ValueError, match="takes no ref_emb and ref_labels"),
        ):
            wrapped(rows, labels, ref_emb=rows, ref_labels=labels)

    def test_wrong_shapes_are_named(self, generator):
        rows, labels = batch(generator)
        with pytest.raises(ValueError, match="`enqueue_mask` must have one entry per embedding, got 3 for 12"):
            memory_of()(rows, labels, enqueue_mask=torch.ones(3, dtype=torch.bool))
        with pytest.raises(ValueError, match="`batch_size` must be the number of embeddings and labels, got 5 for 12"):
            memory_of().add_to_memory(rows, labels, 5)
