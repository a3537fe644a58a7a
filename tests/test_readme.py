"""README: its code runs, its shape is the house's."""

import ast
import re
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


def test_there_are_code_blocks_to_run():
    assert len(BLOCKS) >= 4
    assert len(re.findall(r"  # \([\d, ]+\)", "".join(BLOCKS))) >= 2  # shapes to check, too


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
