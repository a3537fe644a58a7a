"""The disk is full at any one of the writes of a run: the run goes on by the same command, to the same end."""

import dataclasses
import errno

import pytest

from adaptive_memory_bank.lab.runs import files
from adaptive_memory_bank.lab.runs.files import DiskFullError
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.training import train
from exactly import assert_same
from tiny_runs import final_state


class Disk:
    """Has room for so many writes."""

    def __init__(self, monkeypatch):
        self.room, self.writes = None, 0
        self.to_disk = files._to_disk
        monkeypatch.setattr(files, "_to_disk", self.write)

    def write(self, file):
        self.writes += 1
        if self.room is not None and self.writes > self.room:
            if "a" in file.mode:
                file.flush()
            else:
                file.truncate(file.tell() // 2)  # as much as there was room for
            raise OSError(errno.ENOSPC, "No space left on device")
        self.to_disk(file)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def same_command(config, run: RunFolder):
    """Start the run, or resume what there is of it."""
    return train.run(dataclasses.replace(config, resume=str(run.path)) if run.config_file.exists() else config)


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_write_costs_nothing(retrieval_config, disk, metric_lines, tmp_path):
    config = retrieval_config(run_name="run", epochs=2, memory_start=0.5)
    whole = train.run(dataclasses.replace(config, run_name="whole"))
    writes, never_stopped = disk.writes, tmp_path / "runs" / "whole"
    assert writes > 15
    for room in range(writes):
        out = tmp_path / str(room)
        run, asked = RunFolder(out / "run"), dataclasses.replace(config, out=str(out))
        disk.room, disk.writes = room, 0
        with pytest.raises(DiskFullError, match="Disk full while writing"):
            same_command(asked, run)
        assert [path.name for path in out.rglob("*.draft")] == []
        disk.room = None
        result = same_command(asked, run)
        assert (result.status, result.best) == ("complete", whole.best)
        assert metric_lines(run.path) == metric_lines(never_stopped)
        assert_same(final_state(run.path), final_state(never_stopped))


def test_no_room_for_the_configuration_leaves_no_run(retrieval_config, disk, tmp_path):
    disk.room = 0
    with pytest.raises(DiskFullError, match=r"Disk full while writing .*config\.yaml; there is none before it"):
        train.run(retrieval_config(run_name="run"))
    assert not (tmp_path / "runs" / "run").exists()
