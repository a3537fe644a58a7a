"""What all tests need before torch computes anything."""

import os

# Some virtual machines announce AMX and then refuse it: a bfloat16 layer ends the process with an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
