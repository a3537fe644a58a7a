"""Freed memory stays with the process: the next step finds its pages in place."""

import subprocess
import sys

import pytest

# Three tensors of 24 MiB live together, as activations do, and are freed together, fifty times.
CHILD = """
import resource, sys, torch
from adaptive_memory_bank.training.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    return sum(float(part[0]) for part in [torch.ones(6 << 20) for _ in range(3)])
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", CHILD, how], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="`mallopt` is glibc's")
def test_kept_memory_is_not_fetched_from_the_kernel_again():
    plain, kept = page_faults("plain"), page_faults("keep")
    pages = 50 * 3 * (24 << 20) // 4096  # what a process that gives everything back touches anew
    assert kept < 0.01 * pages
    assert plain > 10 * kept
