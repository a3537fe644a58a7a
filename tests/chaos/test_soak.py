"""A long run: 20,000 steps with updates of the memory, evaluations and checkpoints do not take more and more memory."""

from pathlib import Path
from typing import Any

import pytest

from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import read_result
from chaos_process import start
from tiny_runs import SHORT, write_tiny

EPOCHS, IMAGES_PER_CLASS = 42, 80  # of 24 classes, in batches of 4: 480 steps an epoch
STEPS = 20_000
EVERY = 100  # steps between two measurements
LIMIT = 1.05


def train_and_measure(data: str, out: Path) -> None:
    """Train in a process of its own, and write down how many pages of memory it has."""
    from adaptive_memory_bank.lab.runs.config import make_config
    from adaptive_memory_bank.lab.training import train
    from adaptive_memory_bank.lab.training.process import keep_freed_memory
    from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig
    from adaptive_memory_bank.lab.training.step import TrainingModule

    training_step = TrainingModule.training_step

    def measured_step(self: TrainingModule, batch: Any, batch_idx: int) -> Any:
        if self.trainer.global_step % EVERY == 0:
            print(Path("/proc/self/statm").read_text().split()[1], file=pages, flush=True)
        return training_step(self, batch, batch_idx)

    TrainingModule.training_step = measured_step  # type: ignore[method-assign]
    keep_freed_memory()
    short = {**SHORT, "epochs": EPOCHS, "batch_size": 4, "log_every": 50, "checkpoint_every": 100}
    options = {**short, "images_per_class": 2, "validation": 0.0, "mine": False, "staleness_rows": 8, "drift_every": 50}
    config = make_config(RetrievalConfig, data=data, out=str(out), run_name="run", accelerator="cpu", **options)
    with (out / "pages.txt").open("w") as pages:
        train.run(config)


@pytest.mark.slow
def test_memory_is_flat_after_the_first_tenth(tmp_path):
    data = write_tiny(tmp_path / "tiny.npz", images_per_class=IMAGES_PER_CLASS)
    process = start(train_and_measure, data, tmp_path)
    process.join(timeout=1200)
    assert process.exitcode == 0
    result = read_result(RunFolder(tmp_path / "run"))
    assert result is not None
    assert result.status == "complete"
    pages = [int(line) for line in (tmp_path / "pages.txt").read_text().split()]
    assert len(pages) * EVERY >= STEPS
    later = pages[len(pages) // 10 :]
    assert max(later) <= LIMIT * later[0], pages
