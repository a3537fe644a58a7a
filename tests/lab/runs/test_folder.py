import dataclasses
import os
import platform
import subprocess

import pytest

from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.runs.folder import RunFolder, default_name
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig


def config(out, **options):
    return make_config(RetrievalConfig, out=str(out), data="npz:/somewhere/birds.npz", adapter="xbn", **options)


def test_a_folder_is_named_after_task_data_adapter_and_seed(tmp_path):
    assert default_name(config(tmp_path, seed=3)) == "retrieval-birds-xbn-s3"
    assert default_name(config(tmp_path, name="XBN, large")) == "retrieval-birds-XBN-large-s0"


def test_default_names_are_counted_up_and_given_ones_are_never_shared(tmp_path):
    names = [RunFolder.create(config(tmp_path)).path.name for _ in range(3)]
    assert names == ["retrieval-birds-xbn-s0", "retrieval-birds-xbn-s0-2", "retrieval-birds-xbn-s0-3"]
    RunFolder.create(config(tmp_path, run_name="mine"))
    with pytest.raises(ValueError, match=r"`run_name`: .*mine holds a run already. Continue it"):
        RunFolder.create(config(tmp_path, run_name="mine"))


def test_only_a_folder_with_a_configuration_is_a_run(tmp_path):
    created = RunFolder.create(config(tmp_path))
    assert RunFolder.open(created.path).config_file == created.config_file
    with pytest.raises(ValueError, match=r"is not a run: it has no config\.yaml"):
        RunFolder.open(tmp_path)


def test_a_folder_tells_whether_a_living_process_trains_in_it(retrieval_config):
    folder = RunFolder.create(retrieval_config(run_name="mine"))
    assert not folder.in_use
    with folder.occupied():
        assert not folder.in_use  # by others
    assert not folder.process_file.exists()
    with subprocess.Popen(["sleep", "60"]) as other:
        folder.process_file.write_text(f"{platform.node()} {other.pid}\n")
        assert folder.in_use
        other.kill()
    assert not folder.in_use
    folder.process_file.write_text("another-machine 1\n")
    assert folder.in_use


def test_nobody_joins_a_run_that_is_under_way(retrieval_config):
    config = retrieval_config(run_name="mine")
    folder = RunFolder.create(config)
    folder.process_file.write_text(f"{platform.node()} {os.getppid()}\n")
    with pytest.raises(ValueError, match="mine holds a run already"):
        train.run(config)
    with pytest.raises(ValueError, match=r"Another process trains in .*mine: wait for it, or delete .*\.process"):
        train.run(dataclasses.replace(config, resume=str(folder.path)))
