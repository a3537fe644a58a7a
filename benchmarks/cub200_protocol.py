"""How CUB-200-2011 is trained on two cores: every trial that chose `--preset photos` and `cub200.yaml`.

Only the training species are used: 1 to 75 train, 76 to 100 judge (contiguous, as the benchmark itself is split), so no
choice can have seen a test species. Trials that are complete in `--runs` are not repeated, others go on.

    python benchmarks/cub200_protocol.py --weights efficientnet_lite0.pth --data_root FOLDER_OF_CUB_200_2011 [TRIAL ...]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, facts, write

from adaptive_memory_bank.lab.data import eval_transform, load_dataset
from adaptive_memory_bank.lab.data.transforms import Normalization
from adaptive_memory_bank.lab.models.encoder import backbone_normalization, build_encoder
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.scores import embed_part
from adaptive_memory_bank.lab.training.train import run
from adaptive_memory_bank.metrics import retrieval_metrics

NAME = "cub200_protocol"
TRAINING_SPECIES, FIRST_HELD_OUT = 100, 75
BASE: dict[str, Any] = {
    "model": "tf_efficientnet_lite0",
    "image_size": 64,
    "augmentation": "crop",
    "freeze_batch_norm": True,
    "mine": False,
    "adapter": "none",
    "batch_size": 64,
    "embedding_dim": 128,
    "warmup_epochs": 1,
    "warmup_lr": 0.1,
    "lr": 1e-4,
    "epochs": 3,
}
# What each trial changes.
AT_ONCE: dict[str, Any] = {"memory": 1.0, "memory_start": 0.0}  # right after the head's warm-up
TRIALS: dict[str, dict[str, Any]] = {
    "none": {},
    "none, lr 3e-4": {"lr": 3e-4},
    "none, lr 3e-5": {"lr": 3e-5},
    "identity": {"adapter": "identity", **AT_ONCE},
    "identity, lr 3e-4": {"adapter": "identity", **AT_ONCE, "lr": 3e-4},
    "identity, memory later": {"adapter": "identity", "memory": 1.0, "memory_start": 1.0},
    "auto": {"adapter": "auto", **AT_ONCE},
    "auto, lr 3e-4": {"adapter": "auto", **AT_ONCE, "lr": 3e-4},
    "auto, memory later": {"adapter": "auto", "memory": 1.0, "memory_start": 1.0},
    "none, 96 px": {"image_size": 96},
    "identity, 96 px": {"adapter": "identity", **AT_ONCE, "image_size": 96},
}
UNSEEN: dict[str, Any] = {"validation": 0.0, "drift_every": 0, "staleness_rows": 0, "threads": 1, "wandb": "disabled"}


def training_species(data_root: Path, folder: Path) -> None:
    """Lay out the training species as a folder of photographs: `train/` and, in place of test species, `test/`."""
    species = sorted((data_root / "CUB_200_2011" / "images").iterdir())[:TRAINING_SPECIES]
    for number, source in enumerate(species):
        link = folder / ("train" if number < FIRST_HELD_OUT else "test") / source.name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(source.resolve())


def frozen(weights: str, folder: Path, image_size: int) -> float:
    """Recall@1 of the backbone's own features on the held-out species."""
    data = load_dataset(f"folder:{folder}")
    config = make_config(RetrievalConfig, model=BASE["model"], weights=weights)
    backbone = build_encoder(config, gray=False, image_size=image_size).backbone.eval()
    transform = eval_transform(data, image_size, normalization=Normalization(*backbone_normalization(config)))
    rows = embed_part(backbone, data.query, transform, batch_size=128, device=torch.device("cpu"))
    return retrieval_metrics(rows, data.query.labels, ks=(1,))["recall@1"]


def folder_of(trial: str, runs: Path) -> Path:
    """Where a trial lies."""
    return runs / trial.replace(" ", "_").replace(",", "")


def train(trial: str, options: argparse.Namespace) -> None:
    """Run a trial, or what is left of it."""
    folder = folder_of(trial, options.runs)
    if folder.exists():
        run(make_config(RetrievalConfig, resume=str(folder), threads=1, wandb="disabled"))
        return
    data = {"data": f"folder:{options.runs / 'species'}", "weights": options.weights}
    where = {"out": str(options.runs), "run_name": folder.name}
    run(make_config(RetrievalConfig, **{**BASE, **UNSEEN, **TRIALS[trial], **data, **where}))


def read(trial: str, runs: Path) -> dict[str, Any] | None:
    """What a trial has shown so far; None before its first epoch has ended."""
    folder = folder_of(trial, runs)
    if not (folder / "metrics.jsonl").exists():
        return None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    return {
        "trial": trial,
        "changed": TRIALS[trial],
        "status": result["status"],
        "held_out_recall@1": [line["val/recall@1"] for line in lines if "val/recall@1" in line],
        "train_loss": [line["train/loss_epoch"] for line in lines if "train/loss_epoch" in line],
        "step_ms": [line["time/step_ms"] for line in lines if "train/loss_epoch" in line],
        "seconds": result.get("seconds"),
    }


def collect(options: argparse.Namespace) -> None:
    """Write what is there, in the order of `TRIALS`, as JSON and as a table."""
    trials = [found for trial in TRIALS if (found := read(trial, options.runs)) and found["held_out_recall@1"]]
    sizes = sorted({found["changed"].get("image_size", BASE["image_size"]) for found in trials})
    features = {str(side): frozen(options.weights, options.runs / "species", side) for side in sizes}
    write(NAME, {**facts("timm"), "base": BASE, "frozen_recall@1": features, "trials": trials})
    (RESULTS / f"{NAME}.md").write_text(table(trials, features), encoding="utf-8")


def table(trials: list[dict[str, Any]], features: dict[str, float]) -> str:
    """One line per trial: Recall@1 on the held-out species after each epoch."""
    lines = ["# CUB-200-2011: how the protocol was chosen, on held-out training species", ""]
    lines += ["Made by `cub200_protocol.py`: species 1 to 75 train, 76 to 100 judge; one seed, so about 1.3 points of"]
    lines += [
        "standard error each. The first epoch trains the head alone. The machine had other work, so seconds vary."
    ]
    lines += ["", f"All: {_words(BASE)}.", ""]
    lines += ["| trial | changed | Recall@1 after each epoch, % | seconds |", "|---|---|---|---|"]
    lines += [f"| frozen features, {side} px | | {100 * value:.1f} | |" for side, value in features.items()]
    for found in trials:
        scores = " ".join(f"{100 * value:.1f}" for value in found["held_out_recall@1"])
        pace = f"{found['seconds']:.0f}" if found["status"] == "complete" else "not finished"
        lines.append(f"| {found['trial']} | {_words(found['changed'])} | {scores} | {pace} |")
    return "\n".join(lines) + "\n"


def _words(options: dict[str, Any]) -> str:
    return ", ".join(f"`{key} {value}`" for key, value in options.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", help="which to run; default: all")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data_root", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs") / NAME)
    options = parser.parse_args()
    torch.set_num_threads(1)
    training_species(options.data_root, options.runs / "species")
    for trial in options.trials or TRIALS:
        train(trial, options)
    collect(options)


if __name__ == "__main__":
    main()
