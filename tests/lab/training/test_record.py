import json
import math

import pytest

from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import read_result
from adaptive_memory_bank.lab.training.record import JsonlLogger, RunRecord
from adaptive_memory_bank.lab.training.watch.evaluation import EvaluationMonitor
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog

FACTS = {"memory_size": 76, "chosen_on": "evaluation"}


@pytest.fixture
def watchers():
    evaluation = EvaluationMonitor(lambda module: None, every=1, headline="val/knn", chosen_by="val/knn")
    evaluation.last = {"val/knn": math.nan}
    evaluation.best, evaluation.best_epoch = {"val/knn": 0.5, "holdout/knn": 0.4}, 1
    log = TrainingLog(every=1)
    log.latest = {"train/loss": 1.5, "val/knn": 0.5}
    return evaluation, log


def test_a_run_is_running_until_it_ends(retrieval_config, watchers):
    config = retrieval_config(run_name="run")
    folder = RunFolder.create(config)
    record = RunRecord(config, folder, facts=FACTS, resumed=False)
    (logger,) = record.start()
    assert read_result(folder).status == "running"
    logger.log_metrics({"epoch": 0, "x": 1.0}, step=3)
    result = record.end("failed", *watchers, error=OSError("no room"))
    assert read_result(folder) == result
    assert (result.status, result.error, result.memory_size) == ("failed", "OSError: no room", 76)
    assert result.metrics == {"train/loss": 1.5, "val/knn": None}  # JSON has no NaN
    assert (result.best, result.best_epoch) == ({"best/knn": 0.5}, 1)
    assert json.loads(folder.metrics_file.read_text()) == {"epoch": 0, "step": 3, "x": 1.0}


def test_a_resumed_run_keeps_its_name_on_wandb(retrieval_config, watchers):
    config = retrieval_config(run_name="run")
    folder = RunFolder.create(config)
    ids = []
    for resumed in (False, True, False):
        record = RunRecord(config, folder, facts=FACTS, resumed=resumed)
        record.start()
        ids.append(record.end("interrupted", *watchers).wandb_id)
    assert ids[0] == ids[1] != ids[2]


def test_other_ranks_write_nothing(retrieval_config, watchers, tmp_path):
    record = RunRecord(retrieval_config(), None, facts=FACTS, resumed=False)
    assert record.start() == []
    assert record.end("complete", *watchers).run is None
    record.show_gallery(watchers[0], None, None)
    assert not (tmp_path / "runs").exists()


def test_checkpoints_know_how_long_the_metrics_were(retrieval_config):
    config = retrieval_config(run_name="run")
    record = RunRecord(config, RunFolder.create(config), facts=FACTS, resumed=False)
    logger = JsonlLogger(record.metrics)
    logger.log_metrics({"epoch": 0, "x": 1.0}, step=1)
    checkpoint = {}
    record.on_save_checkpoint(None, None, checkpoint)
    logger.log_metrics({"epoch": 0, "x": 2.0}, step=2)
    logger.save()
    record.on_load_checkpoint(None, None, checkpoint)
    assert len(record.metrics.path.read_text().splitlines()) == 1
