"""Comparisons with real trainings in real processes, on a data set of a few images."""

import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from adaptive_memory_bank.lab.compare.config import CompareConfig, Variant
from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.compare.pool import Pool
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.runner import compare
from adaptive_memory_bank.lab.compare.table import summary
from adaptive_memory_bank.lab.tracking.dashboard import make_workspace, spec_of
from interruptible import start_interruptible

PATIENCE = 300.0


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Options for a training of well under a second."""
    path, random = tmp_path_factory.mktemp("data") / "tiny.npz", np.random.default_rng(0)
    arrays = {}
    for part, first, classes in (("train", 0, 12), ("test", 12, 5)):
        labels = np.repeat(np.arange(first, first + classes), 8)
        characters = random.integers(0, 256, (first + classes, 28, 28))
        noisy = characters[labels] + random.normal(0, 40, (len(labels), 28, 28))
        arrays |= {f"{part}_labels": labels, f"{part}_images": noisy.clip(0, 255).astype(np.uint8)}
    np.savez(path, **arrays)
    return {
        "data": f"npz:{path}", "batch_size": 8, "epochs": 1, "memory": 16, "validation": 0.2, "staleness_rows": 8,
        "probe_size": 8, "drift_every": 2, "wandb": "disabled", "accelerator": "cpu",
    }  # fmt: skip


@pytest.fixture(scope="session")
def finished(tiny, tmp_path_factory):
    """A comparison of three adapters and of one variant that cannot be trained, and what it printed."""
    out = tmp_path_factory.mktemp("finished")
    variants = [Variant(name, {"adapter": name}) for name in ("none", "identity", "xbn")]
    broken = Variant("broken", {"adapter": "xbn", "batch_size": 400, "memory": 400})
    config = CompareConfig(
        variants=[broken, *variants], seeds=[0], jobs=2, out=str(out), options={**tiny, "wandb": "offline"}
    )
    printed = io.StringIO()
    return config, compare(config, command="amb compare", file=printed), printed.getvalue()


class Terminal(io.StringIO):
    """Something that people look at: it gets a bar."""

    def isatty(self):
        return True


def results_of(out):
    return {entry["name"]: entry for entry in json.loads((Path(out) / "results.json").read_text())}


def test_a_run_that_fails_is_reported_and_the_others_go_on(finished):
    config, comparison, printed = finished
    results = results_of(config.out)
    assert {name: entry["status"] for name, entry in results.items()} == {
        "none": "complete", "identity": "complete", "xbn": "complete", "broken": "failed",
    }  # fmt: skip
    assert "`batch_size` must ask for no more classes" in results["broken"]["error"]
    assert "broken, seed 0: FAILED, ValueError: `batch_size` must ask for no more classes" in printed
    assert "1 of 4 runs are not complete" in summary(comparison)


def test_every_run_that_ends_has_a_line(finished):
    _, _, printed = finished
    lines = printed.splitlines()
    assert lines[0].startswith("Training 4 runs, 2 at a time, below ")
    assert [line.split("]")[0] for line in lines[1:] if line[0] == "["] == ["[1/4", "[2/4", "[3/4", "[4/4"]
    # What the runs say of their data is said once.
    assert [line for line in lines[1:] if line[0] != "["] == ["tiny: 80 images of 10 classes to train on, 28 px"]
    assert sum(": complete, Recall@1 " in line for line in lines) == 3
    assert "left" not in printed  # no bar where nobody looks


def test_the_runs_leave_what_they_should_and_share_a_group(finished):
    config, comparison, _ = finished
    complete = [run for run in comparison.runs if run.is_complete]
    for run in complete:
        assert {"config.yaml", "metrics.jsonl", "result.json", "log.txt", "gallery.json"} <= set(os.listdir(run.folder))
    assert len({run.config()["group"] for run in complete}) == 1
    assert (Path(config.out) / "compare.json").exists()


def test_the_table_has_numbers_from_real_runs(finished):
    _, comparison, _ = finished
    text = summary(comparison)
    assert "Recall@1 %" in text
    assert "MAP@R %" in text
    assert "(x1.00" in text
    staleness = [run.metrics.get("bank/staleness") for run in comparison.runs if run.is_complete and run.name != "none"]
    assert all(staleness)


def test_every_panel_of_the_dashboard_shows_something_the_runs_sent_to_wandb(finished):
    _, comparison, _ = finished
    run = next(run for run in comparison.runs if run.name == "xbn")
    sent = read_back(next((run.folder / "wandb").glob("offline-run-*")))
    spec = spec_of(make_workspace("t", comparison.runs, entity="e", project="p"))
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    shown = {name for section in sections for panel in section["panels"] for name in panel["config"].get("metrics", [])}
    assert [name for name in shown if f'"{name.removeprefix("summary_metrics.")}"' not in sent] == []
    assert {"val/recall@1", "bank/staleness", "drift/mean", "summary_metrics.best/recall@1"} <= shown
    assert '"epoch"' in sent  # the x axis
    assert '"worst_queries' in sent
    assert '"nonsense/metric"' not in sent  # the check can fail


def read_back(folder):
    """An offline run as W&B reads it."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_what_is_complete_is_not_repeated_and_what_failed_is_tried_again(finished):
    config, _, _ = finished
    before = {path: path.stat().st_mtime_ns for path in Path(config.out).glob("*/metrics.jsonl")}
    printed = Terminal()
    compare(config, file=printed)
    assert printed.getvalue().startswith("3 of 4 runs are complete already.\nTraining 1 runs")
    assert " 75% |" in printed.getvalue()
    assert re.search(r"3/4 epochs, 1 starting, \d\d:\d\d passed, [\d:?]+ left", printed.getvalue())
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(before) == 3


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_run_with_it(tiny, tmp_path):
    config = CompareConfig(
        adapters=["xbn"], seeds=[0, 1], out=str(tmp_path), options={**tiny, "epochs": 3, "checkpoint_every": 1}
    )
    pool = Pool(plan_runs(config), jobs=1, cores=1)
    pool.start()
    first = plan_runs(config)[0]
    wait_for(lambda: (first.folder / "config.yaml").exists())
    os.kill(pool._processes[0].pid, signal.SIGKILL)
    ended = [pool.finished.get(timeout=PATIENCE) for _ in range(3)]
    assert [entry and entry.status for entry in ended] == ["failed", "complete", None]
    assert ended[0].error == "the worker process ended with signal 9 (SIGKILL); out of memory?"
    assert [entry["status"] for entry in json.loads((tmp_path / "results.json").read_text())] == ["failed", "complete"]


