"""Losses of the retrieval trainer behind one face: rows and labels in, loss and number of pairs out."""

import inspect
from typing import Any, cast

from pytorch_metric_learning import losses, miners
from torch import Tensor, nn

from adaptive_memory_bank.adapters import make_adapter
from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.step import measured
from adaptive_memory_bank.losses import MemorySupConLoss, Pairs


class BatchCriterion(nn.Module):
    """A pytorch-metric-learning loss within the batch, without memory, of the pairs a miner chooses (None: all)."""

    def __init__(self, loss: nn.Module, miner: nn.Module | None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner
        self.last_pairs: Pairs | None = None

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Loss of rows (B, dim)."""
        chosen = None if self.miner is None else self.miner(rows, labels)
        self.last_pairs = None if chosen is None else Pairs(len(chosen[0]), len(chosen[2]))
        return cast("Tensor", self.loss(rows, labels, chosen))


class MemoryCriterion(nn.Module):
    """A pytorch-metric-learning loss of the batch against the memory, plus (XBM*) its share within the batch."""

    def __init__(self, memory: CrossBatchMemory, batch: BatchCriterion, batch_weight: float) -> None:
        super().__init__()
        self.memory, self.batch, self.batch_weight = memory, batch, batch_weight

    @property
    def last_pairs(self) -> Pairs | None:
        """Pairs the miner kept."""
        miner = cast("Any", self.memory.miner)
        return None if miner is None else Pairs(miner.num_pos_pairs, miner.num_neg_pairs)  # tensors on a GPU

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        """Loss of rows (B, dim)."""
        memory = self.memory
        started = memory.steps.count >= memory.start_after  # before that its loss is the one within the batch already
        loss = memory(rows, labels)
        if self.batch_weight and started:
            loss = loss + self.batch_weight * self.batch(rows, labels)
        return cast("Tensor", loss)


def batch_criterion(config: RetrievalConfig, classes: int) -> BatchCriterion:
    """The loss without memory: of runs with `adapter="none"`, and of the warm-up."""
    return BatchCriterion(_pml_loss(config, classes), _miner(config))


def memory_criterion(
    config: RetrievalConfig, classes: int, *, rows: int, start_after: int
) -> tuple[nn.Module, AdaptiveMemoryBank]:
    """The loss on a memory of so many rows, used after so many steps, and the bank in it."""
    adapter = make_adapter(config.bank_adapter, **config.adapter_options)
    if config.loss == "supcon":
        bank = AdaptiveMemoryBank(rows, config.embedding_dim, adapter, **config.bank_layout)
        fused = MemorySupConLoss(
            bank,
            temperature=config.temperature,
            pos_margin=config.pos_margin,
            neg_margin=config.neg_margin,
            mine=config.mine,
            batch_weight=config.batch_weight,
            start_after=start_after,
        )
        return fused, bank
    memory = CrossBatchMemory(
        _pml_loss(config, classes),
        config.embedding_dim,
        memory_size=rows,
        miner=_miner(config),
        adapter=adapter,
        start_after=start_after,
        gather_distributed=config.processes > 1,
    )
    return MemoryCriterion(memory, batch_criterion(config, classes), config.batch_weight), memory.bank


def pairs_kept(criterion: nn.Module) -> float | Tensor | None:
    """Pairs that the last loss was made of; None where nobody counted."""
    if isinstance(criterion, MemorySupConLoss):
        return measured(criterion.last_pair_counts.sum().float())
    pairs: Any = cast("Any", criterion).last_pairs
    if pairs is None:
        return None
    total = pairs.positive + pairs.negative
    return measured(total.float()) if isinstance(total, Tensor) else float(total)


def check_loss_options(config: RetrievalConfig) -> None:
    """Raise for options that the loss does not take."""
    if config.loss == "supcon":
        if config.loss_options:
            raise ValueError(
                "`loss_options` belong to a pytorch-metric-learning loss; `supcon` has options of its own."
            )
        return
    accepted = inspect.signature(getattr(losses, config.loss).__init__).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
    unknown = [name for name in config.loss_options if name not in accepted and not takes_any]
    if unknown:
        names = ", ".join(name for name in accepted if name not in ("self", "kwargs"))
        raise ValueError(f"`loss_options` of {config.loss} must be among {names}, got {', '.join(unknown)}.")


def _pml_loss(config: RetrievalConfig, classes: int) -> nn.Module:
    if config.loss == "supcon":
        return cast("nn.Module", losses.SupConLoss(temperature=config.temperature))
    kind = getattr(losses, config.loss)
    sizes = {"num_classes": classes, "embedding_size": config.embedding_dim}  # of losses with proxies
    wanted = inspect.signature(kind.__init__).parameters
    return cast("nn.Module", kind(**{k: v for k, v in sizes.items() if k in wanted}, **config.loss_options))


def _miner(config: RetrievalConfig) -> nn.Module | None:
    if not config.mine:
        return None
    return cast("nn.Module", miners.PairMarginMiner(pos_margin=config.pos_margin, neg_margin=config.neg_margin))
