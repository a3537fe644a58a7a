"""Freed memory stays with the process: the next step finds its pages in place."""

import subprocess
import sys

import pytest

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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`mallopt` is glibc's")
def test_kept_memory_is_not_fetched_from_the_kernel_again():
    plain, kept = page_faults("plain"), page_faults("keep")
    pages = 3 * (40 << 20) // 4096  # what a step that got nothing back from the last one touches anew
    assert kept < 0.01 * pages
    assert plain > 10 * kept
