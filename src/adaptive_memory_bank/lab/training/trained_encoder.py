"""Finished runs as encoders: rebuilt from their folder, without the data they were trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_memory_bank.lab.data import Part, RetrievalData, eval_transform, load_dataset
from adaptive_memory_bank.lab.data.transforms import IMAGENET, Normalization
from adaptive_memory_bank.lab.models.resnet import WithHead
from adaptive_memory_bank.lab.runs.checkpoints import WEIGHTS, read_checkpoint
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.runs.files import DamagedFileError, write_file
from adaptive_memory_bank.lab.runs.folder import BEST, LAST, RunFolder
from adaptive_memory_bank.lab.training.scores import embed_part
from adaptive_memory_bank.lab.training.step import best_memory_format
from adaptive_memory_bank.lab.training.tasks import TASKS, read_config


@dataclass(frozen=True)
class TrainedEncoder:
    """The encoder of a run, in `eval` mode: images to embeddings, or (MoCo) to features and the head's output."""

    config: RunConfig
    encoder: nn.Module
    gray: bool  # whether its images have one channel
    image_size: int
    normalization: Normalization = IMAGENET  # of colours, as in training

    def rows(self, part: Part, data: RetrievalData) -> Tensor:
        """What the encoder makes of a part of a dataset, (N, dim), on the CPU; exactly as the run's own evaluation."""
        memory_format = best_memory_format(self.encoder)

        def embed(images: Tensor) -> Tensor:
            channels = images if self.gray else images.expand(-1, 3, -1, -1)
            found: Tensor = self.encoder(channels.contiguous(memory_format=memory_format))
            return found

        return embed_part(
            embed,
            part,
            eval_transform(data, self.image_size, normalization=self.normalization),
            batch_size=self.config.eval_batch_size,
            device=next(self.encoder.parameters()).device,
            workers=self.config.num_workers,
        )

    def embed(self, part: Part, data: RetrievalData) -> Tensor:
        """Embeddings, or MoCo's features, (N, dim) of a part of a dataset, on the CPU."""
        rows = self.rows(part, data)
        return rows[:, : self.encoder.backbone.features] if isinstance(self.encoder, WithHead) else rows

    def load_data(self, name: str | None, root: str | None = None) -> RetrievalData:
        """A dataset (default: the run's own), scaled as for training."""
        data = load_dataset(name or self.config.data, root=root or self.config.data_root)
        if self.gray and not data.gray:
            raise ValueError(f"`data` must be gray as the images this run was trained on, but {data.name} has colours.")
        return data.prepared(self.image_size)


def load_run(path: str | Path, *, checkpoint: str = "best") -> TrainedEncoder:
    """Rebuild the encoder of a run from its best or last checkpoint."""
    folder = RunFolder.open(path)
    file = folder.checkpoints / {"best": BEST, "last": LAST}[checkpoint]
    if not file.is_file():
        raise ValueError(f"{path} has no {file.name}: the run has not come that far.")
    content, config = read_checkpoint(file, holding=WEIGHTS), read_config(folder.config_file)
    try:
        return _restored(config, content)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        what = f"it does not fit {folder.config_file.name} ({type(error).__name__})"
        raise DamagedFileError(file, what, f"Put the file back that {path} was trained with.") from error


def _restored(config: RunConfig, content: dict[str, Any]) -> TrainedEncoder:
    images = content["images"]
    shape = {"gray": images["gray"], "image_size": images["image_size"]}
    encoder: nn.Module = TASKS[config.task].load().restore(config, content["state_dict"], **shape).eval()
    encoder.to(memory_format=best_memory_format(encoder))
    # Checkpoints written before backbones had a normalisation of their own used ImageNet's.
    colours = Normalization(tuple(images.get("mean", IMAGENET.mean)), tuple(images.get("std", IMAGENET.std)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return TrainedEncoder(config, encoder.to(device), **shape, normalization=colours)


def evaluate_run(
    path: str | Path, data: str | None = None, *, root: str | None = None, checkpoint: str = "best"
) -> dict[str, float]:
    """Score a run on a dataset, by its task's own metrics."""
    run = load_run(path, checkpoint=checkpoint)
    images = run.load_data(data, root)
    score = TASKS[run.config.task].load().score
    found: dict[str, float] = score(run.config, lambda part: run.rows(part, images), images)
    return found


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
    path = Path(out)  # np.savez would add the suffix itself
    write_file(path if path.suffix == ".npz" else Path(f"{path}.npz"), lambda file: np.savez(file, **arrays))
    return {name: array.shape for name, array in arrays.items()}
