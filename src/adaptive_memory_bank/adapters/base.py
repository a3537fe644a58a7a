"""What every adapter is: a filter over batch moments."""

from typing import ClassVar

from adaptive_memory_bank.moments import Moments
from adaptive_memory_bank.precision import KeepsPrecision


class Adapter(KeepsPrecision):
    """Takes the moments of each batch and returns the moments the bank should have now.

    A subclass defines `observe`, and `reset` if it remembers anything: state lives in buffers that ``reset(dim)``
    makes, so that it is saved, loaded and moved with the bank.

    Example:
        >>> import torch
        >>> from adaptive_memory_bank import AdaptiveMemoryBank
        >>> class FollowMean(Adapter):
        ...     def observe(self, batch):
        ...         return batch._replace(std=torch.ones_like(batch.std))
        >>> bank = AdaptiveMemoryBank(size=8, dim=2, adapter=FollowMean())
        >>> bank.update(torch.randn(4, 2))
        >>> len(bank)
        4
    """

    #: Whether `observe` looks at what only labels tell (`population_std` and both variances). Measuring that takes as
    #: long as the rest of a step, so adapters that do not need it say so.
    uses_labels: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._in_use = False  # one filter follows one bank

    def attach(self) -> None:
        """Begin to serve a bank."""
        if self._in_use:
            raise ValueError(
                f"`adapter` must not serve two banks, but this {type(self).__name__} has one already; make another."
            )
        self._in_use = True

    def release(self) -> None:
        """Stop serving a bank, so that another one can have it."""
        self._in_use = False

    def reset(self, dim: int) -> None:
        """Forget everything: make (or renew) the state for embeddings of ``dim`` dimensions."""

    def observe(self, batch: Moments) -> Moments | None:
        """Filter the moments of one batch (of at least two rows).

        Args:
            batch: Moments of the batch.

        Returns:
            The moments the stored rows should have now (``mean`` and ``std`` count), or None to leave them alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `observe(batch)`.")
