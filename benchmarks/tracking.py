"""How well adapters foresee the next batch of a real training: no truth is needed, and no test image is touched.

    python benchmarks/tracking.py [--data_root FOLDER_OF_OMNIGLOT_NPZ] [--batch_size 16]

Records the embeddings of every batch of a short training on Omniglot, then lets every adapter watch them. An adapter's
error at a step is the squared distance between the moments it holds and those of the batch that comes next; all
adapters face the same noise of that batch, so the least error is that of the best estimate. Fixed gains are EMAs.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from statistics import fmean
from typing import Any

import measure
from torch import Tensor

from adaptive_memory_bank import AXBN, EMA, XBN, Adapter, AdaptiveMemoryBank, AutoAXBN, Moments
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.train import run

QUARTERS = 4
GAINS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
Batch = tuple[Tensor, Tensor | None]


def record(config: RetrievalConfig) -> list[Batch]:
    """Train, and keep the rows and labels of every batch that the bank is given."""
    batches: list[Batch] = []
    update = AdaptiveMemoryBank.update

    def listening(bank: AdaptiveMemoryBank, rows: Tensor, labels: Tensor | None = None) -> None:
        batches.append((rows.detach().clone(), labels))
        update(bank, rows, labels)

    AdaptiveMemoryBank.update = listening  # type: ignore[method-assign]
    try:
        run(config)
    finally:
        AdaptiveMemoryBank.update = update  # type: ignore[method-assign]
    return batches


def errors(adapter: Adapter, moments: list[Moments]) -> dict[str, list[float]]:
    """Mean squared distance to the next batch's mean and std, by quarter of the training."""
    adapter.reset(len(moments[0].mean))
    of_mean, of_std = [], []
    for now, later in pairwise(moments):
        held = adapter.observe(now)
        of_mean.append((later.mean - held.mean).square().sum().item())
        of_std.append((later.std - held.std).square().sum().item())
    return {"mean": quarters(of_mean), "std": quarters(of_std)}


def quarters(values: list[float]) -> list[float]:
    """Means over the quarters of a list."""
    size = len(values) // QUARTERS
    return [fmean(values[part * size : (part + 1) * size]) for part in range(QUARTERS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_root", default="../shared/data")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as out:
        config = RetrievalConfig(
            data="npz:omniglot.npz", data_root=options.data_root, model="conv4", image_size=28, validation=0.1,
            adapter="identity", memory=0.5, batch_size=options.batch_size, epochs=options.epochs, lr_step=2,
            eval_every=options.epochs, threads=1, wandb="disabled", quiet=True, out=out,
        )  # fmt: skip
        batches = record(config)
    measured = [Moments.of(rows.float(), labels) for rows, labels in batches]
    moments = [found._replace(std=found.population_std) for found in measured]  # the same aim for all
    adapters = {"xbn": XBN(), "axbn": AXBN(), "auto": AutoAXBN()} | {f"gain {gain}": EMA(1 - gain) for gain in GAINS}
    found = {name: errors(adapter, moments) for name, adapter in adapters.items()}
    content: dict[str, Any] = {
        **measure.facts("adaptive-memory-bank"),
        "batch_size": options.batch_size,
        "epochs": options.epochs,
        "steps": len(moments),
        "errors": found,
    }
    for name, values in found.items():
        print(f"{name:<10}", *(f"{key} " + " ".join(f"{v:.4f}" for v in values[key]) for key in ("mean", "std")))
    print(measure.write("tracking", content))


if __name__ == "__main__":
    main()
