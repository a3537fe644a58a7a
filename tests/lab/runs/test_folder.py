import pytest

from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.runs.folder import RunFolder, default_name
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
