"""The adapter that leaves the bank alone."""

from adaptive_memory_bank.adapters.base import Adapter
from adaptive_memory_bank.moments import Moments


class Identity(Adapter):
    """Believes that nothing drifts: plain cross-batch memory (XBM), plain MoCo queue.

    Reference: Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020.

    Example:
        >>> Identity().observe(None) is None
        True
    """

    uses_labels = False

    def observe(self, batch: Moments) -> Moments | None:
        """Ask for no change, whatever the batch."""
        return None
