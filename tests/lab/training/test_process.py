"""A run puts back what it changes in its process; freed memory stays, so that the next step finds its pages."""

import logging
import random
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from adaptive_memory_bank.lab.training.process import RandomState, isolated

# Three tensors of 40 MiB live together, as activations do, and are freed together. 40 MiB is above the largest block
# that glibc keeps of its own accord. The median step counts: now and then something small lands in a hole of the heap,
# and the block that was there moves to new pages, once.
CHILD = """
import resource, statistics, sys, torch
from adaptive_memory_bank.lab.training.process import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    return sum(float(part[0]) for part in [torch.ones(10 << 20) for _ in range(3)])
def page_faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(statistics.median_low(page_faults() for _ in range(51)))
"""


def page_faults(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", CHILD, how], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`mallopt` is glibc's")
def test_kept_memory_is_not_fetched_from_the_kernel_again():
    plain, kept = page_faults("plain"), page_faults("keep")
    pages = 3 * (40 << 20) // 4096  # what a step that got nothing back from the last one touches anew
    assert kept < 0.01 * pages
    assert plain > 10 * kept


def test_a_run_is_seeded_and_everything_is_put_back(retrieval_config):
    logger = logging.getLogger("pytorch_lightning")
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    threads, level, drawn = torch.get_num_threads(), logger.level, []
    for _ in range(2):
        with isolated(retrieval_config(seed=7, threads=threads + 1)):
            assert torch.get_num_threads() == threads + 1
            assert logger.level == logging.WARNING
            drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
    assert drawn[0] == drawn[1]
    assert before == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert (torch.get_num_threads(), logger.level) == (threads, level)


def test_it_is_put_back_after_an_error_too(retrieval_config):
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), isolated(retrieval_config(threads=threads + 1)):
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_generators_come_back_from_a_checkpoint_right_before_the_first_step():
    trainer, checkpoint = SimpleNamespace(global_rank=0), {}
    torch.manual_seed(5)
    RandomState().on_save_checkpoint(trainer, None, checkpoint)
    expected = torch.rand(2)
    restored = RandomState()
    restored.on_load_checkpoint(trainer, None, checkpoint)
    torch.rand(9)  # what happens before training must not matter
    restored.on_train_batch_start(trainer, None, None, 0)
    assert torch.equal(torch.rand(2), expected)
    restored.on_train_batch_start(trainer, None, None, 1)  # once
    assert not torch.equal(torch.rand(2), expected)
