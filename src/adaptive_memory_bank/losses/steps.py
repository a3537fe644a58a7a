"""The number of training steps of a loss, and of those with nothing to compare."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

WINDOW = 100  # steps between two readings of the count on the device: each one waits for the device


class StepCounter(nn.Module):
    """Counts the training steps of a loss, and the empty ones: those that had nothing to compare.

    Steps are counted in Python. Empty steps are counted on the device of the loss, because asking a GPU whether a loss
    is 0 stalls it; the count is read every 100 steps and by `stats`. If more than half of those 100 were empty, a
    warning says so, once.

    Both counts are in ``state_dict()``, and none is a buffer, so DistributedDataParallel leaves each rank its own. A
    checkpoint from before there were counts leaves them as they are.

    Args:
        advice: What to do about empty steps; the end of the warning.

    Example:
        >>> steps = StepCounter("Try a larger batch.")
        >>> for loss in (0.7, 0.0, 0.4):
        ...     steps.add_loss(torch.tensor(loss))
        >>> steps.stats()
        {'steps': 3.0, 'empty_steps': 1.0}
    """

    def __init__(self, advice: str) -> None:
        super().__init__()
        self.advice = advice
        self.count = 0
        self._empty = torch.zeros((), dtype=torch.int64)
        self._empty_before = 0  # the count when it was last read
        self._warned = False

    def add(self, empty: Tensor) -> None:
        """Count a step; ``empty`` is a boolean tensor of one element, on any device."""
        self.count += 1
        self._empty = self._empty.to(empty.device) + empty.detach()
        if self.count % WINDOW == 0:
            self._read_and_warn()

    def add_loss(self, loss: Any) -> None:
        """Count a step, which is empty if its loss is exactly 0. PML can also return a dict: never empty."""
        zero = (loss.detach() == 0).all() if isinstance(loss, Tensor) else torch.zeros_like(self._empty).bool()
        self.add(zero)

    def stats(self) -> dict[str, float]:
        """Both counts, as ``steps`` and ``empty_steps``; waits for the device."""
        return {"steps": float(self.count), "empty_steps": float(self._empty)}

    def _read_and_warn(self) -> None:
        now = int(self._empty)
        recent, self._empty_before = now - self._empty_before, now
        if 2 * recent > WINDOW and not self._warned:
            self._warned = True
            warnings.warn(
                f"In {recent} of the last {WINDOW} steps nothing was left to compare: the loss was 0 and taught "
                f"nothing. {self.advice}",
                stacklevel=2,
            )

    def get_extra_state(self) -> dict[str, Any]:
        """Both counts, and what the next reading needs."""
        return {"count": self.count, "empty": self._empty, "empty_before": self._empty_before, "warned": self._warned}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        self.count, self._empty_before = int(state["count"]), int(state["empty_before"])
        self._empty, self._warned = state["empty"].clone(), bool(state["warned"])

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if f"{prefix}_extra_state" in state_dict:
            super()._load_from_state_dict(state_dict, prefix, *args)
