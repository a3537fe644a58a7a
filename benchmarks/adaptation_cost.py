"""What a step of the bank costs, by its size: the lazy affine map against the literal formula.

    python benchmarks/adaptation_cost.py [--quick]

A step is `bank.update` of 64 rows with XBN; the fold at the end of a lap is part of it: we time whole laps where they
are short enough, and otherwise add the measured fold, divided by the steps of a lap. The literal formula rewrites every
row at every step.
"""

from __future__ import annotations

import argparse
import time

import measure
import torch

from adaptive_memory_bank import AdaptiveMemoryBank

BATCH = 64
SIZES = (1_000, 10_000, 60_000, 250_000, 1_000_000)
EPSILON = 1e-6


class LiteralBank:
    """The paper's update, word by word: moments of all rows, then all rows rewritten, then the batch stored."""

    def __init__(self, size: int, dim: int) -> None:
        self.rows, self.cursor = torch.randn(size, dim), 0

    def update(self, rows: torch.Tensor) -> None:
        """Adapt all rows, then enqueue."""
        std, mean = torch.std_mean(self.rows, dim=0)
        batch_std, batch_mean = torch.std_mean(rows, dim=0)
        self.rows = (self.rows - mean) * (batch_std / (std + EPSILON)) + batch_mean
        end = self.cursor + len(rows)
        self.rows[self.cursor : end] = rows[: len(self.rows) - self.cursor]
        self.cursor = end % len(self.rows) if end < len(self.rows) else 0


def filled_bank(size: int, dim: int) -> AdaptiveMemoryBank:
    bank = AdaptiveMemoryBank(size, dim, "xbn")
    for start in range(0, size, 50_000):
        bank.enqueue(torch.randn(min(50_000, size - start), dim))
    return bank


def measure_fold(bank: AdaptiveMemoryBank) -> float:
    """Milliseconds of the end of a lap (it folds a map that is not the identity)."""
    found = []
    for _ in range(3):
        bank.adapt(torch.randn(BATCH, bank.dim))
        begin = time.perf_counter()
        bank.ring.fold()
        found.append(1e3 * (time.perf_counter() - begin))
    return min(found)


def bytes_of(bank: AdaptiveMemoryBank) -> tuple[int, int]:
    """Bytes of everything the bank holds, and of its rows and labels alone."""
    tensors = [value for value in bank.state_dict().values() if isinstance(value, torch.Tensor)]
    per_row = bank.dim * bank.dtype.itemsize + torch.int64.itemsize
    return sum(t.nbytes for t in tensors), bank.size * per_row


def run(size: int, dim: int, rounds: int) -> dict[str, float]:
    bank, literal, rows = filled_bank(size, dim), LiteralBank(size, dim), torch.randn(BATCH, dim)

    def lazy_steps() -> None:
        bank.ring.cursor = 0  # the step without the fold; that is measured and added below
        for _ in range(min(10, size // BATCH - 1)):
            bank.update(rows)

    steps = min(10, size // BATCH - 1)
    found = measure.interleaved({"lazy": lazy_steps, "literal": lambda: literal.update(rows)}, rounds=rounds)
    fold = measure_fold(bank) / (size / BATCH)
    lazy = {key: value / steps + fold for key, value in found["lazy"].items()}
    held, needed = bytes_of(bank)
    return {
        "size": size,
        "dim": dim,
        "lazy_min_ms": lazy["min_ms"],
        "lazy_median_ms": lazy["median_ms"],
        "of_which_fold_ms": fold,
        "literal_min_ms": found["literal"]["min_ms"],
        "literal_median_ms": found["literal"]["median_ms"],
        "speed_up": found["literal"]["median_ms"] / lazy["median_ms"],
        "bytes_over_rows_and_labels": held / needed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="sizes up to 60,000 and few rounds")
    quick = parser.parse_args().quick
    torch.manual_seed(0)
    print(f"{'dim':>5} {'size':>9} {'step ms':>9} {'fold ms':>9} {'literal ms':>11} {'speed-up':>9} {'bytes':>7}")
    table = []
    for dim in (128, 512):
        for size in SIZES[:3] if quick else SIZES:
            row = run(size, dim, rounds=5 if quick else 15)
            table.append(row)
            print(
                f"{dim:>5} {size:>9,} {row['lazy_median_ms']:>9.3f} {row['of_which_fold_ms']:>9.3f} "
                f"{row['literal_median_ms']:>11.2f} {row['speed_up']:>8.1f}x {row['bytes_over_rows_and_labels']:>7.4f}"
            )
    ratios = {}
    for dim in (128, 512):
        of_dim = {row["size"]: row for row in table if row["dim"] == dim}
        largest = max(of_dim)
        ratios[f"{largest} rows against 10000, dim {dim}"] = (
            of_dim[largest]["lazy_median_ms"] / of_dim[10_000]["lazy_median_ms"]
        )
        ratios[f"literal against lazy at 60000, dim {dim}"] = of_dim[60_000]["speed_up"]
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    if not quick:
        print(measure.write("adaptation_cost", {**measure.facts(), "batch": BATCH, "rows": table, "ratios": ratios}))


if __name__ == "__main__":
    main()
