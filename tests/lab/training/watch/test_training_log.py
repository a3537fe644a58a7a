from types import SimpleNamespace

import pytest

from adaptive_memory_bank.lab.training.step import TrainingModule
from adaptive_memory_bank.lab.training.watch.training_log import TrainingLog


class Recorder:
    """A logger that keeps what it is given."""

    def __init__(self):
        self.lines = []

    def log_metrics(self, metrics, step):
        self.lines.append((step, metrics))


class Module(TrainingModule):
    """No training, only the numbers of its last step."""

    bank = None

    def __init__(self):
        self.__dict__.update(last={}, _bad_step=None)

    def learning_rate(self, epoch):
        return 0.1 / (epoch + 1)


def steps(log, losses, *, recorder, epoch=0):
    module = Module()
    trainer = SimpleNamespace(current_epoch=epoch, global_step=0, callbacks=[log], loggers=[recorder])
    for number, loss in enumerate(losses):
        log.on_train_batch_start(trainer, module, None, number)
        module.last["train/loss"], trainer.global_step = loss, number + 1
        log.on_train_batch_end(trainer, module, None, None, number)
    return trainer, module


def test_windows_hold_means_and_the_epoch_ends_with_the_rest():
    log, recorder = TrainingLog(every=2), Recorder()
    trainer, module = steps(log, [1.0, 3.0, 7.0], recorder=recorder)
    log.on_train_epoch_end(trainer, module)
    assert [(step, line["train/loss"]) for step, line in recorder.lines] == [(2, 2.0), (3, 7.0)]
    last = recorder.lines[-1][1]
    assert last["train/loss_epoch"] == pytest.approx(11 / 3)
    assert (last["train/lr"], last["bank/size"], last["epoch"]) == (0.1, 0.0, 0)
    assert log.latest["train/loss"] == 7.0


def test_an_epoch_without_any_loss_is_a_warning():
    log = TrainingLog(every=5)
    trainer, module = steps(log, [0.0, 0.0], recorder=Recorder())
    with pytest.warns(UserWarning, match="The loss was 0 in every step of epoch 0: no pairs were kept"):
        log.on_train_epoch_end(trainer, module)


def test_open_windows_and_the_clock_survive_a_checkpoint():
    whole, recorder = TrainingLog(every=3), Recorder()
    steps(whole, [1.0, 2.0, 6.0], recorder=recorder)
    first, second, later = TrainingLog(every=3), TrainingLog(every=3), Recorder()
    steps(first, [1.0, 2.0], recorder=later)
    second.load_state_dict(first.state_dict())
    steps(second, [6.0], recorder=later)
    assert (
        [line["train/loss"] for _, line in later.lines] == [line["train/loss"] for _, line in recorder.lines] == [3.0]
    )
    assert second.train_seconds > first.train_seconds > 0
    assert second.seconds_per_step == pytest.approx(second.train_seconds / 3)  # the mean over all parts of the run
    assert TrainingLog(every=3).seconds_per_step is None
