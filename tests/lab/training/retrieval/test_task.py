import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from adaptive_memory_bank.lab.runs.checkpoints import WEIGHTS, read_checkpoint
from adaptive_memory_bank.lab.runs.folder import BEST, LAST
from adaptive_memory_bank.lab.training import train
from adaptive_memory_bank.lab.training.retrieval import task as retrieval
from adaptive_memory_bank.lab.training.trained_encoder import evaluate_run
from adaptive_memory_bank.lab.training.watch import progress


@pytest.mark.parametrize("adapter", ["none", "identity", "xbn", "ema", "axbn", "auto", "fresh"])
def test_every_adapter_learns(adapter, retrieval_config):
    """Better than an untrained encoder, on classes that never trained."""
    untrained = train.run(retrieval_config(adapter=adapter, epochs=1, lr=1e-12))
    trained = train.run(retrieval_config(adapter=adapter, epochs=8, lr=3e-3))
    assert trained.best["best/map@r"] > untrained.best["best/map@r"] + 0.03


def test_equal_seeds_train_equally_and_others_do_not(retrieval_config):
    same = [train.run(retrieval_config(seed=seed)).metrics for seed in (1, 1, 2)]
    for metrics in same:
        metrics.pop("time/step_ms")
    assert same[0] == same[1]
    assert same[0] != same[2]


@pytest.mark.parametrize("loss", ["ContrastiveLoss", "TripletMarginLoss", "MultiSimilarityLoss"])
@pytest.mark.parametrize("batch_weight", [0.0, 1.0])
def test_losses_of_pytorch_metric_learning_train_on_the_memory(loss, batch_weight, retrieval_config):
    result = train.run(retrieval_config(loss=loss, batch_weight=batch_weight, epochs=1, adapter="ema"))
    assert result.memory_size == result.metrics["bank/size"] == 76
    assert result.metrics["train/pairs"] > 0


def test_a_loss_with_proxies_trains_them(retrieval_config):
    config = retrieval_config(loss="ProxyAnchorLoss", adapter="none", mine=False, epochs=1, run_name="run")
    train.run(config)
    best = read_checkpoint(Path(config.out, "run", "checkpoints", BEST), holding=WEIGHTS)
    assert "criterion.loss.proxies" in best["state_dict"]


