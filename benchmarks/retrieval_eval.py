"""How fast and how large is `retrieval_metrics`, beside faiss-cpu's flat index and PML's AccuracyCalculator?

Every contestant runs once per round, so that whatever else the machine does falls on all of them; ratios are taken
within rounds. All get the same raw embeddings and normalise them themselves. The product of the unit rows alone, in the
same blocks, is the floor. A second process scores a set of the size of Stanford Online Products' test set, for the peak
memory.

    python benchmarks/retrieval_eval.py
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import faiss
import torch
import torch.nn.functional as F
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor

from adaptive_memory_bank.metrics import retrieval_metrics, similarity

KS = (1, 10, 100, 1000)
Metrics = dict[str, float]


def draw(rows: int, dim: int, per_class: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows around class centres, with a Recall@1 near one half, in random order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows)[torch.randperm(rows, generator=generator)] // per_class
    centres = torch.randn(int(labels.max()) + 1, dim, generator=generator)
    return centres[labels] + 2.5 * torch.randn(rows, dim, generator=generator), labels


def by_faiss(rows: Tensor, labels: Tensor, ks: tuple[int, ...], relevant: int) -> Metrics:
    """The same metrics from a flat index: search, drop the query itself by its index, look the labels up."""
    units = F.normalize(rows).numpy()
    index = faiss.IndexFlatIP(units.shape[1])
    index.add(units)
    found = torch.from_numpy(index.search(units, max(*ks, relevant) + 1)[1])
    itself = found == torch.arange(len(found))[:, None]
    itself[:, -1] |= ~itself.any(dim=1)  # crowded out by duplicates: drop the last instead
    hits = labels[found[~itself].view(len(found), -1)] == labels[:, None]
    metrics = {f"recall@{k}": hits[:, :k].any(dim=1).double().mean().item() for k in ks}
    top = hits[:, :relevant].double()
    precision = top.cumsum(dim=1) / torch.arange(1, relevant + 1)
    metrics["map@r"] = ((precision * top).sum(dim=1) / relevant).mean().item()
    return metrics | {"r_precision": top.mean(dim=1).mean().item()}


def by_pml(rows: Tensor, labels: Tensor) -> Metrics:
    """PML's calculator with its own faiss search; of the recalls it knows the first only."""
    include = ("precision_at_1", "mean_average_precision_at_r", "r_precision")
    calculator = AccuracyCalculator(include, k="max_bin_count", device=torch.device("cpu"))
    values = calculator.get_accuracy(F.normalize(rows), labels)
    return dict(zip(("recall@1", "map@r", "r_precision"), (values[name] for name in include), strict=True))


def product_alone(rows: Tensor) -> Metrics:
    """The floor: what nobody who computes every similarity can do without."""
    units = F.normalize(rows)
    chunks = similarity.split(torch.arange(len(units)), units, None)
    for _ in similarity.similarity_blocks(units, None, chunks, progress=False):
        pass
    return {}


def interleave(
    contestants: dict[str, Callable[[], Metrics]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, Metrics]]:
    """Run every contestant once per round, after one round that is not counted; return seconds and results by name."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    results: dict[str, Metrics] = {}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for name, contestant in contestants.items():
            start = time.perf_counter()
            results[name] = contestant()
            seconds[name].append(time.perf_counter() - start)
    return {name: values[1:] for name, values in seconds.items()}, results


def table(seconds: dict[str, list[float]], results: dict[str, Metrics]) -> dict[str, dict[str, object]]:
    """Min, median, time relative to ours (median over rounds), largest difference of a shared metric to ours."""
    ours, metrics = seconds["ours"], results["ours"]
    lines: dict[str, dict[str, object]] = {}
    for name, values in seconds.items():
        shared = [abs(value - metrics[key]) for key, value in results[name].items()]
        ratios = [theirs / own for theirs, own in zip(values, ours, strict=True)]
        lines[name] = {
            "min_seconds": min(values),
            "median_seconds": statistics.median(values),
            "times_ours_min": min(values) / min(ours),
            "times_ours_median": statistics.median(ratios),
            "largest_difference": max(shared, default=None),
            "seconds": values,
        }
    return lines


def peak_memory(rows: int, dim: int, per_class: int, threads: int) -> dict[str, float]:
    """Score once in a fresh process; return how far its peak memory rose above what held the embeddings."""
    command = [sys.executable, __file__, "--peak", "--rows", str(rows), "--dim", str(dim)]
    command += ["--per-class", str(per_class), "--threads", str(threads)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_peak(rows: Tensor, labels: Tensor) -> dict[str, float]:
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    start = time.perf_counter()
    retrieval_metrics(rows, labels, ks=KS)
    seconds = time.perf_counter() - start
    rise = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before  # counted in KiB on Linux
    return {"rows": len(rows), "dim": rows.shape[1], "peak_gib_above_embeddings": rise / 2**30, "seconds": seconds}


def show(lines: dict[str, dict[str, object]]) -> None:
    print(f"{'':42}{'min s':>8}{'median s':>10}{'x ours (min)':>14}{'x ours (median)':>17}{'difference':>12}")
    for name, line in lines.items():
        difference = "" if line["largest_difference"] is None else f"{line['largest_difference']:.1e}"
        print(
            f"{name:42}{line['min_seconds']:8.2f}{line['median_seconds']:10.2f}"
            f"{line['times_ours_min']:14.2f}{line['times_ours_median']:17.2f}{difference:>12}"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--per-class", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "retrieval_eval.json")
    parser.add_argument("--peak", action="store_true", help="only measure the peak memory of one evaluation")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    rows, labels = draw(options.rows, options.dim, options.per_class, options.seed)
    if options.peak:
        print(json.dumps(measure_peak(rows, labels)))
        return
    relevant = options.per_class - 1
    contestants = {
        "ours": lambda: retrieval_metrics(rows, labels, ks=KS),
        "product alone (floor)": lambda: product_alone(rows),
        f"faiss flat, k={max(KS) + 1}: the same metrics": lambda: by_faiss(rows, labels, KS, relevant),
        f"faiss flat, k={relevant + 1}: recall@1, map@r only": lambda: by_faiss(rows, labels, (1,), relevant),
        "PML AccuracyCalculator: recall@1, map@r": lambda: by_pml(rows, labels),
    }
    seconds, results = interleave(contestants, options.rounds)
    lines = table(seconds, results)
    show(lines)
    memory = peak_memory(60_502, 512, options.per_class, options.threads)
    print(
        f"60,502 x 512: {memory['seconds']:.1f} s, {memory['peak_gib_above_embeddings']:.2f} GiB above the embeddings"
    )
    report = {
        "command": " ".join(["python", "benchmarks/retrieval_eval.py", *sys.argv[1:]]),
        "setting": {key: value for key, value in vars(options).items() if key not in ("out", "peak")} | {"ks": KS},
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "load_average": os.getloadavg(),  # above the threads: others were at work, trust the ratios only
        },
        "versions": {name: version(name) for name in ("torch", "faiss-cpu", "pytorch-metric-learning")},
        "metrics": results["ours"],
        "contestants": lines,
        "memory": memory,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
