"""Finished runs as encoders: rebuilt from their folder, without the data they were trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_memory_bank.lab.data import Part, RetrievalData, eval_transform, load_dataset
from adaptive_memory_bank.lab.data.transforms import IMAGENET, IMAGENET_MEAN, IMAGENET_STD, Normalization
from adaptive_memory_bank.lab.models.encoder import build_encoder
from adaptive_memory_bank.lab.models.resnet import Backbone, make_head
from adaptive_memory_bank.lab.runs.checkpoints import BEST, LAST, read_checkpoint
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.scores import embed_part, knn_metrics, retrieval_scores, summary
from adaptive_memory_bank.lab.training.tasks import read_config


@dataclass(frozen=True)
class SavedRun:
    """A trained encoder.

    Args:
        config: What the run was told.
        encoder: Images to embeddings (retrieval) or features (MoCo), in `eval` mode.
        head: MoCo's head on top of the features, or None.
        gray: Whether it eats one channel.
        image_size: Side of the images it eats.
        normalization: Of colours, as in training.
    """

    config: RunConfig
    encoder: nn.Module
    head: nn.Module | None
    gray: bool
    image_size: int
    normalization: Normalization = IMAGENET

    def embed(self, part: Part, data: RetrievalData, *, batch_size: int = 256, workers: int = 0) -> Tensor:
        """Embeddings (N, dim) of a part of a dataset, on the CPU."""
        device = next(self.encoder.parameters()).device
        transform = eval_transform(data, self.image_size, normalization=self.normalization)
        return embed_part(self._rows, part, transform, batch_size=batch_size, device=device, workers=workers)

    def _rows(self, images: Tensor) -> Tensor:
        channels = images if self.gray else images.expand(-1, 3, -1, -1)
        rows: Tensor = self.encoder(channels)
        return rows

    def load_data(self, name: str | None, root: str | None = None) -> RetrievalData:
        """A dataset (default: the run's own) at the size of the encoder."""
        data = load_dataset(name or self.config.data, root=root or self.config.data_root)
        if self.gray and not data.gray:
            raise ValueError(f"`data` must be gray as the images this run was trained on, but {data.name} has colours.")
        return data.resized(self.image_size) if data.train.in_memory else data


def load_run(path: str | Path, *, checkpoint: str = "best") -> SavedRun:
    """Rebuild the encoder of a run from its best or last checkpoint."""
    folder = RunFolder.open(path)
    file = folder.checkpoints / {"best": BEST, "last": LAST}[checkpoint]
    if not file.is_file():
        raise ValueError(f"{path} has no {file.name}: the run has not come that far.")
    content = read_checkpoint(file)
    config: Any = read_config(folder.config_file)
    gray, image_size, colours = _images(**content["images"])
    encoder, head = _build(config, gray=gray, image_size=image_size)
    _load(encoder, content["state_dict"], "backbone." if isinstance(config, MocoConfig) else "encoder.")
    if head is not None:
        _load(head, content["state_dict"], "head.")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return SavedRun(config, encoder.to(device), head, gray, image_size, colours)


def _images(
    *, gray: bool, image_size: int, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
) -> tuple[bool, int, Normalization]:
    """What a checkpoint says of images; those written before backbones had their own normalisation used ImageNet's."""
    return gray, image_size, Normalization(tuple(mean), tuple(std))


def _build(config: Any, *, gray: bool, image_size: int) -> tuple[nn.Module, nn.Module | None]:
    if isinstance(config, MocoConfig):
        backbone = Backbone(config.model, config.width, config.split_batch_norm)
        return backbone, make_head(config, backbone.features)
    return build_encoder(replace(config, pretrained=False, weights=None), gray=gray, image_size=image_size), None


def _load(module: nn.Module, state: dict[str, Tensor], prefix: str) -> None:
    mine = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    module.load_state_dict(mine)
    module.eval()


def evaluate_run(
    path: str | Path, data: str | None = None, *, root: str | None = None, checkpoint: str = "best"
) -> dict[str, float]:
    """Score a run on a dataset: Recall@k and MAP@R, or kNN accuracy."""
    run = load_run(path, checkpoint=checkpoint)
    images = run.load_data(data, root)
    rows = run.embed(images.query, images)
    if run.head is not None and isinstance(run.config, MocoConfig):
        return _knn(run, run.config, run.head, images, rows)
    gallery = images.gallery
    found = None if gallery is None else run.embed(gallery, images)
    return summary(retrieval_scores(rows, images.query, found, gallery), images.ks, "val")


def _knn(run: SavedRun, config: MocoConfig, head: nn.Module, data: RetrievalData, rows: Tensor) -> dict[str, float]:
    stored = run.embed(data.train, data)
    with torch.no_grad():
        projected, stored_projected = head.cpu()(rows), head.cpu()(stored)
    return knn_metrics(config, data, (rows, projected), (stored, stored_projected))


def embed_run(
    path: str | Path, out: str | Path, data: str | None = None, *, root: str | None = None, checkpoint: str = "best"
) -> dict[str, tuple[int, ...]]:
    """Write the embeddings of every part of a dataset as one npz file; returns the shapes in it."""
    run = load_run(path, checkpoint=checkpoint)
    images = run.load_data(data, root)
    arrays: dict[str, Any] = {"class_names": np.array(images.train.class_names)}
    for name, part in (("train", images.train), ("query", images.query), ("gallery", images.gallery)):
        if part is not None:
            arrays[f"{name}_embeddings"] = run.embed(part, images).numpy()
            arrays[f"{name}_labels"] = part.labels.numpy()
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    np.savez(Path(out), **arrays)
    return {name: array.shape for name, array in arrays.items()}
