import dataclasses
import re
import time

import torch

from adaptive_memory_bank.lab.runs.checkpoints import read_checkpoint
from adaptive_memory_bank.lab.runs.folder import LAST
from adaptive_memory_bank.lab.training import train


def test_a_run_resumed_in_mid_epoch_prints_the_seconds_of_the_whole_epoch(amb, retrieval_config, tmp_path, capsys):
    config = retrieval_config(run_name="run", quiet=False, epochs=1)
    amb(config, signal_at=6)  # two steps after a checkpoint
    last = tmp_path / "runs" / "run" / "checkpoints" / LAST
    checkpoint = read_checkpoint(last)
    assert 0 < checkpoint["callbacks"]["Progress"]["seconds"] < 60
    checkpoint["callbacks"]["Progress"]["seconds"] = 1000.0
    torch.save(checkpoint, last)
    started = time.perf_counter()
    train.run(dataclasses.replace(config, resume=str(last.parents[1])))
    passed = time.perf_counter() - started
    (seconds,) = re.findall(r"epoch 1/1 .* \((\d+\.\d) s\)", capsys.readouterr().err)
    assert 1000 < float(seconds) < 1000.1 + passed
