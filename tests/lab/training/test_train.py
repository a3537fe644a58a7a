import dataclasses

import pytest
import torch

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.lab.runs.metrics import BY_NAME
from adaptive_memory_bank.lab.runs.results import read_results
from adaptive_memory_bank.lab.training import train


def test_a_run_leaves_a_folder_and_returns_what_is_in_it(retrieval_config, tmp_path):
    config = retrieval_config(adapter="xbn", run_name="run", epochs=1)
    result = train.run(config)
    assert read_results(tmp_path / "runs") == {"run": result}
    assert (result.status, result.adapter, result.best_epoch) == ("complete", "xbn", 0)


def test_a_complete_run_is_not_trained_again(retrieval_config, tmp_path):
    config = retrieval_config(adapter="none", run_name="run", epochs=1)
    first = train.run(config)
    assert train.run(dataclasses.replace(config, resume=str(tmp_path / "runs" / "run"))) == first


def test_a_run_leaves_the_process_as_it_was(retrieval_config):
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train.run(retrieval_config(adapter="none", epochs=1, threads=threads + 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("adapter", ["none", "identity"])
def test_the_size_of_the_memory_and_what_it_does_are_recorded(adapter, retrieval_config):
    result = train.run(retrieval_config(adapter=adapter, epochs=1, memory=32))
    assert result.memory_size == result.metrics["bank/size"] == (0 if adapter == "none" else 32)
    told = {f"bank/{name}" for name in AdaptiveMemoryBank(2, 2).stats()}
    assert told & set(result.metrics) == (set() if adapter == "none" else told)
    assert told <= set(BY_NAME)  # so that report and dashboard show them
    assert adapter == "none" or result.metrics["bank/fill"] == 1
