"""A bank on several ranks, replicated against sharded: time of a step, bytes sent and held, beside what a model says.

    python benchmarks/scaling.py [--rounds 15]

Real processes on this machine, one thread each, that talk by gloo through the loopback device, whose counter says how
many bytes were sent (headers included). Layouts take turns in the same processes. With more processes than cores the
times say nothing of as many machines; that bytes and memory are as the model has them is what can be shown here.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import measure
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from markers import table
from scaling_model import Setting, bytes_held, bytes_sent, multiplications, similarities
from torch import Tensor, nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss

RANKS, BATCH, DIM, ROWS, IMAGES_PER_CLASS = (1, 2, 4), 64, 128, 65_536, 4
LOSSES, LAYOUTS = ("supcon", "infonce"), ("replicate", "shard")
COUNTED_STEPS = 20
# A billion rows in half precision on 64 devices, with 64 images each.
BILLION = {"ranks": 64, "batch": 64, "dim": 128, "rows": 10**9, "stored": 2}


def setting(loss: str, layout: str, ranks: int) -> Setting:
    """What is measured."""
    return Setting(loss, layout, ranks, BATCH, DIM, ROWS, classes=BATCH // IMAGES_PER_CLASS)


def make_loss(at: Setting) -> nn.Module:
    """A loss on a full bank."""
    layout = {"shard_distributed": at.layout == "shard", "gather_distributed": at.layout == "replicate"}
    bank = AdaptiveMemoryBank(at.rows, at.dim, "auto", **layout)
    rows = bank.ring.size
    labels = torch.randint(10_000, (rows,)) if at.loss == "supcon" else None
    bank.restore(torch.randn(rows, at.dim), labels, cursor=0)
    return MemorySupConLoss(bank, mine=False) if at.loss == "supcon" else MemoryInfoNCELoss(bank)


def batches(loss: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Of this rank: embeddings, and labels or keys."""
    while True:
        labels = torch.randperm(10_000)[: BATCH // IMAGES_PER_CLASS].repeat_interleave(IMAGES_PER_CLASS)
        yield torch.randn(BATCH, DIM, requires_grad=True), labels if loss == "supcon" else torch.randn(BATCH, DIM)


def sent_on_loopback() -> int:
    """Bytes, since the machine started, of all processes."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def held(loss: nn.Module) -> int:
    """Bytes of the rows, labels and marks of a rank, and of all that is beside them."""
    return sum(value.nbytes for value in loss.state_dict().values() if isinstance(value, Tensor))


def work(rank: int, ranks: int, rounds: int, folder: str) -> None:
    """Measure every loss in both layouts; rank 0 writes."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{ranks}", rank=rank, world_size=ranks)
    cases = [setting(loss, layout, ranks) for loss, layout in product(LOSSES, LAYOUTS)]
    losses, drawn = [make_loss(case) for case in cases], [batches(case.loss) for case in cases]
    times: list[list[float]] = [[] for _ in cases]
    for round_ in range(rounds + 2):
        for index, loss in enumerate(losses):
            batch = next(drawn[index])
            dist.barrier()
            begin = time.perf_counter()
            loss(*batch).backward()
            dist.barrier()  # the slowest rank decides
            if round_ >= 2:
                times[index].append(1e3 * (time.perf_counter() - begin))
    found = [
        {
            "loss": case.loss,
            "layout": case.layout,
            "ranks": ranks,
            "min_ms": min(times[index]),
            "median_ms": statistics.median(times[index]),
            "sent_per_rank": count_bytes(losses[index], drawn[index]) / ranks,
            "held": held(losses[index]),
        }
        for index, case in enumerate(cases)
    ]
    if rank == 0:
        Path(folder, f"{ranks}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def count_bytes(loss: nn.Module, drawn: Iterator[tuple[Tensor, Tensor]]) -> float:
    """Bytes that all ranks send in a step."""
    dist.barrier()
    before = sent_on_loopback()
    for _ in range(COUNTED_STEPS):
        loss(*next(drawn)).backward()
    dist.barrier()
    return (sent_on_loopback() - before) / COUNTED_STEPS


def show_measured(found: dict[str, Any]) -> str:
    """Time, bytes and memory, each beside the model's."""
    rows = []
    for case in found["cases"]:
        at = setting(case["loss"], case["layout"], case["ranks"])
        sent, room = sum(bytes_sent(at).values()), bytes_held(at)
        rows.append(
            [
                case["loss"],
                str(case["ranks"]),
                case["layout"],
                f"{case['min_ms']:.0f}",
                f"{multiplications(at) / 1e9:.2f}",
                *([f"{case['sent_per_rank'] / 1e3:.0f}", f"{sent / 1e3:.0f}"] if at.ranks > 1 else ["-", "-"]),
                f"{case['held'] / 2**20:.1f}",
                f"{room / 2**20:.1f}",
            ]
        )
    heads = ["loss", "ranks", "layout", "step, ms", "10^9 multiplications", "kB sent by a rank", "model, kB"]
    return table([*heads, "MiB of the bank on a rank", "model, MiB"], rows)


def show_billion() -> str:
    """The model for a billion rows."""
    rows = []
    for loss, layout in product(LOSSES, LAYOUTS):
        at = Setting(loss, layout, **BILLION)
        parts = ", ".join(f"{name} {size / 1e3:.0f}" for name, size in bytes_sent(at).items() if size)
        cells = [f"{bytes_held(at) / 1e9:.1f}", f"{multiplications(at) / 1e12:.1f}", f"{similarities(at) / 1e9:.0f}"]
        rows.append([loss, layout, *cells, f"{sum(bytes_sent(at).values()) / 1e6:.1f}", parts])
    heads = ["loss", "layout", "GB of the bank on a rank", "10^12 multiplications", "10^9 similarities"]
    return table([*heads, "MB sent by a rank", "of which, kB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for ranks in RANKS:
            mp.spawn(work, args=(ranks, options.rounds, folder), nprocs=ranks)
            cases += json.loads(Path(folder, f"{ranks}.json").read_text())
    settings = {"batch": BATCH, "dim": DIM, "rows": ROWS, "rounds": options.rounds}
    found = {**measure.facts("adaptive-memory-bank"), **settings, "cases": cases}
    print(show_measured(found))
    print(measure.write("scaling", found))


if __name__ == "__main__":
    main()
