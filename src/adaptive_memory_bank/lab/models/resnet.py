"""Encoders of the MoCo trainer: lightly's ResNets with a CIFAR stem, and their heads."""

from typing import cast

import torch
from lightly.models import ResNetGenerator
from lightly.models.modules.heads import MoCoProjectionHead
from torch import Tensor, nn

from adaptive_memory_bank.lab.models.split_batch_norm import group_neighbours


class Backbone(nn.Module):
    """A lightly ResNet (3x3 stem, no max-pool, split batch norm) up to its pooled features, for any image size.

    Args:
        name: One of `names.RESNETS`.
        width: Multiplier of the channels.
        splits: Groups of split batch norm; 0: plain batch norm.
    """

    def __init__(self, name: str, width: float, splits: int) -> None:
        super().__init__()
        resnet = ResNetGenerator(name, width=width, num_splits=splits)
        group_neighbours(resnet)
        self.features = int(resnet.linear.in_features)
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, nn.ReLU(inplace=True))
        self.layers = nn.Sequential(resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4)
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, features) of images (B, 1 or 3, H, W)."""
        return cast("Tensor", self.pool(self.layers(self.stem(images.expand(-1, 3, -1, -1)))))


def make_head(kind: str, features: int, dim: int) -> nn.Module:
    """From features to queries and keys: `linear`, or MoCo v2's two layers."""
    if kind == "linear":
        return nn.Linear(features, dim)
    return cast("nn.Module", MoCoProjectionHead(features, features, dim))


class WithHead(nn.Module):
    """A backbone's features and what the head makes of them, side by side."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, images: Tensor) -> Tensor:
        """Rows (B, features + dim) of images (B, 1 or 3, H, W)."""
        features = self.backbone(images)
        return torch.cat([features.float(), self.head(features).float()], dim=1)
