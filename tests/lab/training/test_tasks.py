import subprocess
import sys

import pytest

from adaptive_memory_bank.lab.training.tasks import TASKS


def test_names_are_those_of_the_configurations():
    assert {name: task.config.task for name, task in TASKS.items()} == {"retrieval": "retrieval", "moco": "moco"}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_quick_options_make_a_valid_configuration(task):
    task.configure(task.quick).check()


def test_the_catalogue_is_read_without_the_training_libraries():
    heavy = ("lightly", "timm", "pytorch_lightning", "pytorch_metric_learning", "wandb")
    code = "import sys, adaptive_memory_bank.lab.training.tasks; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(heavy).intersection(done.stdout.split())
