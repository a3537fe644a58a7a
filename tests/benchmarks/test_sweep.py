"""The sweep's file: W&B takes it, and every command it would start is one that `amb` takes."""

from pathlib import Path

import pytest
import yaml
from wandb.sdk.launch.sweeps.utils import load_sweep_config

from adaptive_memory_bank.lab.commands.main import make_parser
from adaptive_memory_bank.lab.commands.words import normalized

SWEEP = Path(__file__).parents[2] / "benchmarks" / "sweep.yaml"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # W&B leaves the file open
def test_wandb_reads_it():
    assert load_sweep_config(str(SWEEP))["method"] == "grid"


def test_amb_takes_every_command_it_starts():
    sweep = yaml.safe_load(SWEEP.read_text(encoding="utf-8"))
    start = sweep["command"].index("amb") + 1
    fixed = [word for word in sweep["command"][start:] if not word.startswith("$")]
    for name, choice in sweep["parameters"].items():
        for value in choice.get("values", [choice.get("value")]):
            words = normalized([*fixed, f"--{name}={value}"])  # as an agent writes ${args}
            assert str(getattr(make_parser(words).parse_args(words).retrieval, name)) == str(value)


def test_it_covers_every_adapter_and_aims_at_a_name_that_runs_log():
    sweep = yaml.safe_load(SWEEP.read_text(encoding="utf-8"))
    assert sweep["parameters"]["adapter"]["values"] == ["none", "identity", "xbn", "ema", "axbn", "auto"]
    assert sweep["metric"] == {"name": "holdout/recall@1", "goal": "maximize"}  # not of the test set