@pytest.mark.parametrize("norm", ["bn", "mbn", "ln"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_norms_and_mixed_precision_train(norm, precision, retrieval_config):
    result = train.run(retrieval_config(embedding_norm=norm, precision=precision, epochs=1))
    assert result.status == "complete"


def test_the_warm_up_moves_the_head_alone_and_leaves_the_memory_empty(retrieval_config):
    # Without mining: the rows of an untrained head are so close that no positive pair is far enough apart.
    options = {"epochs": 2, "warmup_epochs": 2, "warmup_lr": 0.1, "mine": False}
    config = retrieval_config(adapter="auto", run_name="run", **options)
    never_used = pytest.warns(UserWarning, match="The memory is never used")
    torch.manual_seed(config.seed)
    with never_used:
        task = retrieval.build(config)
    before = task.module.encoder
    with never_used:
        result = train.run(config)
    assert result.metrics["bank/size"] == 0
    after = read_checkpoint(Path(config.out, "run", "checkpoints", LAST))["state_dict"]
    for name, value in before.state_dict().items():
        moved = not torch.equal(value, after[f"encoder.{name}"])
        assert moved == name.startswith("head."), name
    assert task.idle_parameters


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_batch_norm_keeps_its_averages_while_scale_and_shift_train(frozen, retrieval_config):
    config = retrieval_config(freeze_batch_norm=frozen, mine=False, run_name="run", warmup_epochs=1, epochs=2)
    torch.manual_seed(config.seed)
    before = retrieval.build(config).module.encoder.state_dict()
    train.run(config)
    after = read_checkpoint(Path(config.out, "run", "checkpoints", LAST))["state_dict"]
    for name in (name for name in before if "running_mean" in name or "running_var" in name):
        rests = torch.equal(before[name], after[f"encoder.{name}"])
        scale = name.rpartition(".")[0] + ".weight"
        assert rests == frozen, name
        assert not torch.equal(before[scale], after[f"encoder.{scale}"])


def losses_by_epoch(lines):
    """Mean loss and pairs of the windows of each epoch."""
    found = {}
    for line in lines:
        if "train/loss" in line:
            found.setdefault(line["epoch"], []).append([line["train/loss"], line["train/pairs"]])
    return {epoch: torch.tensor(values) for epoch, values in found.items()}


@pytest.mark.parametrize("loss", ["supcon", "ContrastiveLoss"])
@pytest.mark.parametrize("warmup", [0, 1])
@pytest.mark.parametrize("batch_weight", [0.0, 1.0])
def test_before_its_start_the_memory_fills_and_the_loss_does_without_it(
    loss, warmup, batch_weight, retrieval_config, metric_lines
):
    """Until then the run is that without memory: same loss, same pairs; the warm-up comes first."""
    options = {"loss": loss, "epochs": warmup + 2, "warmup_epochs": warmup, "memory_start": 1.0, "pos_margin": 0.0}
    runs = {}
    for adapter in ("none", "xbn"):
        config = retrieval_config(adapter=adapter, run_name=adapter, batch_weight=batch_weight, **options)
        train.run(config)
        runs[adapter] = metric_lines(Path(config.out) / adapter)
    alone, remembering = losses_by_epoch(runs["none"]), losses_by_epoch(runs["xbn"])
    for epoch in range(warmup + 1):
        torch.testing.assert_close(alone[epoch], remembering[epoch], rtol=1e-3, atol=1e-3)
    assert (remembering[warmup + 1][:, 1] > 2 * alone[warmup + 1][:, 1]).all()
    sizes = [line["bank/size"] for line in runs["xbn"] if "train/loss_epoch" in line]
    assert sizes == [0] * warmup + [76, 76]


def test_the_memory_starts_after_a_fraction_of_an_epoch(retrieval_config):
    """0.7 of 9 steps are 6, one epoch of warm-up comes before them."""
    options = {"memory_start": 0.7, "warmup_epochs": 1}
    fused = retrieval.build(retrieval_config(**options)).module
    assert (fused.criterion.start_after, fused.first_use) == (6, 9 + 6)
    theirs = retrieval.build(retrieval_config(loss="ContrastiveLoss", **options)).module
    assert (theirs.criterion.memory.start_after, theirs.first_use) == (6, 9 + 6)


def test_a_memory_that_starts_too_late_is_warned_of(retrieval_config, recwarn):
    found = r"The memory is never used: `memory_start` is 1 epochs, and 1 of the run's 2 epochs follow the warm-up\."
    with pytest.warns(UserWarning, match=found):
        retrieval.build(retrieval_config(memory_start=1.0, warmup_epochs=1))
    retrieval.build(retrieval_config(memory_start=1.0, warmup_epochs=1, adapter="none"))
    retrieval.build(retrieval_config(memory_start=1.0))
    assert not recwarn


def test_a_loss_that_teaches_nothing_says_so(retrieval_config):
    with pytest.warns(UserWarning, match=r"The loss was 0 in every step of epoch 0: no pairs were kept"):
        train.run(retrieval_config(adapter="none", epochs=1, pos_margin=5.0))  # no two unit rows are that far apart


def test_the_learning_rate_falls_in_steps(retrieval_config):
    config = retrieval_config(epochs=40, lr=1.0, lr_step=15, lr_gamma=0.33, warmup_epochs=2, warmup_lr=0.5)
    rate = retrieval.build(config).module.learning_rate
    assert [rate(epoch) for epoch in (0, 1, 2, 14)] == [0.5, 0.5, 1.0, 1.0]
    assert [rate(epoch) for epoch in (15, 30)] == pytest.approx([0.33, 0.1089])


def test_the_best_checkpoint_is_that_of_the_chosen_epoch(retrieval_config):
    config = retrieval_config(epochs=4, validation=0.0, lr=1e-2, run_name="run")
    result = train.run(config)
    assert result.chosen_on == "evaluation"
    found = evaluate_run(f"{config.out}/run")
    assert found["val/recall@1"] == result.best["best/recall@1"]
    assert found["val/map@r"] == result.best["best/map@r"]


def test_held_out_classes_choose_and_never_train(retrieval_config):
    module = retrieval.build(retrieval_config(validation=0.25)).module
    held, trained = module.data.held_out.labels.unique(), module.data.train.labels.unique()
    assert len(held) == 6
    assert not set(held.tolist()) & set(trained.tolist())


def test_drift_equals_that_of_two_evaluations(retrieval_config, monkeypatch):
    """Measured at every step it is the distance between embeddings before and after, by hand."""
    by_hand: list[float] = []
    step = retrieval.RetrievalModule.training_step

    def watched(self, batch, batch_idx):
        indices = list(range(0, len(self.data.train), len(self.data.train) // 8))[:8]
        images = self.data.eval_transform(self.data.train, torch.tensor(indices), None)
        rows = []
        for moment in (0, 1):
            self.encoder.eval()
            rows.append(self.encoder(images).detach())
            self.encoder.train()
            if moment == 0:
                step(self, batch, batch_idx)
        by_hand.append(F.pairwise_distance(*rows, eps=0).mean().item())

    monkeypatch.setattr(retrieval.RetrievalModule, "training_step", watched)
    result = train.run(retrieval_config(drift_every=1, probe_size=8, epochs=1))
    assert result.metrics["drift/mean"] == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-4)


def test_a_terminal_shows_bars_and_anything_else_plain_lines(retrieval_config, monkeypatch, capfd):
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    config = retrieval_config(epochs=1, quiet=False, adapter="xbn")
    train.run(config)
    assert "epoch 1/1  loss" in capfd.readouterr().err
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with os.fdopen(writer, "w") as terminal:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", terminal)
            train.run(config)
        terminal.flush()
        shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert "epoch 1/1   0% |" in shown
    for word in ("loss=", "pairs=", "recall@1"):
        assert word in shown


def test_quiet_is_quiet(retrieval_config, capfd):
    train.run(retrieval_config(epochs=1))
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""
