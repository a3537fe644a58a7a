"""Which losses and miners of pytorch-metric-learning are fused, and what is said of the others."""

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, regularizers

from adaptive_memory_bank.integrations.pml import CrossBatchMemory

DIM = 6


class OwnSupCon(losses.SupConLoss):
    """A subclass as users write them."""


class OwnMemory(CrossBatchMemory):
    """A memory that picks pairs of its own."""

    def create_indices_tuple(self, *arguments):
        return super().create_indices_tuple(*arguments)


def with_setting(module, name, value):
    setattr(module, name, value)
    return module


def hooked(loss):
    loss.register_forward_hook(lambda *_: None)
    return loss


NOT_FUSED = {
    "OwnSupCon is none of SupConLoss, ContrastiveLoss, NTXentLoss, MultiSimilarityLoss": (OwnSupCon(), None),
    "CircleLoss is none of": (losses.CircleLoss(), None),
    "TripletMarginMiner is none of PairMarginMiner, Multi": (losses.SupConLoss(), miners.TripletMarginMiner()),
    "SupConLoss has a regularizer": (losses.SupConLoss(embedding_regularizer=regularizers.LpRegularizer()), None),
    "SupConLoss has another distance than cosine$": (losses.SupConLoss(distance=distances.LpDistance()), None),
    "NTXentLoss has another distance than cosine or": (
        losses.NTXentLoss(distance=distances.DotProductSimilarity()),
        None,
    ),
    "ContrastiveLoss has another distance": (losses.ContrastiveLoss(distance=distances.LpDistance(p=1)), None),
    "PairMarginMiner has another distance": (
        losses.SupConLoss(),
        miners.PairMarginMiner(distance=distances.LpDistance(normalize_embeddings=False)),
    ),
    "SupConLoss has another reducer than a mean": (losses.SupConLoss(reducer=reducers.ThresholdReducer(0.1)), None),
    "ContrastiveLoss has another reducer": (
        losses.ContrastiveLoss(
            reducer=reducers.MultipleReducers(
                {"pos_loss": reducers.MeanReducer(), "neg_loss": reducers.AvgNonZeroReducer()}
            )
        ),
        None,
    ),
    "NTXentLoss collects statistics": (losses.NTXentLoss(collect_stats=True), None),
    "PairMarginMiner collects statistics": (losses.NTXentLoss(), miners.PairMarginMiner(collect_stats=True)),
    "SupConLoss has hooks": (hooked(losses.SupConLoss()), None),
    "`temperature` of SupConLoss is not a plain number": (
        with_setting(losses.SupConLoss(), "temperature", torch.tensor(0.1)),
        None,
    ),
    "`beta` of MultiSimilarityLoss is not positive": (losses.MultiSimilarityLoss(beta=-1), None),
}


@pytest.mark.parametrize("reason", NOT_FUSED)
def test_everything_else_takes_the_original_way_and_says_why(reason):
    memory = CrossBatchMemory(NOT_FUSED[reason][0], DIM, 30, NOT_FUSED[reason][1])
    assert not memory.is_fused
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(memory.extra_repr().removeprefix("fused=False (").removesuffix(")"))
    if "regularizer" not in reason:
        memory(torch.randn(12, DIM), torch.arange(12) % 4)


def test_what_is_asked_for_is_told():
    assert "fused=True" in repr(CrossBatchMemory(losses.SupConLoss(), DIM, 30))
    assert "(as asked for)" in repr(CrossBatchMemory(losses.SupConLoss(), DIM, 30, fused=False))
    assert "(the memory collects stat" in repr(CrossBatchMemory(losses.SupConLoss(), DIM, 30, collect_stats=True))
    assert "create_indices_tuple is overridden" in repr(OwnMemory(losses.SupConLoss(), DIM, 30))
