"""Every table and figure of the paper: planned as it stands, and trained end to end on replicas of the data sets."""

from pathlib import Path

import pytest
import timm
import yaml

import replicas
from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.compare.plan import plan_runs, write_plan
from adaptive_memory_bank.lab.compare.pool import make_job
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.table import tables
from adaptive_memory_bank.lab.compare.worker import run_job
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig

PAPER = Path(__file__).parents[2] / "benchmarks" / "paper"
FILES = sorted(PAPER.glob("*.yaml"))
IMAGES = {"sop": 59_551, "inshop": 25_882, "deepfashion2": 217_778 - 12_377 - 36_961}
# What makes a training one of seconds: one epoch without warm-up, of few steps, of a small network, on the CPU.
SMALL = (
    *("--seeds", "0", "--epochs", "1", "--embedding_dim", "8", "--staleness_rows", "8"),
    *("--num_workers", "0", "--threads", "1", "--jobs", "1", "--wandb", "disabled", "--quiet", "true"),
)
SMALL_TASK = {
    "retrieval": (
        *("--model", "conv4_32", "--pretrained", "false", "--image_size", "16"),
        *("--warmup_epochs", "0", "--precision", "32-true"),
    ),
    "moco": ("--model", "resnet-9", "--width", "0.0625"),
}
# Grids by their ends: the smallest memory that holds a batch of the replica, and everything.
ENDS = {"batch_size": ["--batch_sizes", "16", "256"], "memory_size": ["--memories", "0.5", "1.0"]}
# Training classes x 4 images of a replica: half of them must hold a batch of 64 (of 256, or all of them one of 512).
CLASSES = {"additional_comparisons": 128, "batch_256": 128, "batch_size": 128}
WHOLE = ("main_table", "moco_cifar")


def task_of(path):
    return yaml.safe_load(path.read_text())["task"]


def small(path, datasets, out):
    return [
        "--config", path, *SMALL, *SMALL_TASK[task_of(path)], *ENDS.get(path.stem, []),
        "--data_root", datasets(CLASSES.get(path.stem, 32)), "--out", out,
    ]  # fmt: skip


def test_there_is_one_file_for_every_table_and_figure():
    assert [path.stem for path in FILES] == [
        "additional_comparisons", "batch_256", "batch_size", "drift", "ema_momentum", "embedding_norms", "main_table",
        "memory_size", "moco_cifar", "swin",
    ]  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_the_papers_protocol(path, parse):
    for run in plan_runs(parse("--config", path)):
        config = run.config
        assert config.preset == "paper"
        if isinstance(config, RetrievalConfig):
            assert timm.is_model(config.model)
            assert (config.epochs, config.embedding_dim, config.lr, config.warmup_epochs) == (50, 512, 1e-4, 2)
            assert config.batch_size <= config.memory * IMAGES[config.data] or config.adapter == "none"
            if config.adapter == "axbn":
                assert config.adapter_options == {"gain_interval": 10 if config.data == "deepfashion2" else 100}
        else:
            assert (config.model, config.epochs, config.batch_size, config.memory) == ("resnet-18", 200, 128, 4096)


def test_the_main_table_is_that_of_the_paper(parse):
    config = parse("--config", PAPER / "main_table.yaml")
    runs = plan_runs(config)
    assert len(runs) == 3 * 4 * 3
    assert {run.config.batch_size for run in runs} == {64}
    shares = {(run.setting, run.config.memory) for run in runs if run.config.adapter != "none"}
    assert shares == {("SOP", 0.5), ("In-shop", 0.5), ("DeepFashion2", 1.0)}
    published = {setting.name: list(setting.published.values()) for setting in config.settings}
    assert published == {
        "SOP": [75.94, 76.80, 80.62, 80.73],
        "In-shop": [88.76, 86.17, 91.49, 91.51],
        "DeepFashion2": [36.45, 41.22, 45.12, 45.33],
    }


def test_the_variants_are_what_their_names_say(parse):
    def variants(stem, *names):
        found = {}
        for run in plan_runs(parse("--config", PAPER / f"{stem}.yaml")):
            found.setdefault(run.variant, [getattr(run.config, name) for name in names])
        return found

    more = variants("additional_comparisons", "adapter", "batch_size", "batch_weight")
    assert more == {"none (batch 512)": ["none", 512, 0], "XBM*": ["identity", 64, 1]}
    norms = variants("embedding_norms", "adapter", "embedding_norm")
    assert norms == {
        "XBM": ["identity", "none"], "XBM + BN": ["identity", "bn"], "XBM + MBN": ["identity", "mbn"],
        "XBM + LN": ["identity", "ln"], "XBN": ["xbn", "none"],
    }  # fmt: skip
    assert variants("drift", "drift_every")["XBM"] == [1]
    momenta = variants("ema_momentum", "adapter", "adapter_options")
    for tenth in range(1, 10):
        assert momenta[f"EMA 0.{tenth}"] == ["ema", {"momentum": tenth / 10}]


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in FILES if p.stem != "additional_comparisons"], ids=lambda path: path.stem)
def test_it_runs_to_the_table(path, datasets, parse, tmp_path, monkeypatch):
    """In this process, one training after the other: workers would spend most of their time on imports."""
    replicas.forget_checksums(monkeypatch)
    config = parse(*small(path, datasets, tmp_path / "runs"))
    planned = plan_runs(config)
    write_plan(config, planned, command="")
    trained = planned if path.stem in WHOLE else one_in_every_line(planned)
    for run in trained:
        answer = run_job(make_job(run))
        assert answer == {"status": "complete", "error": None}, run
    comparison = read_comparison([tmp_path / "runs"])
    assert [run.is_complete for run in comparison.runs] == [True] * len(trained)
    assert [section.title for section in comparison.sections] == [setting.name for setting in config.settings]
    assert {run.name for run in comparison.runs} == {variant.name for variant in config.variants}
    if path.stem in WHOLE:
        said = {f"{value:.2f}" for setting in config.settings for value in setting.published.values()}
        assert said <= {cell for section in comparison.sections for cell in shown(section)}


def one_in_every_line(planned):
    """Every variant at every point of the grid once, and every data set: the first line on SOP, the next on In-shop."""
    settings = list(dict.fromkeys(run.setting for run in planned))
    lines = list(dict.fromkeys((run.variant, run.batch_size, run.memory) for run in planned))
    where = {line: settings[index % len(settings)] for index, line in enumerate(lines)}
    return [run for run in planned if where[run.variant, run.batch_size, run.memory] == run.setting]


def shown(section):
    return {cell.text for table in tables(section) for row in table.rows for cell in row}


@pytest.mark.slow
def test_the_command_itself_runs_one(datasets, tmp_path, capfd):
    """Through `amb compare`, its workers and its report; the command line beats the file."""
    words = small(PAPER / "additional_comparisons.yaml", datasets, tmp_path / "runs")
    assert main(["compare", *map(str, words)]) == 0
    out = capfd.readouterr().out
    assert all(name in out for name in ("SOP", "In-shop", "DeepFashion2", "none (batch 512)", "XBM*"))
    assert "1 epoch" in out
    assert (tmp_path / "runs" / "report.html").exists()
