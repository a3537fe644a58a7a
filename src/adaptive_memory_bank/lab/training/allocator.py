"""Keep the memory that a training step frees, for the next step.

On Linux, glibc may hand the activations of a step back to the kernel and fetch the same pages again for the next one,
one page fault per 4 KiB. Small networks on CPUs notice, and whether it happens depends on luck.
"""

import ctypes
import sys

# <malloc.h>
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 1 << 30  # bytes at the top of the heap
BLOCK = 1 << 28  # bytes; what is larger still comes from the kernel and goes back to it


def keep_freed_memory() -> bool:
    """Tell the C library of this process to keep freed memory; False where it has no such setting.

    It cannot be undone, so it is for processes that do nothing but train: the command and the workers of a comparison.
    """
    if not sys.platform.startswith("linux"):
        return False
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    return tune is not None and bool(tune(M_MMAP_THRESHOLD, BLOCK)) and bool(tune(M_TRIM_THRESHOLD, KEPT))