def start(run, options, log, epochs):
    """Start the comparison of one run as a command, and wait until the run has so many epochs behind it."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    words = ["compare", "--adapters", "xbn", "--seeds", "0", *flags, "--out", run.config.out]
    with log.open("w") as printed:
        process = start_interruptible(words, stderr=printed, stdout=subprocess.DEVNULL)
    wait_for(lambda: epochs_in(run.folder)[-1:] >= [epochs] or process.poll() is not None)
    assert process.poll() is None, log.read_text()
    return process


@pytest.mark.slow
def test_stopped_or_killed_it_goes_on_where_it_was(tiny, tmp_path):
    out, log, options = tmp_path / "out", tmp_path / "printed.txt", {**tiny, "epochs": 12}
    config = CompareConfig(adapters=["xbn"], seeds=[0], out=str(out), options=options)
    (run,) = plan_runs(config)

    process = start(run, options, log, epochs=2)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert "The same command resumes from here." in log.read_text()
    assert status_of(run) == "interrupted"

    process = start(run, options, log, epochs=epochs_in(run.folder)[-1] + 2)
    process.kill()
    process.wait(PATIENCE)
    wait_for(lambda: status_of(run) == "interrupted")  # nobody is left to tell the worker, it notices by itself

    compare(config, file=io.StringIO())
    assert status_of(run) == "complete"
    assert epochs_in(run.folder) == list(range(12))


def test_two_comparisons_do_not_train_in_one_folder(tiny, tmp_path):
    with (tmp_path / ".compare.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another comparison is running in"):
            compare(CompareConfig(adapters=["none"], seeds=[0], out=str(tmp_path), options=tiny))


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def status_of(run):
    return json.loads((run.folder / "result.json").read_text())["status"]


def epochs_in(folder):
    """The epochs a run has ended, in the order of its file."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["epoch"] for line in lines if "train/loss_epoch" in line and line.endswith("}")]


def test_a_comparison_can_be_read_again(finished):
    config, comparison, _ = finished
    assert [run.name for run in read_comparison([config.out]).runs] == [run.name for run in comparison.runs]


@pytest.mark.slow
def test_moved_or_copied_it_goes_on_whatever_became_of_its_files(tiny, tmp_path):
    """Without checkpoints, with only the best, with half a result: what is complete stays, the rest starts anew."""
    adapters = ["none", "identity", "xbn", "ema"]
    config = CompareConfig(adapters=adapters, seeds=[0], out=str(tmp_path / "cmp"), options={**tiny, "project": "mine"})
    before = compare(config, file=io.StringIO())
    groups = {run.config()["group"] for run in before.runs}
    (tmp_path / "cmp").rename(tmp_path / "moved")
    moved = CompareConfig(adapters=adapters, seeds=[0], out=str(tmp_path / "moved"), options=tiny)
    _, identity, xbn, ema = (run.folder for run in plan_runs(moved))
    for folder in (identity, xbn):
        change_status(folder, "failed")
    shutil.rmtree(identity / "checkpoints")
    for name in ("last.ckpt", "previous.ckpt"):
        (xbn / "checkpoints" / name).unlink(missing_ok=True)
    (ema / "result.json").write_bytes((ema / "result.json").read_bytes()[:50])
    printed = io.StringIO()
    with pytest.warns(UserWarning, match=r"result\.json is damaged: .* Using .*results\.json instead"):
        after = compare(moved, file=printed)
    assert "2 of 4 runs are complete already." in printed.getvalue()
    assert f"No checkpoint to resume from, starting anew: {identity.name}, {xbn.name}." in printed.getvalue()
    assert all(run.is_complete for run in after.runs)
    assert [run.best for run in after.runs] == [run.best for run in before.runs]
    assert {run.config()["group"] for run in after.runs} == groups
    assert {run.config()["project"] for run in after.runs} == {"mine"}


def change_status(folder, status):
    for file in (folder / "result.json", folder.parent / "results.json"):
        content = json.loads(file.read_text())
        for entry in content if isinstance(content, list) else [content]:
            if entry["run"] == folder.name:
                entry["status"] = status
        file.write_text(json.dumps(content))
