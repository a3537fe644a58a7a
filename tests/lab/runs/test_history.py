import json
from pathlib import Path

from adaptive_memory_bank.lab.runs.history import MetricsFile, epochs_logged, read_history


def write(run: Path, text: str) -> Path:
    (run / "metrics.jsonl").write_text(text, encoding="utf-8")
    return run


def test_the_last_value_of_an_epoch_wins_and_epochs_rise(tmp_path):
    run = write(
        tmp_path,
        '{"epoch": 1, "step": 20, "val/knn": 0.4}\n'
        '{"epoch": 0, "step": 10, "val/knn": 0.2, "train/loss": 3}\n'
        '{"epoch": 1, "step": 20, "val/knn": 0.5}\n',
    )
    assert read_history(run) == {"val/knn": {0: 0.2, 1: 0.5}, "train/loss": {0: 3.0}}
    assert list(read_history(run)["val/knn"]) == [0, 1]


def test_half_a_line_and_what_is_no_number_are_skipped(tmp_path):
    run = write(
        tmp_path,
        '{"epoch": 0, "val/knn": NaN, "note": "x", "flag": true, "ok": 1}\n[1]\n{"step": 3}\n{"epoch": 1, "val',
    )
    assert read_history(run) == {"ok": {0: 1.0}}


def test_epochs_logged_counts_the_epochs_that_have_ended(tmp_path):
    assert epochs_logged(tmp_path) == 0
    lines = ['{"epoch": 0, "train/loss_epoch": 1}', '{"epoch": 1, "train/loss_epoch": 2}', '{"epoch": 2, "val/knn": 2}']
    assert epochs_logged(write(tmp_path, "\n".join(lines))) == 2


def test_lines_wait_until_flushed_and_can_be_rewound(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.write({"epoch": 0, "x": 1.0}, step=1)
    assert not file.path.exists()
    position = file.position()
    file.write({"epoch": 0, "x": float("nan")}, step=2)
    file.flush()
    lines = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert lines == [{"epoch": 0, "step": 1, "x": 1.0}, {"epoch": 0, "step": 2, "x": None}]
    file.rewind(position)
    assert [json.loads(line) for line in file.path.read_text().splitlines()] == lines[:1]


def test_what_is_written_is_what_is_read(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for epoch in (0, 1):
        file.write({"epoch": epoch, "val/knn": 0.5 + epoch / 4, "train/loss_epoch": 1.0}, step=epoch + 1)
    file.flush()
    assert read_history(tmp_path) == {"val/knn": {0: 0.5, 1: 0.75}, "train/loss_epoch": {0: 1.0, 1: 1.0}}
    assert epochs_logged(tmp_path) == 2
