"""How CUB-200-2011 is trained on two cores: every trial that chose `--preset photos` and `cub200.yaml`.

Only the training species are used: 1 to 75 train, 76 to 100 judge (contiguous, as the benchmark itself is split), so no
choice can have seen a test species. Trials that are complete in `--runs`, or in `results/` with the same options, are
not repeated, others go on. Two shells with different trials use two cores; the last one to finish collects them all.

    python benchmarks/cub200_protocol.py --weights efficientnet_lite0.pth --data_root FOLDER_OF_CUB_200_2011 [TRIAL ...]
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import measure
import torch
import yaml
from measure import RESULTS, facts, write

from adaptive_memory_bank.lab.data import eval_transform, load_dataset
from adaptive_memory_bank.lab.data.transforms import Normalization
from adaptive_memory_bank.lab.models.encoder import backbone_normalization, build_encoder
from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.runs.results import RunResult
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
from adaptive_memory_bank.lab.training.scores import embed_part
from adaptive_memory_bank.lab.training.train import run
from adaptive_memory_bank.metrics import retrieval_metrics

NAME = "cub200_protocol"
TRAINING_SPECIES, FIRST_HELD_OUT = 100, 75
# What the grid has, too: `cub200.yaml` and `--preset photos`.
BASE: dict[str, Any] = {
    "model": "tf_efficientnet_lite0",
    "image_size": 96,
    "augmentation": "crop",
    "freeze_batch_norm": True,
    "mine": False,
    "batch_size": 64,
    "embedding_dim": 128,
    "warmup_epochs": 1,
    "warmup_lr": 0.1,
    "epochs": 6,
    "lr_step": 4,
}
RATES = (3e-5, 1e-4, 3e-4)
# The contestants: what they are, and what is tried for each. All memories get the same trials, plain memory as well.
CONTESTANTS: dict[str, dict[str, Any]] = {
    "none": {"adapter": "none"},
    "none, batch 128": {"adapter": "none", "batch_size": 128},
    **{name: {"adapter": name, "memory": 0.5} for name in ("identity", "xbn", "auto")},
}


def _trials() -> dict[str, dict[str, Any]]:
    """What each trial changes: three learning rates, and for a memory an earlier start (right after the warm-up)."""
    trials = {}
    for name, options in CONTESTANTS.items():
        has_memory = options["adapter"] != "none"
        for lr in RATES:
            start = {"memory_start": 1.0} if has_memory else {}
            trials[f"{name}, lr {lr:g}"] = {**options, "lr": lr, **start}
        if has_memory:
            trials[f"{name}, lr {RATES[1]:g}, at once"] = {**options, "lr": RATES[1], "memory_start": 0.0}
    return trials


TRIALS = _trials()
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


def train(trial: str, options: argparse.Namespace) -> RunResult:
    """Run a trial, or what is left of it."""
    folder = folder_of(trial, options.runs)
    if folder.exists():
        return run(make_config(RetrievalConfig, resume=str(folder), threads=1, wandb="disabled"))
    data = {"data": f"folder:{options.runs / 'species'}", "weights": options.weights}
    where = {"out": str(options.runs), "run_name": folder.name}
    return run(make_config(RetrievalConfig, **{**BASE, **UNSEEN, **TRIALS[trial], **data, **where}))


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
        "commit": result.get("versions", {}).get("commit"),
    }


def known(trial: str) -> dict[str, Any] | None:
    """A trial that `results/` has complete, with the options it would have now; perhaps from another machine."""
    found = measure.read(NAME, RESULTS) or {}
    trials = found.get("trials", []) if found.get("base") == BASE else []
    same = [one for one in trials if (one["trial"], one["changed"]) == (trial, TRIALS[trial])]
    return next((one for one in same if one["status"] == "complete"), None)


def choices(trials: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For every contestant the options that scored highest on the held-out species after the last epoch.

    Only contestants whose trials are all complete have a choice: none is tuned less than another.
    """
    done = {found["trial"]: found for found in trials if found["status"] == "complete"}
    chosen = {}
    for name in CONTESTANTS:
        own = [trial for trial in TRIALS if trial.startswith(f"{name}, lr ")]
        if all(trial in done for trial in own):
            best = max(own, key=lambda trial: done[trial]["held_out_recall@1"][-1])
            chosen[name] = {key: TRIALS[best][key] for key in ("lr", "memory_start") if key in TRIALS[best]}
    return chosen


def grid_variants(chosen: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The choices as `cub200.yaml` takes them; who had no trials of his own has those of his nearest relative."""
    relatives = {"axbn": "xbn", "fresh": "identity"}
    return {**chosen, **{name: dict(chosen[other]) for name, other in relatives.items() if other in chosen}}


def collect(options: argparse.Namespace) -> None:
    """Write what is there, in the order of `TRIALS`, as JSON and as a table."""
    told = [known(trial) or read(trial, options.runs) for trial in TRIALS]
    trials = [found for found in told if found and found["held_out_recall@1"]]
    sizes = sorted({found["changed"].get("image_size", BASE["image_size"]) for found in trials})
    features = {str(side): frozen(options.weights, options.runs / "species", side) for side in sizes}
    content = {"base": BASE, "frozen_recall@1": features, "trials": trials, "chosen": choices(trials)}
    write(NAME, {**facts("timm"), **content})
    (RESULTS / f"{NAME}.md").write_text(table(trials, features), encoding="utf-8")


def table(trials: list[dict[str, Any]], features: dict[str, float]) -> str:
    """One line per trial, Recall@1 on the held-out species after each epoch; then what that chooses."""
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
    lines += ["", "Chosen for `cub200.yaml`: the highest Recall@1 after the last epoch, each among its own trials.", ""]
    commits = dict.fromkeys(f"`{found['commit']}`" for found in trials if found["commit"])
    variants = grid_variants(choices(trials))
    text = yaml.safe_dump({"variants": variants}, sort_keys=False) if variants else "# nothing yet\n"
    lines += [f"```yaml\n{text}```", *([f"\nCode: {', '.join(commits)}."] if commits else [])]
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
        if known(trial) is None and train(trial, options).status == "interrupted":
            sys.exit(f"{trial}: interrupted. The same command goes on with it.")
    collect(options)


if __name__ == "__main__":
    main()
