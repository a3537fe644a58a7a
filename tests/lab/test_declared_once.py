"""What is new is declared in one place, and everything else follows; seen in a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_memory_bank


@pytest.fixture
def package(tmp_path):
    """A copy of the package that tests may change."""
    source = Path(adaptive_memory_bank.__file__).parent
    return Path(shutil.copytree(source, tmp_path / "src" / source.name, ignore=shutil.ignore_patterns("__pycache__")))


def insert(path: Path, line: str, *, before: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, f"{line}\n{before}"), encoding="utf-8")


def run_in(package: Path, program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


ADAPTER = '''
from adaptive_memory_bank.adapters.xbn import XBN


class Mine(XBN):
    """Believes what XBN believes."""
'''
USE_ADAPTER = """
import sys
from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.lab.commands.main import make_parser
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.plan import plan_runs
from adaptive_memory_bank.lab.compare.config import CompareConfig
from adaptive_memory_bank.lab.compare.report.palette import styles_of

print(type(AdaptiveMemoryBank(4, 2, "my").adapter).__name__)
words = ["retrieval", "--adapter", "mine"]
print(make_parser(words).parse_args(words).retrieval.adapter)
print(*[run.config.adapter for run in plan_runs(CompareConfig(adapters=["mine", "my"], seeds=[0]))])
print(*read_comparison([RUNS]).sections[0].names)
print(styles_of(["xbn", "mine"], None)["mine"].color)
"""


def test_an_adapter_is_a_file_and_an_entry(package, tmp_path, write_run):
    for adapter in ("auto", "fresh", "mine", "identity", "none"):
        write_run(tmp_path / "runs", adapter)
    (package / "adapters" / "mine.py").write_text(ADAPTER, encoding="utf-8")
    catalogue = package / "adapters" / "__init__.py"
    insert(
        catalogue,
        '    Entry("mine", "mine:Mine", "#123456", "star-square", ("my",)),',
        before='    Entry("auto", "auto_',
    )
    printed = run_in(package, USE_ADAPTER.replace("RUNS", repr(str(tmp_path / "runs"))))
    assert printed.splitlines() == ["Mine", "mine", "mine my", "none identity mine auto fresh", "#123456"]


METRIC = """    Metric(
        "val/mine", "Mine", "a metric of mine", shown=("table", "progress", "evidence"), curve=QUALITY
    ),"""
USE_METRIC = """
from types import SimpleNamespace
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report import write_report
from adaptive_memory_bank.lab.compare.table import tables
from adaptive_memory_bank.lab.tracking.dashboard import make_workspace, spec_of
from adaptive_memory_bank.lab.training.watch.progress import _readable
from pathlib import Path

comparison = read_comparison([RUNS])
(table,) = tables(comparison.sections[0])
print(table.rows[0][table.headings.index("Mine %")].text)
page = write_report(comparison, Path(RUNS) / "report.html").read_text(encoding="utf-8")
print('aria-label="Mine per epoch"' in page, "a metric of mine" in page)
print('["val/mine"]' in str(spec_of(make_workspace("t", comparison.runs, entity="e", project="p"))).replace("'", '"'))
print(_readable({"val/mine": 0.25}, SimpleNamespace(callbacks=[])))
"""


def test_a_metric_is_an_entry(package, tmp_path, write_run):
    write_run(tmp_path / "runs", "xbn", metrics={"val/recall@1": 0.5, "val/mine": 0.75}, best={"best/mine": 0.8})
    insert(package / "lab" / "runs" / "metrics.py", METRIC, before='    Metric("train/loss_epoch"')
    printed = run_in(package, USE_METRIC.replace("RUNS", repr(str(tmp_path / "runs"))))
    assert printed.splitlines() == ["80.0", "True True", "True", "{'mine': '0.250'}"]
