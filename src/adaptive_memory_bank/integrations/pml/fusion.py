"""Which of pytorch-metric-learning's losses and miners are computed in one walk, told by exact class and settings."""

import math
from collections.abc import Callable
from typing import Any

from pytorch_metric_learning import distances, losses, miners, reducers
from torch import nn

from adaptive_memory_bank.checks import is_number
from adaptive_memory_bank.losses.compare import PairLoss, Plan
from adaptive_memory_bank.losses.contrastive_sums import Contrastive, Euclidean, Linear
from adaptive_memory_bank.losses.multi_similarity_sums import MultiSimilarity
from adaptive_memory_bank.losses.ntxent_sums import NTXent
from adaptive_memory_bank.losses.pairs import ALL_PAIRS, HardPairs, Margins, Mining
from adaptive_memory_bank.losses.supcon_sums import SupCon


class CannotFuseError(Exception):
    """The reason why a loss or a miner takes pytorch-metric-learning's own way."""


def fuse(loss: nn.Module, miner: nn.Module | None) -> Plan:
    """Recognise a loss and a miner (None takes all pairs), as they are set now.

    Exact classes only: a subclass may have changed anything.

    Raises:
        CannotFuseError: For all others, with the reason.
    """
    return Plan(_recognise(loss, LOSSES), ALL_PAIRS if miner is None else _recognise(miner, MINERS))


def _recognise(module: nn.Module, known: dict[type, Callable[[Any], Any]]) -> Any:
    if type(module) not in known:
        raise CannotFuseError(f"{type(module).__name__} is none of {', '.join(kind.__name__ for kind in known)}")
    for part in module.modules():
        if getattr(part, "collect_stats", False):
            raise CannotFuseError(f"{type(module).__name__} collects statistics")
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            raise CannotFuseError(f"{type(module).__name__} has hooks")
    return known[type(module)](module)


def _supcon(loss: Any) -> PairLoss[Any]:
    _check_cosine(loss)
    return SupCon(_positive(loss, "temperature"), above_zero=_above_zero(loss))


def _ntxent(loss: Any) -> PairLoss[Any]:
    _check_cosine(loss)
    return NTXent(_positive(loss, "temperature"), above_zero=_above_zero(loss))


def _multi_similarity(loss: Any) -> PairLoss[Any]:
    _check_cosine(loss)
    weights = _positive(loss, "alpha"), _positive(loss, "beta")
    return MultiSimilarity(*weights, _number(loss, "base"), above_zero=_above_zero(loss))


def _contrastive(loss: Any) -> PairLoss[Any]:
    power, above_zero = _distance_power(loss), _above_zero(loss, "pos_loss", "neg_loss")
    margins = _number(loss, "pos_margin"), _number(loss, "neg_margin")
    if power is None:  # a similarity: the negative cosine is the distance, and margins are similarities
        return Contrastive(Linear(0.0, 1.0), -margins[0], -margins[1], above_zero=above_zero)
    return Contrastive(Euclidean() if power == 1 else Linear(2.0, 2.0), *margins, above_zero=above_zero)


def _margins(miner: Any) -> Mining:
    power, margins = _distance_power(miner), (_number(miner, "pos_margin"), _number(miner, "neg_margin"))
    if power is None:
        return Margins(*margins)
    return Margins.of(*(math.copysign(abs(margin) ** (1 / power), margin) for margin in margins))


def _hard_pairs(miner: Any) -> Mining:
    _check_cosine(miner)
    return HardPairs(_number(miner, "epsilon"))


LOSSES: dict[type, Callable[[Any], PairLoss[Any]]] = {
    losses.SupConLoss: _supcon,
    losses.ContrastiveLoss: _contrastive,
    losses.NTXentLoss: _ntxent,
    losses.MultiSimilarityLoss: _multi_similarity,
}
MINERS: dict[type, Callable[[Any], Mining]] = {
    miners.PairMarginMiner: _margins,
    miners.MultiSimilarityMiner: _hard_pairs,
}


def _distance_power(module: Any) -> int | None:
    """The power of a Euclidean distance of unit vectors, 1 or 2; None for cosine similarity."""
    distance = module.distance
    if distance.normalize_embeddings and distance.p == 2:
        if type(distance) is distances.CosineSimilarity and distance.power == 1:
            return None
        if type(distance) is distances.LpDistance and distance.power in (1, 2):
            return int(distance.power)
    raise CannotFuseError(
        f"{type(module).__name__} has another distance than cosine or the Euclidean one of unit vectors"
    )


def _check_cosine(module: Any) -> None:
    if _distance_power(module) is not None:
        raise CannotFuseError(f"{type(module).__name__} has another distance than cosine")


def _above_zero(loss: Any, *sub_losses: str) -> bool:
    """Whether averages are over losses above 0, or over all; the same for all sub-losses."""
    if loss.embedding_regularizer is not None:
        raise CannotFuseError(f"{type(loss).__name__} has a regularizer")
    reducer, found = loss.reducer, []
    if sub_losses and type(reducer) is reducers.MultipleReducers and reducer.reducers.keys() == set(sub_losses):
        found = [_averages_above_zero(part) for part in reducer.reducers.values()]
    elif not sub_losses:
        found = [_averages_above_zero(reducer)]
    if len(set(found)) != 1 or None in found:
        raise CannotFuseError(f"{type(loss).__name__} has another reducer than a mean, of all losses or those above 0")
    return bool(found[0])


def _averages_above_zero(reducer: Any) -> bool | None:
    """True or False for the two means; None for other reducers."""
    if type(reducer) is reducers.AvgNonZeroReducer and reducer.low == 0 and reducer.high is None:
        return True
    return False if type(reducer) is reducers.MeanReducer else None


def _number(module: Any, name: str) -> float:
    value = getattr(module, name)
    if not is_number(value) or not math.isfinite(value):
        raise CannotFuseError(f"`{name}` of {type(module).__name__} is not a plain number")
    return float(value)


def _positive(module: Any, name: str) -> float:
    value = _number(module, name)
    if value <= 0:
        raise CannotFuseError(f"`{name}` of {type(module).__name__} is not positive")
    return value
