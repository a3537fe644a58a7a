"""`conv4`, the small convolutional network of the Omniglot literature, as a timm model."""

from typing import Any, cast

import torch
from timm.models import register_model
from torch import Tensor, nn


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm, ReLU and 2x2 max-pool, then the mean over what is left.

    The ReLU comes after the pool: the same function, with a quarter of the work.

    Args:
        in_chans: Channels of the images.
        num_classes: Length of a linear classifier's output; 0: none, the features come out.
        width: Channels of every block.
    """

    def __init__(self, in_chans: int = 3, num_classes: int = 0, width: int = 64) -> None:
        super().__init__()
        self.num_features = width
        self.blocks = nn.Sequential(*(_block(in_chans if i == 0 else width, width) for i in range(4)))
        self.reset_classifier(num_classes)

    def reset_classifier(self, num_classes: int) -> None:
        """Put another classifier on top (timm's convention)."""
        self.num_classes = num_classes
        self.fc = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to maps (B, width, H/16, W/16), at least one pixel."""
        return cast("Tensor", self.blocks(images))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to features (B, width), or class scores."""
        return cast("Tensor", self.fc(torch.flatten(self.forward_features(images).mean((2, 3)), 1)))


def _block(inputs: int, outputs: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), _Halve(2), nn.ReLU(inplace=True))


class _Halve(nn.MaxPool2d):
    """Max-pool, as long as there is something to pool: maps of one pixel stay, so that small images can be had."""

    def forward(self, input: Tensor) -> Tensor:
        """Maps (B, C, H, W) to (B, C, H/2, W/2)."""
        return super().forward(input) if min(input.shape[2:]) > 1 else input


@register_model
def conv4_32(pretrained: bool = False, **options: Any) -> Conv4:
    """`conv4` with 32 channels: a quarter of the arithmetic, for one CPU thread."""
    return _make(pretrained, **{"width": 32, **options})


@register_model
def conv4(pretrained: bool = False, **options: Any) -> Conv4:
    """The small Omniglot network (Vinyals et al., "Matching Networks for One Shot Learning", 2016)."""
    return _make(pretrained, **options)


def _make(pretrained: bool, **options: Any) -> Conv4:
    if pretrained:
        raise ValueError("There are no pretrained weights for `conv4`. Use `--pretrained false`.")
    known = {name: value for name, value in options.items() if name in ("in_chans", "num_classes", "width")}
    return Conv4(**known)
