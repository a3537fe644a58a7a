"""The literal formulas, in float64 and plain loops: what the package is held to."""

from __future__ import annotations

import numpy as np
import torch

EPSILON = 1e-6


def moments_in_classes(rows: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """One-way analysis of variance by loops over classes."""
    groups = [rows[labels == label] for label in sorted(set(labels.tolist()))]
    n, c = len(rows), len(groups)
    within = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups) / (n - c)
    of_means = np.stack([g.mean(0) for g in groups]).var(0, ddof=1)
    one_over_k = np.mean([1 / len(g) for g in groups])
    between = of_means - within * one_over_k
    population = within + np.maximum(between, 0)
    return {
        "population_std": np.sqrt(population),
        "mean_variance": np.maximum(between * sum((len(g) / n) ** 2 for g in groups) + within / n, 0),
        "std_variance": (2 * of_means**2 / (c - 0.5) + 2 * ((1 - one_over_k) * within) ** 2 / (n - c + 0.5))
        / (4 * population),
    }


class NaiveAdapter:
    """Target moments of each adapter, as DESIGN's table says them, from float64 rows."""

    def __init__(self, name: str, **parameters: float) -> None:
        self.name, self.parameters, self.seen = name, parameters, 0

    def target(self, rows: np.ndarray, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
        mean, std = rows.mean(0), rows.std(0, ddof=1)
        out = getattr(self, f"_{self.name}")(rows, labels, mean, std)
        self.seen += 1
        return out

    def _identity(self, rows, labels, mean, std):
        return None

    def _xbn(self, rows, labels, mean, std):
        return mean, std

    def _ema(self, rows, labels, mean, std):
        m = self.parameters.get("momentum", 0.1) if self.seen else 0.0
        self.mu = mean if not self.seen else m * self.mu + (1 - m) * mean
        self.sigma = std if not self.seen else m * self.sigma + (1 - m) * std
        return self.mu, self.sigma

    def _axbn(self, rows, labels, mean, std):
        p = self.parameters
        if self.seen == 0:
            self.p, self.mu, self.sigma = p.get("p0", 1.0), mean, std
            return mean, std
        if (self.seen - 1) % p.get("gain_interval", 100) == 0:
            predicted = self.p + p.get("q", 1.0)
            self.k = predicted / (predicted + p.get("r", 0.01) / len(rows))
            self.p = (1 - self.k) * predicted
        self.mu = self.mu + self.k * (mean - self.mu)
        self.sigma = self.sigma + self.k * (std - self.sigma)
        return self.mu, self.sigma

    def _auto(self, rows, labels, mean, std):
        n = len(rows)
        found = {"population_std": std, "mean_variance": std**2 / n, "std_variance": std**2 / (2 * (n - 1))}
        if labels is not None and 1 < len(set(labels.tolist())) < n:
            found = moments_in_classes(rows, labels)
        spread = found["population_std"]
        noise = np.array([found["mean_variance"].sum(), found["std_variance"].sum()])
        if self.seen == 0:
            self.mu, self.sigma, self.pair = mean, spread, None
            self.shown = self.claimed = self.usual = self.recent = self.noise = np.zeros(2)
            return mean, spread
        innovation = np.stack([mean - self.mu, spread - self.sigma])
        gain = self._auto_gain(innovation, (innovation**2).sum(1), noise)
        self.pair = (innovation, noise, gain)
        self.mu, self.sigma = self.mu + gain[0] * innovation[0], self.sigma + gain[1] * innovation[1]
        return self.mu, self.sigma

    def _auto_gain(self, innovation, energy, noise):
        if self.pair is None:
            self.shown = self.claimed = 5 * noise
        else:
            before, claim, gain = self.pair
            size = (before**2).sum(1)
            weight = np.minimum(1, 2 * np.maximum(self.usual, claim) / np.maximum(size, 1e-30))
            self.shown = 0.99 * self.shown + weight * ((1 - gain) * size - (innovation * before).sum(1))
            self.claimed = 0.99 * self.claimed + weight * claim
        cap = 2 * np.maximum(self.usual, noise) if self.seen > 5 else energy
        slow, quick = max(1 / self.seen, 0.025), max(1 / self.seen, 0.1)
        self.usual = (1 - slow) * self.usual + slow * np.minimum(energy, cap)
        self.noise = (1 - slow) * self.noise + slow * noise
        self.recent = (1 - quick) * self.recent + quick * energy
        share = np.clip(self.shown / np.maximum(self.claimed, 1e-30), 0.02, 1)
        quiet = np.minimum(self.noise, 2 * noise)
        ratio = np.maximum(self.usual, self.recent / 2) / np.maximum(share * quiet, 1e-30)
        return 1 - 1 / (1 + np.maximum(ratio - 1, 0.01))


class NaiveBank:
    """Slots filled one row after the other; every adaptation rewrites every row."""

    def __init__(self, size: int, dim: int, adapter: NaiveAdapter) -> None:
        self.size, self.dim, self.adapter = size, dim, adapter
        self.rows, self.labels = np.full((size, dim), np.nan), [0] * size  # NaN: free, or a gap
        self.cursor = 0

    @property
    def held(self) -> np.ndarray:
        return ~np.isnan(self.rows[:, 0])

    @property
    def embeddings(self) -> np.ndarray:
        return self.rows[self.held]

    def adapt(self, rows: torch.Tensor, labels: torch.Tensor | None = None) -> None:
        batch = rows.double().numpy()
        finite = np.isfinite(batch).all(1)
        if finite.sum() < 2:
            return
        target = self.adapter.target(batch[finite], None if labels is None else labels.numpy()[finite])
        bank = self.embeddings
        if target is None or not len(bank):
            return
        mean = bank.mean(0)
        std = bank.std(0, ddof=1) if len(bank) > 1 else np.zeros(self.dim)
        both = (std > EPSILON * np.abs(mean)) & (target[1] > EPSILON * np.abs(target[0])) & (target[1] > 0)
        ratio = np.where(both, target[1] / np.where(std > 0, std, 1), 1.0)
        self.rows[self.held] = (bank - mean) * ratio + target[0]

    def enqueue(self, rows: torch.Tensor, labels: torch.Tensor | None = None) -> None:
        for index, row in enumerate(rows.double().numpy()):
            self.rows[self.cursor] = row if np.isfinite(row).all() else np.nan
            self.labels[self.cursor] = 0 if labels is None else int(labels[index])
            self.cursor = (self.cursor + 1) % self.size

    def update(self, rows: torch.Tensor, labels: torch.Tensor | None = None) -> None:
        self.adapt(rows, labels)
        self.enqueue(rows, labels)

    def assert_equals(self, bank, tolerance: float = 1e-5) -> None:
        expected = torch.from_numpy(self.embeddings.copy())
        found = bank.embeddings.double()
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        if bank.labels is not None:
            assert bank.labels.tolist() == [label for label, held in zip(self.labels, self.held, strict=True) if held]
        assert len(bank) == len(expected)
