"""What the paper's tables would cost on a GPU: an estimate, from the work of an image and the images of every run.

    python benchmarks/paper_cost.py

Nothing here was run on a GPU. The work of an image is counted (torch's FLOP counter, on tensors without data); that it
is a fair measure of time is seen on the CPU, where `encoder_share.py` measured two of the backbones. The GPU's pace is
assumed, and in one place: `ASSUMED_TFLOPS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grids
import timm
import torch
from markers import table
from measure import facts, read, write
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from adaptive_memory_bank.lab.models.resnet import Backbone
from adaptive_memory_bank.lab.runs.config import RunConfig
from adaptive_memory_bank.lab.training.moco.config import MocoConfig
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

NAME, PAPER = "paper_cost", Path(__file__).parent / "paper"
ASSUMED_TFLOPS = 20  # sustained, half or single precision alike
# By model: image side, and its name in `encoder_share.json` where it was measured.
BACKBONES = {
    "resnet50": (224, "ResNet-50, 224 px"),
    "swin_tiny_patch4_window7_224": (224, None),
    "resnet-18": (32, "ResNet-18, 32 px"),
}
# Images to train on, and images embedded by an evaluation (`amb datasets`); kNN embeds the training images, too.
IMAGES = {
    "sop": (59_551, 60_502),
    "inshop": (25_882, 14_218 + 12_612),
    "deepfashion2": (217_778 - 12_377 - 36_961, 12_377 + 36_961),
    "cifar10": (50_000, 50_000 + 10_000),
    "cifar100": (50_000, 50_000 + 10_000),
}
STATE_BYTES = 16  # of a weight: itself, its gradient, AdamW's two averages (MoCo: SGD's one, and the key's weight)


def build(model: str) -> nn.Module:
    """A backbone without data."""
    with torch.device("meta"):
        return Backbone(model, 1.0, splits=0) if model == "resnet-18" else timm.create_model(model, num_classes=0)


def work(model: str) -> dict[str, float]:
    """Operations of a forward pass, bytes that it keeps for the backward pass (float32), each per image; weights."""
    network, images = build(model).train(), torch.empty(2, 3, *[BACKBONES[model][0]] * 2, device="meta")
    weights = {id(weight) for weight in network.parameters()}
    kept: dict[int, Tensor] = {}  # the tensors themselves: an address may be used again

    def keep(tensor: Tensor) -> Tensor:
        if id(tensor) not in weights:
            kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        network(images)
    held = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    parameters = sum(weight.numel() for weight in network.parameters())
    return {"flops": counter.get_total_flops() / 2, "bytes": held / 2, "parameters": parameters}


def forward_passes(config: RunConfig) -> float:
    """Images of a run, in forward passes: a backward pass counts as two, a key of MoCo as one more."""
    train, evaluated = IMAGES[config.data]
    passes = -(-config.epochs // config.eval_every) * evaluated
    if isinstance(config, RetrievalConfig):
        warm_up = config.warmup_epochs  # of the head alone
        passes += train * (3 * (config.epochs - warm_up) + warm_up)
    else:
        passes += train * 4 * config.epochs
    steps = config.epochs * train / config.batch_size
    return passes + (steps / config.drift_every * config.probe_size if config.drift_every else 0)


def gpu_bytes(config: RunConfig, known: dict[str, Any]) -> float:
    """Activations at the batch size, weights with their optimiser, the bank, its logits and their gradient."""
    assert isinstance(config, RetrievalConfig | MocoConfig)
    work_of = known[config.model]
    rows = config.memory * IMAGES[config.data][0] if config.memory <= 1 else config.memory
    rows = 0 if config.adapter == "none" else rows
    half = 0.5 if config.precision.startswith(("16", "bf16")) else 1.0
    activations = half * work_of["bytes"] * config.batch_size
    bank = rows * (4 * config.embedding_dim + 8) + 2 * 4 * rows * config.batch_size
    return activations + STATE_BYTES * work_of["parameters"] + bank


def cpu_flops(known: dict[str, Any], measured: dict[str, Any]) -> dict[str, float]:
    """Operations a second of the CPU, forward and backward, by the backbones that were measured."""
    names = {model: name for model, (_, name) in BACKBONES.items() if name is not None}
    batch = 64  # of `encoder_share.py`
    return {
        model: 3 * known[model]["flops"] * batch / (measured["encoders"][name]["min_ms"] / 1000)
        for model, name in names.items()
    }


def show_backbones(known: dict[str, Any], measured: dict[str, Any]) -> str:
    """What an image takes, counted and measured."""
    pace, rows = cpu_flops(known, measured), []
    for model, (side, _) in BACKBONES.items():
        work_of = known[model]
        cells = [model, str(side), f"{work_of['parameters'] / 1e6:.1f}", f"{work_of['flops'] / 1e9:.2f}"]
        cells += [f"{work_of['bytes'] / 2**20:.1f}"]
        seconds = 3 * work_of["flops"] / pace[model] if model in pace else None
        cells += ["-", "-"] if seconds is None else [f"{1000 * seconds:.0f}", f"{pace[model] / 1e9:.0f}"]
        rows.append([*cells, f"{ASSUMED_TFLOPS * 1e12 / (3 * work_of['flops']):,.0f}"])
    heads = ["backbone", "px", "million weights", "GFLOP forward", "MiB kept for backward (float32)"]
    heads += ["ms to train on, measured on two CPU threads", "GFLOP/s there"]
    heads += [f"images trained a second at {ASSUMED_TFLOPS} TFLOP/s"]
    return table(heads, rows)


def show_tables(known: dict[str, Any], measured: dict[str, Any]) -> str:
    """A line for every file: its command, its work, hours, memory."""
    slowest = min(cpu_flops(known, measured).values())
    rows = []
    for path in sorted(PAPER.glob("*.yaml")):
        runs = grids.configs(path)
        passes = [forward_passes(config) for config in runs]
        flops = sum(count * known[config.model]["flops"] for count, config in zip(passes, runs, strict=True))
        hours = [flops / pace / 3600 for pace in (ASSUMED_TFLOPS * 1e12, slowest)]
        least = max(gpu_bytes(config, known) for config in runs) / 2**30
        command = f"`amb compare --config benchmarks/paper/{path.name} --data_root DATA --out runs/{path.stem}`"
        cells = [command, str(len(runs)), f"{sum(passes) / 1e6:,.0f}", f"{flops / 1e15:,.0f}"]
        rows.append([*cells, f"{hours[0]:,.0f}", f"{hours[1] / 24 / 365:.1f}", f"{least:.1f}"])
    heads = ["command", "runs", "million forward passes", "PFLOP", f"hours at {ASSUMED_TFLOPS} TFLOP/s"]
    return table([*heads, "years of the CPU", "GiB of the largest run"], rows)


def show() -> str:
    """Both tables."""
    known, measured = read(NAME)["work"], read("encoder_share")
    return f"{show_backbones(known, measured)}\n\n{show_tables(known, measured)}"


def main() -> None:
    write(NAME, {**facts("timm", "lightly"), "work": {model: work(model) for model in BACKBONES}})


if __name__ == "__main__":
    main()
