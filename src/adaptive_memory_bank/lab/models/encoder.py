"""Encoders: a timm backbone, a head, unit length, and the normalisations of the paper's appendix after that."""

from typing import Any, Literal, Protocol, cast

import timm
import torch
import torch.nn.functional as F
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.data.config import resolve_data_config
from torch import Tensor, nn

from adaptive_memory_bank.lab.models import conv4 as _conv4  # noqa: F401  registers `conv4` with timm


class EncoderOptions(Protocol):
    """What `build_encoder` must be told; `RetrievalConfig` documents it."""

    model: str
    pretrained: bool
    weights: str | None
    embedding_dim: int
    embedding_norm: Literal["none", "bn", "mbn", "ln"]


class MomentumBatchNorm(nn.Module):
    """Batch norm with moments that are averaged over steps in training, too, so that small batches are less noisy.

    mean = m * running mean + (1 - m) * batch mean, the variance alike; gradients flow through the batch's share
    (Yong et al., "Momentum Batch Normalization for Deep Learning with Small Batch Size", ECCV 2020).

    Args:
        dim: Length of the rows.
        momentum: m.
        eps: Added to the variance.

    Example:
        >>> MomentumBatchNorm(8)(torch.randn(4, 8)).shape
        torch.Size([4, 8])
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int, momentum: float = 0.9, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, rows: Tensor) -> Tensor:
        """Normalise rows (B, dim)."""
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean = torch.lerp(rows.mean(0), mean, self.momentum)
            var = torch.lerp(rows.var(0, correction=0), var, self.momentum)
            self.running_mean.copy_(mean.detach())
            self.running_var.copy_(var.detach())
        return (rows - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


EMBEDDING_NORMS: dict[str, Any] = {
    "none": lambda dim: nn.Identity(),
    "bn": nn.BatchNorm1d,
    "mbn": MomentumBatchNorm,
    "ln": nn.LayerNorm,
}


class Encoder(nn.Module):
    """Images to embeddings: backbone (to `features`), linear head (to `dim`), L2, then one of `EMBEDDING_NORMS`."""

    def __init__(self, backbone: nn.Module, features: int, *, dim: int, norm: str = "none") -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(features, dim)
        self.norm = EMBEDDING_NORMS[norm](dim)

    def forward(self, images: Tensor) -> Tensor:
        """Embeddings (B, dim) of images (B, C, H, W)."""
        return self.embed(self.backbone(images))

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings (B, dim) of features (B, features); in float32 under mixed precision, too."""
        rows = self.head(features).float()
        return cast("Tensor", self.norm(F.normalize(rows, dim=1)))


def build_encoder(config: EncoderOptions, *, gray: bool, image_size: int) -> Encoder:
    """The encoder of a retrieval run; pretrained weights are downloaded if they are not there."""
    overlay: dict[str, Any] = {} if config.weights is None else {"pretrained_cfg_overlay": {"file": config.weights}}
    pretrained = config.pretrained or config.weights is not None
    options = _size_options(config.model, image_size)
    backbone = timm.create_model(
        config.model, pretrained=pretrained, num_classes=0, in_chans=1 if gray else 3, **options, **overlay
    )
    features = _features(backbone.eval(), torch.zeros(1, 1 if gray else 3, image_size, image_size), config.model)
    backbone.train()
    return Encoder(backbone, features, dim=config.embedding_dim, norm=config.embedding_norm)


@torch.no_grad()
def _features(backbone: nn.Module, probe: Tensor, model: str) -> int:
    """Length of what a backbone puts out, which is not timm's `num_features` for some."""
    try:
        return int(backbone(probe).shape[1])
    except RuntimeError as error:
        side = probe.shape[-1]
        raise ValueError(
            f"`image_size` must be one that `{model}` can take, got {side}, which it cannot: {error}"
        ) from error


def backbone_normalization(config: EncoderOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of colours when the backbone's weights were made; ImageNet's for one without weights."""
    native: Any = timm.get_pretrained_cfg(config.model)
    if native is None or not (config.pretrained or config.weights is not None):
        return IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    found = cast("Any", resolve_data_config)(pretrained_cfg=native.to_dict())
    return tuple(found["mean"]), tuple(found["std"])


def _size_options(model: str, image_size: int) -> dict[str, Any]:
    """Transformers are built for one image size and must be told when it is another."""
    native = timm.get_pretrained_cfg(model)  # None for models that never had weights
    fixed = native is not None and native.fixed_input_size and native.input_size[-1] != image_size
    return {"img_size": image_size} if fixed else {}
