"""Run folders in the trainers' format, written without training."""

import base64
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

WriteRun = Callable[..., Path]
LEVEL = {"none": 0.70, "identity": 0.75, "xbn": 0.77, "ema": 0.78, "axbn": 0.77, "auto": 0.79, "fresh": 0.80}


@pytest.fixture
def write_run() -> WriteRun:
    """Write one run below a folder and return its folder."""
    return _write_run


def _write_run(out: Path, adapter: str = "identity", seed: int = 0, **changes: Any) -> Path:
    score, options = changes.pop("score", None), changes.pop("options", {})
    details = {**_details(adapter, seed), **changes}
    if score is not None:
        key = "knn" if details["task"] == "moco" else "recall@1"
        details = {**details, "metrics": {**details["metrics"], f"val/{key}": score}, "best": {f"best/{key}": score}}
    folder = out / details.get("run", f"{adapter}-{details['batch_size']}-{details['memory_size']}-{seed}")
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({**details, "run": folder.name}), encoding="utf-8")
    keys = ("task", "data", "adapter", "seed", "batch_size", "epochs")
    (folder / "config.yaml").write_text(
        yaml.safe_dump({**{key: details[key] for key in keys}, **options}), encoding="utf-8"
    )
    lines = [json.dumps(line) for line in _history(details)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _details(adapter: str, seed: int) -> dict[str, Any]:
    draw = random.Random(f"{adapter}-{seed}")
    score = LEVEL.get(adapter, 0.7) + draw.uniform(-0.01, 0.01)
    metrics = {"val/recall@1": score, "val/recall@10": score + 0.1, "val/map@r": score - 0.2, "time/step_ms": 10.0}
    if adapter != "none":
        metrics |= {"bank/staleness": 0.6 - LEVEL.get(adapter, 0.7) / 4, "drift/mean": 0.02, "drift/max": 0.1}
    best = {"best/recall@1": score + 0.004, "best/recall@10": score + 0.1, "best/map@r": score - 0.2}
    versions = {"python": "3.11.2", "torch": "2.9.0", "adaptive-memory-bank": "0.1.0"}
    return {
        "task": "retrieval", "data": "glyphs", "adapter": adapter, "seed": seed, "batch_size": 16,
        "memory_size": 0 if adapter == "none" else 512, "epochs": 5, "metrics": metrics, "best": best,
        "seconds_per_step": 0.010 if adapter == "none" else 0.012, "status": "complete",
        "versions": versions, "machine": "Linux, 2 cores", "chosen_on": "validation", "best_epoch": 4,
    }  # fmt: skip


def _history(details: dict[str, Any]) -> list[dict[str, Any]]:
    lines = []
    for epoch in range(details["epochs"]):
        share = (epoch + 1) / details["epochs"]
        values = {name: value * share**0.3 for name, value in details["metrics"].items()}
        if "bank/staleness" in values:
            values["bank/staleness_unadapted"] = 1.3 * values["bank/staleness"]
        lines += [{"epoch": epoch, "step": 10 * epoch + 5, "train/loss": 2 - share, "train/loss_epoch": 2 - share}]
        lines += [{"epoch": epoch, "step": 10 * epoch + 10, **values}]
    return lines


@pytest.fixture
def write_worst_queries() -> Callable[..., None]:
    """Write worst queries with the given class names below a run."""

    def write(run: Path, names: tuple[str, ...] = ("a", "b"), count: int = 3) -> None:
        queries = [_query(names, index) for index in range(count)]
        (run / "gallery.json").write_text(json.dumps({"epoch": 4, "queries": queries}), encoding="utf-8")

    return write


def _query(names: tuple[str, ...], index: int) -> dict[str, Any]:
    def match(rank: int) -> dict[str, Any]:
        right = rank > index
        name = names[index % len(names)] if right else names[(index + 1) % len(names)]
        return {"index": rank, "class": name, "correct": right, "score": 0.9 - 0.05 * rank, "image": _picture(rank)}

    matches = [match(rank) for rank in range(8)]
    return {
        "index": index, "class": names[index % len(names)], "image": _picture(index), "first_match": index + 2,
        "matches": matches,
    }  # fmt: skip


def _picture(seed: int) -> str:
    image, draw = Image.new("L", (28, 28), 235), random.Random(seed)
    for _ in range(60):
        image.putpixel((draw.randrange(6, 22), draw.randrange(6, 22)), draw.randrange(120))
    file = io.BytesIO()
    image.save(file, "WEBP")
    return base64.b64encode(file.getvalue()).decode()
