"""The examples run, and tell the story they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


@pytest.mark.slow
def test_lightly_moco_has_a_fresher_queue_than_lightlys():
    lines = run("lightly_moco.py", "--steps", "100")
    rows = [line.split() for line in lines[2:]]
    assert [row[:2] for row in rows] == [[m, q] for m in ("0.99", "0.9", "0.5") for q in ("lightly", "adaptive")]
    accuracy = [float(row[2]) for row in rows]
    assert all(0.1 < value <= 1 for value in accuracy)
    staleness = {tuple(row[:2]): float(row[3]) for row in rows}
    assert staleness["0.9", "adaptive"] < staleness["0.9", "lightly"]


def test_pml_cross_batch_memory_serves_fresher_rows_than_it_stored():
    lines = run("pml_cross_batch_memory.py", "--steps", "140", "--seeds", "1")
    scores = {line[:16].strip(): line[16:].split() for line in lines[2:]}
    assert list(scores) == ["no memory", "PML's memory", "adaptive memory"]
    assert all(0 < float(values[0]) <= 1 for values in scores.values())
    stored, served = map(float, scores["adaptive memory"][1:3])
    assert served < stored
    assert scores["PML's memory"][1] == scores["PML's memory"][2]


def test_two_encoders_learn_to_find_each_other():
    lines = run("recipes/two_encoders.py", "--steps", "100")
    untrained, trained = (float(line.split()[-1]) for line in lines[:2])
    assert untrained < 0.1
    assert trained > 0.5
    assert [line.split(": mean age ")[0] for line in lines[2:]] == ["bank of texts", "bank of images"]


def test_examples_stay_short():
    for path in EXAMPLES.rglob("*.py"):
        assert len(path.read_text().splitlines()) < 120, path.name
