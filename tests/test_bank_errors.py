"""What a bank refuses, and that refusing changes nothing."""

import copy

import pytest
import torch

from adaptive_memory_bank import XBN, AdaptiveMemoryBank, AutoAXBN, Identity

BAD_CALLS = {
    "wrong dim": (
        lambda bank: bank.update(torch.zeros(4, 3), LABELS),
        ValueError,
        r"shape \(B, 2\) but has shape \(4, 3\)",
    ),
    "wrong ndim": (lambda bank: bank.adapt(torch.zeros(2)), ValueError, r"shape \(B, 2\) but has shape \(2,\)"),
    "integer rows": (
        lambda bank: bank.enqueue(torch.zeros(4, 2).long(), LABELS),
        TypeError,
        "floating point tensor, got torch.int64",
    ),
    "no tensor": (lambda bank: bank.update([[0.0, 1.0]], LABELS), TypeError, "floating point tensor, got list"),
    "other device": (lambda bank: bank.adapt(torch.zeros(4, 2, device="meta")), ValueError, "device cpu, got meta"),
    "label count": (
        lambda bank: bank.update(torch.zeros(4, 2), LABELS[:3]),
        ValueError,
        r"shape \(4,\), one per row, got \(3,\)",
    ),
    "label ndim": (lambda bank: bank.adapt(torch.zeros(4, 2), LABELS[:, None]), ValueError, r"got \(4, 1\)"),
    "float labels": (
        lambda bank: bank.update(torch.zeros(4, 2), LABELS.float()),
        TypeError,
        "integers, got torch.float32",
    ),
    "bool labels": (lambda bank: bank.update(torch.zeros(4, 2), LABELS.bool()), TypeError, "integers, got torch.bool"),
    "list labels": (lambda bank: bank.update(torch.zeros(4, 2), [0, 1, 2, 3]), TypeError, "integers, got list"),
    "no labels": (
        lambda bank: bank.update(torch.zeros(4, 2)),
        ValueError,
        "holds labelled rows and was given rows without",
    ),
    "restored cursor": (
        lambda bank: bank.restore(torch.zeros(4, 2), LABELS, cursor=3),
        ValueError,
        "`cursor` must be the first free slot, or any slot of a full bank, got 3",
    ),
    "queries": (lambda bank: bank.similarity(torch.zeros(4, 3)), ValueError, r"`queries` must have shape \(B, 2\)"),
}
LABELS = torch.arange(4)


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_input_is_refused_and_leaves_the_bank_as_it_was(call, error, message):
    bank = AdaptiveMemoryBank(size=6, dim=2, adapter=AutoAXBN())
    bank.update(torch.randn(4, 2), LABELS)
    before = str(bank.state_dict())
    with pytest.raises(error, match=message):
        call(bank)
    assert str(bank.state_dict()) == before


def test_a_bank_of_unlabelled_rows_refuses_labels():
    bank = AdaptiveMemoryBank(size=6, dim=2)
    bank.update(torch.randn(4, 2))
    with pytest.raises(ValueError, match="holds unlabelled rows and was given rows with labels"):
        bank.enqueue(torch.randn(4, 2), LABELS)
    bank.adapt(torch.randn(4, 2), LABELS)  # only what is stored has to agree


BAD_BANKS = {
    "size 0": (lambda: AdaptiveMemoryBank(0, 2), ValueError, "`size` must be a positive integer, got 0"),
    "size -3": (lambda: AdaptiveMemoryBank(-3, 2), ValueError, "`size` must be a positive integer, got -3"),
    "size 1.5": (lambda: AdaptiveMemoryBank(1.5, 2), ValueError, "`size` must be a positive integer, got 1.5"),
    "dim True": (lambda: AdaptiveMemoryBank(4, True), ValueError, "`dim` must be a positive integer, got True"),
    "dtype": (lambda: AdaptiveMemoryBank(4, 2, dtype=torch.int8), ValueError, "`dtype` must be float32, float64"),
    "name": (
        lambda: AdaptiveMemoryBank(4, 2, "xbnn"),
        ValueError,
        "identity, xbm, xbn, ema, axbn, kalman, auto, or `package.module:Class`, got 'xbnn'",
    ),
    "class": (lambda: AdaptiveMemoryBank(4, 2, XBN), TypeError, r"Did you mean XBN\(\)\?"),
    "none": (lambda: AdaptiveMemoryBank(4, 2, None), TypeError, "`adapter` must be an Adapter or a name, got None"),
}


@pytest.mark.parametrize(("make", "error", "message"), BAD_BANKS.values(), ids=BAD_BANKS.keys())
def test_a_bank_that_cannot_be_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_one_adapter_serves_one_bank():
    adapter = Identity()
    bank = AdaptiveMemoryBank(4, 2, adapter)
    with pytest.raises(ValueError, match="`adapter` must not serve two banks, but this Identity has one already"):
        AdaptiveMemoryBank(4, 2, adapter)
    assert copy.deepcopy(bank).adapter is not adapter
