"""README: its code runs, its shape is the house's."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[block.strip().splitlines()[0][:50] for block in BLOCKS])
def test_a_code_block_runs_as_it_stands(code):
    """It raises nothing, and what it says of shapes is so."""
    names = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    for expression, shape in re.findall(r"^(\S.*?)  # (\([\d, ]+\))", code, flags=re.MULTILINE):
        assert tuple(eval(expression, names).shape) == ast.literal_eval(shape), expression


@pytest.mark.slow
def test_the_adapter_of_ones_own_goes_through_a_comparison(tmp_path):
    """As a user would: the block in a file, its class by name, in a worker process, with the built-in ones."""
    (source,) = (block for block in BLOCKS if "class RunningMean" in block)
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    words = ["compare", "--adapters", "identity", "auto", "mine:RunningMean", "--seeds", "0", "--data", "digits"]
    words += ["--epochs", "1", "--memory_start", "0", "--jobs", "1", "--out", "runs", "--wandb", "disabled"]
    command = [
        sys.executable,
        "-c",
        "from adaptive_memory_bank.lab.commands.main import main; raise SystemExit(main())",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = {
        line.split()[0]: line.split() for line in done.stdout.splitlines() if re.match(r"(identity|auto|mine:)", line)
    }
    assert set(rows) == {"identity", "auto", "mine:RunningMean"}
    results = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert {run["adapter"]: run["status"] for run in results} == dict.fromkeys(rows, "complete")


def test_there_are_code_blocks_to_run():
    assert len(BLOCKS) >= 4
    assert len(re.findall(r"  # \([\d, ]+\)", "".join(BLOCKS))) >= 2  # shapes to check, too


def test_no_code_is_wider_than_the_page_that_shows_it():
    code = re.findall(r"^```(?:python|bash)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert [line for block in code for line in block.splitlines() if len(line) > 98] == []


def test_it_is_short_and_installs_early():
    lines = README.splitlines()
    assert len(lines) <= 220
    assert any("pip install" in line for line in lines[:15])
    assert 'pip install -e ".[all]" && amb compare' in README
    assert 'pip install -e ".[dev]" && pytest' in README


def test_what_it_shows_beside_the_text_exists():
    for target in re.findall(r'(?:\]\(|src=")([^)#"]+)[)"]', README):
        if not target.startswith("http"):
            assert (Path(__file__).parents[1] / target).exists(), target
