import math
from types import SimpleNamespace

import pytest

from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.evaluation import Evaluation, EvaluationMonitor

NAN = math.nan


def watch(scores, *, every=1, chosen_by="val/knn"):
    """The monitor after as many epochs as there are scores."""
    found = iter(
        [Evaluation({"val/knn": score, "holdout/knn": -score}, {"queries": [n]}) for n, score in enumerate(scores)]
    )
    monitor = EvaluationMonitor(lambda module: next(found), every=every, headline="val/knn", chosen_by=chosen_by)
    module = TrainingModule.__new__(TrainingModule)
    for epoch in range(len(scores)):
        trainer = SimpleNamespace(current_epoch=epoch, max_epochs=len(scores), callbacks=[], loggers=[])
        monitor.on_train_epoch_end(trainer, module)
    return monitor


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.1, 0.3, 0.2], 1),
        ([0.3, 0.3], 0),  # the first of equals
        ([NAN, 0.1, 0.05], 1),  # any number beats NaN
        ([0.1, NAN], 0),  # NaN beats nothing
        ([NAN, NAN], 0),  # and yet one epoch is chosen
        ([NAN, -1.0, NAN, 0.0], 3),
    ],
)
def test_the_best_epoch(scores, best):
    monitor = watch(scores)
    assert monitor.best_epoch == best
    assert monitor.is_best(best)
    assert monitor.worst == {"queries": [best]}
    assert monitor.best_metrics() == {"best/knn": pytest.approx(scores[best], nan_ok=True)}


def test_held_out_classes_may_choose_another_epoch_than_the_headline():
    monitor = watch([0.3, 0.1, 0.2], chosen_by="holdout/knn")
    assert monitor.best_metrics() == {"best/knn": 0.1}


def test_epochs_between_are_skipped_and_the_last_is_not():
    assert watch([0.1, 0.2, 0.3, 0.4, 0.5], every=2).last["val/knn"] == 0.3  # after epochs 2, 4 and 5


def test_a_restored_monitor_remembers_the_best():
    first = watch([0.4, 0.2])
    second = EvaluationMonitor(lambda module: None, every=1, headline="val/knn", chosen_by="val/knn")
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


def test_a_run_logs_the_best_value_so_far(retrieval_config, metric_lines, tmp_path):
    train.run(retrieval_config(adapter="none", run_name="run", epochs=3, validation=0.0))
    lines = [line for line in metric_lines(tmp_path / "runs" / "run") if "best/recall@1" in line]
    so_far = [max(line["val/recall@1"] for line in lines[: n + 1]) for n in range(len(lines))]
    assert [line["best/recall@1"] for line in lines] == so_far
