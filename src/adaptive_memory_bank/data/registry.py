"""The one place that knows every dataset by name."""

from pathlib import Path

from adaptive_memory_bank.data.base import RetrievalData


def available_datasets() -> tuple[str, ...]:
    """Names that `load_dataset` knows."""
    return ()


def load_dataset(name: str, *, root: str | Path | None = None, seed: int = 0, download: bool = False) -> RetrievalData:
    """Index a dataset by name."""
    raise NotImplementedError
