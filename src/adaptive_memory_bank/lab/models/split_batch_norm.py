"""Split batch norm in channels-last memory, where convolutions are faster."""

from typing import cast

import torch
import torch.nn.functional as F
from lightly.models.batchnorm import SplitBatchNorm
from torch import Tensor, nn


class NeighbourBatchNorm(SplitBatchNorm):  # type: ignore[misc]  # lightly is untyped
    """Lightly's split batch norm over groups of neighbouring images, for any memory format.

    Lightly takes every `num_splits`-th image as a group, by a view that channels-last memory does not allow. Batches
    are shuffled, so which images share a group does not matter. Parameters, buffers and evaluation are lightly's.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise images (B, C, H, W); in training each group by itself, B a multiple of `num_splits`."""
        if not self.training:
            return cast("Tensor", super().forward(input))
        if len(input) % self.num_splits:
            raise ValueError(f"A batch of {len(input)} images does not split into {self.num_splits} equal groups.")
        means, variances = (part.view(self.num_splits, -1) for part in (self.running_mean, self.running_var))
        groups = input.chunk(self.num_splits)
        return torch.cat(
            [
                F.batch_norm(group, mean, variance, self.weight, self.bias, True, self.momentum, self.eps)
                for group, mean, variance in zip(groups, means, variances, strict=True)
            ]
        )


def group_neighbours(module: nn.Module) -> None:
    """Replace each of lightly's split batch norms in a module, in place."""
    for name, child in module.named_children():
        if isinstance(child, SplitBatchNorm):
            replacement = NeighbourBatchNorm(child.num_features, child.num_splits)
            replacement.load_state_dict(child.state_dict())
            setattr(module, name, replacement)
        else:
            group_neighbours(child)
