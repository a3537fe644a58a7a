"""How long the trials and the grid on CUB-200-2011 take: measured milliseconds per image, times their images.

    python benchmarks/cub200_pace.py --weights efficientnet_lite0.pth --data_root FOLDER_OF_CUB_200_2011

Four things cost time: opening and cropping a photograph, the same without a random crop, a forward pass, and a training
step (forward, backward, AdamW). Each is measured on one thread, in CPU time, which other work on the machine lengthens
least. The loss and the bank are left out: they take a few milliseconds of a step of seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grids
import torch
from cub200_protocol import BASE, FIRST_HELD_OUT, TRIALS, UNSEEN
from markers import table
from measure import facts, interleaved, write
from torch.nn.modules.batchnorm import _BatchNorm

from adaptive_memory_bank.lab.data import RetrievalData, load_dataset
from adaptive_memory_bank.lab.data.randomness import Stream
from adaptive_memory_bank.lab.models.encoder import build_encoder
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.training_data import retrieval_data

NAME, BATCH, SIDES = "cub200_pace", 64, (64, 80, 96)
GRID = Path(__file__).with_name("cub200.yaml")
Pace = dict[str, float]
"""Seconds per image of `crop`, `open`, `forward` and `train`."""


def pieces(weights: str, data: RetrievalData, side: int) -> dict[str, Callable[[], object]]:
    """What is timed, each on one batch."""
    config = make_config(RetrievalConfig, preset="photos", weights=weights, image_size=side)
    ready, which = retrieval_data(config, data), torch.arange(BATCH)
    encoder = build_encoder(config, gray=False, image_size=side).to(memory_format=torch.channels_last)
    for part in encoder.backbone.modules():
        if isinstance(part, _BatchNorm):
            part.eval()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.lr)
    images = ready.train_transform(ready.train, which, Stream(0)).to(memory_format=torch.channels_last)

    def train() -> None:
        optimizer.zero_grad()
        encoder(images).square().mean().backward()
        optimizer.step()

    return {
        f"{side} crop": lambda: ready.train_transform(ready.train, which, Stream(0)),
        f"{side} open": lambda: ready.eval_transform(ready.train, which, Stream(0)),
        f"{side} forward": lambda: torch.no_grad()(encoder)(images),
        f"{side} train": train,
    }


def run_seconds(config: RetrievalConfig, pace: Pace, *, train: int, evaluated: int) -> float:
    """Seconds of one run on one core.

    Args:
        config: Its options.
        pace: At its image size.
        train: Images of an epoch.
        evaluated: Images of an evaluation.
    """
    warm_up, epochs = config.warmup_epochs, config.epochs - config.warmup_epochs
    evaluations = -(-config.epochs // config.eval_every)
    seconds = train * (config.epochs * pace["crop"] + warm_up * pace["forward"] + epochs * pace["train"])
    seconds += evaluations * evaluated * (pace["open"] + pace["forward"])
    if config.adapter == "fresh":
        steps = max(0, epochs - config.memory_start) * train / config.batch_size
        rows = config.memory * train if config.memory <= 1 else config.memory
        seconds += steps / config.fresh_every * rows * (pace["crop"] + pace["forward"])
    return seconds


def grid_seconds(found: dict[str, Any], side: int, *words: object) -> list[float]:
    """Seconds of every run of the grid, were its images this large; `words` are further options."""
    images, pace, seconds = found["images"], found["seconds_per_image"][str(side)], []
    for config in grids.configs(GRID, "--image_size", side, *words):
        assert isinstance(config, RetrievalConfig)
        held_out = config.validation * images["train"]
        sizes = {"train": images["train"] - held_out, "evaluated": images["test"] + held_out}
        seconds.append(run_seconds(config, pace, **sizes))
    return seconds


def trial_seconds(found: dict[str, Any], side: int) -> list[float]:
    """Seconds of every trial of the protocol, were its images this large."""
    images, pace = found["images"], found["seconds_per_image"][str(side)]
    sizes = {"train": images["trial_train"], "evaluated": images["trial_held_out"]}
    changes = [{**BASE, **UNSEEN, **trial, "image_size": side} for trial in TRIALS.values()]
    return [run_seconds(make_config(RetrievalConfig, **options), pace, **sizes) for options in changes]


def show_plan(found: dict[str, Any]) -> str:
    """Cost per image, and the hours that follow for two cores, by image size."""
    rows = []
    for side, pace in found["seconds_per_image"].items():
        works = [trial_seconds(found, int(side)), grid_seconds(found, int(side), "--memories", 0.5)]
        works.append(grid_seconds(found, int(side)))
        costs = [f"{1000 * pace[name]:.1f}" for name in ("crop", "open", "forward", "train")]
        rows.append([side, *costs, *(f"{sum(work) / 3600 / 2:.1f} ({len(work)} runs)" for work in works)])
    heads = ["px", *(f"{name}, ms" for name in ("crop", "open", "forward", "train"))]
    return table([*heads, "trials, h", "grid, memory 50 %, h", "whole grid, h"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data_root", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_dataset("cub200", root=options.data_root)
    cases = {name: step for side in SIDES for name, step in pieces(options.weights, data, side).items()}
    seconds: dict[str, Pace] = {str(side): {} for side in SIDES}
    for name, times in interleaved(cases, rounds=options.rounds).items():
        side, what = name.split()
        seconds[side][what] = times["min_cpu_ms"] / 1000 / BATCH
    trial = sum(int((data.train.labels == species).sum()) for species in range(FIRST_HELD_OUT))
    images = {"train": len(data.train), "test": len(data.query), "trial_train": trial}
    images["trial_held_out"] = len(data.train) - trial
    write(NAME, {**facts("timm"), "batch_size": BATCH, "images": images, "seconds_per_image": seconds})


if __name__ == "__main__":
    main()
