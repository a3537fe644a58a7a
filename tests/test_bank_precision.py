"""dtype, device, gradient."""

import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank import AdaptiveMemoryBank

halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def batches(steps=30, rows=16, dim=8):
    generator = torch.Generator().manual_seed(0)
    return [step * 0.05 + torch.randn(rows, dim, generator=generator) for step in range(steps)]


@halves
def test_half_storage_holds_half_the_bytes_and_the_same_rows_up_to_rounding(dtype):
    half = AdaptiveMemoryBank(50, 8, "axbn", dtype=dtype)
    full = AdaptiveMemoryBank(50, 8, "axbn")
    for rows in batches():
        half.update(rows)
        full.update(rows)
        assert half.dtype == dtype
        assert {half.compute_dtype, half.moments.mean.dtype, half.adapter.mean.dtype} == {torch.float32}
        # A row is rounded when stored and when folded: relative 2^-8 (bfloat16) or 2^-11, each time.
        assert (half.embeddings - full.embeddings).abs().max() < 3 * 2 ** (-8 if dtype == torch.bfloat16 else -11) * 6
    torch.testing.assert_close(half.moments.mean, half.embeddings.mean(0), rtol=1e-4, atol=1e-4)


@halves
def test_half_precision_batches_are_accepted(dtype):
    bank, reference = AdaptiveMemoryBank(50, 8, "xbn"), AdaptiveMemoryBank(50, 8, "xbn")
    for rows in batches(5):
        bank.update(rows.to(dtype))
        reference.update(rows.to(dtype).float())
    assert torch.equal(bank.embeddings, reference.embeddings)
    assert bank.similarity(rows.to(dtype)).dtype == torch.float32


def test_autocast_changes_nothing_that_is_stored():
    bank, reference = AdaptiveMemoryBank(50, 8, "auto"), AdaptiveMemoryBank(50, 8, "auto")
    labels = torch.arange(16) // 4
    for rows in batches(20):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            bank.update(rows, labels)
        reference.update(rows, labels)
    assert torch.equal(bank.embeddings, reference.embeddings)


@halves
def test_half_turns_the_rows_and_leaves_the_statistics(dtype):
    bank = AdaptiveMemoryBank(50, 8, "axbn")
    for rows in batches(7):
        bank.update(rows)
    moments, mean, before = bank.moments, bank.adapter.mean.clone(), bank.embeddings
    bank.to(dtype)
    assert bank.dtype == dtype
    assert bank.compute_dtype == torch.float32
    assert torch.equal(bank.moments.std, moments.std)
    assert torch.equal(bank.adapter.mean, mean)
    torch.testing.assert_close(bank.embeddings, before, rtol=0.02, atol=0.02)
    bank.update(batches(1)[0])
    assert bank.embeddings.dtype == torch.float32


def test_it_follows_to_device():
    bank = AdaptiveMemoryBank(5, 3, "auto").to("meta")  # the only other device that is everywhere
    assert bank.embeddings.device.type == "meta"
    assert {value.device.type for value in bank.adapter.state_dict().values()} == {"meta"}


def test_reset_stays_on_the_device_and_in_the_precision_of_the_bank():
    bank = AdaptiveMemoryBank(5, 3, "auto", dtype=torch.float64)
    bank.reset()
    assert bank.adapter.mean.dtype == torch.float64


def test_no_gradient_flows_into_the_bank():
    bank = AdaptiveMemoryBank(8, 4, "xbn")
    rows = torch.randn(4, 4, requires_grad=True)
    bank.update(rows * 2)
    bank.adapt(rows * 3)
    assert not bank.embeddings.requires_grad
    assert not bank.moments.mean.requires_grad
    assert not bank.similarity(rows.detach()).requires_grad


def filled_bank(dtype=torch.float64):
    bank = AdaptiveMemoryBank(6, 3, "xbn", dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        bank.update(torch.randn(4, 3, generator=generator, dtype=dtype))
    return bank


def test_similarity_is_the_cosine_with_and_without_gradient():
    bank, queries = filled_bank(), torch.randn(5, 3, dtype=torch.float64)
    expected = torch.stack([F.cosine_similarity(query[None], bank.embeddings) for query in queries])
    torch.testing.assert_close(bank.similarity(queries), expected)
    torch.testing.assert_close(bank.similarity(queries.requires_grad_()), expected)
    with torch.no_grad():
        torch.testing.assert_close(bank.similarity(queries), expected)


def test_similarity_without_gradient_walks_several_blocks():
    bank = AdaptiveMemoryBank(5000, 128, "xbn")  # 2,048 rows of 128 fill a block
    for rows in torch.randn(11, 500, 128, generator=torch.Generator().manual_seed(0)):
        bank.update(rows)
    queries = torch.randn(3, 128)
    torch.testing.assert_close(bank.similarity(queries), bank.similarity(queries.requires_grad_()).detach())
    assert bank.similarity(queries).shape == (3, 5000)


def test_similarity_passes_gradcheck():
    queries = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(filled_bank().similarity, (queries,))


def test_similarity_is_right_when_an_update_comes_before_backward():
    def gradient(*, disturb):
        bank = filled_bank()
        queries = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        first = bank.similarity(queries)
        if disturb:
            bank.update(torch.randn(4, 3, dtype=torch.float64))
            bank.adapt(torch.randn(4, 3, dtype=torch.float64))
        first.square().sum().backward()
        return queries.grad

    assert torch.equal(gradient(disturb=True), gradient(disturb=False))


def test_a_batch_seen_in_inference_mode_leaves_a_bank_that_trains_on():
    bank = AdaptiveMemoryBank(6, 3, "axbn")
    with torch.inference_mode():
        bank.update(torch.randn(4, 3))
    bank.update(torch.randn(4, 3))
    queries = torch.randn(2, 3, requires_grad=True)
    bank.similarity(queries).sum().backward()
    assert queries.grad.isfinite().all()
