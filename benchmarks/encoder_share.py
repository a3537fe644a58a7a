"""When the loss matters at all: its time beside that of an encoder, by the size of the bank.

    python benchmarks/encoder_share.py [--rounds 5] [--threads 2]

One training step on the same batch: forward and backward of an encoder (large images in parts, as gradient accumulation
does), and of `NTXentLoss` against a full memory bank, lightly's own and swapped with `auto`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import measure
import timm
import torch
import torch.nn.functional as F
from contest import BATCHES, Step, train_step
from lightly.loss import NTXentLoss
from markers import table
from torch import nn

from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.lab.models.conv4 import conv4
from adaptive_memory_bank.lab.models.resnet import Backbone

BATCH, DIM, PART = 64, 128, 16  # images of a step, dimensions of an embedding, images of a part
SIZES = (4_096, 16_384, 65_536, 262_144)
OURS, LIGHTLY = "swapped", "lightly's own"
ENCODERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "conv4, 32 px": (conv4, 32),
    "ResNet-18, 32 px": (lambda: Backbone("resnet-18", 1.0, splits=0), 32),
    "ResNet-50, 224 px": (lambda: timm.create_model("resnet50", num_classes=0), 224),
}


def encoder_step(make: Callable[[], nn.Module], pixels: int) -> Step:
    """Forward and backward of a batch."""
    encoder, images = make().train(), torch.randn(BATCH, 3, pixels, pixels)
    parts = images.split(PART if pixels > 64 else BATCH)

    def step() -> None:
        for part in parts:
            encoder(part).sum().backward()

    return step


def loss_steps(size: int) -> dict[str, Step]:
    """The loss against a full bank, with and without the swap."""
    memory = F.normalize(torch.randn(size, DIM), dim=1)
    queries, keys = torch.randn(2, BATCHES * BATCH, DIM)
    steps = {}
    for name in (OURS, LIGHTLY):
        criterion = NTXentLoss(temperature=0.1, memory_bank_size=(size, DIM))
        if name == OURS:
            swap_memory_bank(criterion, "auto")
        criterion.memory_bank(memory, update=True)
        steps[name] = train_step(criterion, queries, keys, batch=BATCH)
    return steps


def show_shares(found: dict[str, Any]) -> str:
    """The loss in milliseconds, and as a share of a step with each encoder."""
    encoders = {name: times["min_ms"] for name, times in found["encoders"].items()}
    heads = ["rows in the bank", *(f"loss, {name}, ms" for name in (OURS, LIGHTLY))]
    heads += [f"of a step with {name} ({ms:,.0f} ms)" for name, ms in encoders.items()]
    rows = []
    for size, losses in found["losses"].items():
        times = [losses[name]["min_ms"] for name in (OURS, LIGHTLY)]
        shares = [" or ".join(f"{100 * ms / (ms + encoder):.1f} %" for ms in times) for encoder in encoders.values()]
        rows.append([f"{int(size):,}", *(f"{ms:.1f}" for ms in times), *shares])
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    steps = {name: encoder_step(*encoder) for name, encoder in ENCODERS.items()}
    encoders = measure.interleaved(steps, rounds=options.rounds, warm_up=1)
    losses = {size: measure.interleaved(loss_steps(size), rounds=3 * options.rounds) for size in SIZES}
    facts = measure.facts("lightly", "timm", "adaptive-memory-bank")
    settings = {"batch": BATCH, "dim": DIM, "rounds": options.rounds}
    found = {**facts, **settings, "encoders": encoders, "losses": {str(size): times for size, times in losses.items()}}
    print(show_shares(found))
    print(measure.write("encoder_share", found))


if __name__ == "__main__":
    main()
