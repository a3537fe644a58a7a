"""The worst queries and what they found instead: as numbers in checkpoints, as pictures in `gallery.json` and W&B."""

import base64
import io
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.metrics import QueryScores

QUERIES, MATCHES, SIDE = 12, 8, 64


def worst_queries(scores: QueryScores, rows: Tensor, gallery_rows: Tensor | None) -> dict[str, Any]:
    """Numbers of the worst queries and of their nearest images in the gallery (None: among each other), as lists."""
    worst = scores.worst(QUERIES)
    others = rows if gallery_rows is None else gallery_rows
    similar = F.normalize(rows[worst], dim=1) @ F.normalize(others, dim=1).T
    if gallery_rows is None:
        similar[torch.arange(len(worst)), worst] = -torch.inf
    nearest = similar.topk(min(MATCHES, scores.candidates), dim=1)
    return {
        "queries": worst.tolist(),
        "first_match": scores.best_rank[worst].tolist(),
        "matches": nearest.indices.tolist(),
        "scores": [[round(score, 4) for score in row] for row in nearest.values.tolist()],
    }


def render_gallery(found: dict[str, Any], query: Part, gallery: Part | None, epoch: int) -> dict[str, Any]:
    """The content of `gallery.json`: names, scores and small pictures (WebP)."""
    searched = query if gallery is None else gallery
    queries = []
    for index, first, matches, scores in zip(
        found["queries"], found["first_match"], found["matches"], found["scores"], strict=True
    ):
        label = int(query.labels[index])
        shown = [
            {**_entry(searched, match), "correct": int(searched.labels[match]) == label, "score": score}
            for match, score in zip(matches, scores, strict=True)
        ]
        queries.append({**_entry(query, index), "first_match": first, "matches": shown})
    return {"epoch": epoch, "queries": queries}


def _entry(part: Part, index: int) -> dict[str, Any]:
    return {"index": index, "class": part.class_names[int(part.labels[index])], "image": _picture(part.image(index))}


def _picture(image: Image.Image) -> str:
    image.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="WEBP", quality=80)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def gallery_table(rendered: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a W&B table: one row per query, the nearest images beside it."""
    import wandb

    def picture(entry: dict[str, Any], caption: str) -> Any:
        return wandb.Image(Image.open(io.BytesIO(base64.b64decode(entry["image"]))), caption=caption)

    most = max((len(query["matches"]) for query in rendered["queries"]), default=0)
    columns = ["query", "class", "first match", *(f"nearest {i + 1}" for i in range(most))]
    rows = []
    for query in rendered["queries"]:
        matches = [
            picture(m, f"{'=' if m['correct'] else '≠'} {m['class']} {m['score']:.2f}") for m in query["matches"]
        ]
        rows.append([picture(query, query["class"]), query["class"], query["first_match"], *matches])
    return columns, rows
