"""Gradient accumulation: every forward pass is a step for the bank, whether or not the optimiser steps after it.

The bank adapts to each part of a batch and enqueues it, so later parts are compared with earlier ones, too: the memory
makes up for what accumulation loses, which is negatives. `start_after` counts forward passes, so multiply it. The
encoder rests between two parts; `auto` measures that and believes the noise of a single part less, while `xbn` follows
the moments of each part, however few rows it has.

    python examples/recipes/gradient_accumulation.py
"""

import torch
from torch import nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss

PARTS, STEPS, SETTLED = 4, 10, 3  # forward passes in a step of the optimiser; its steps; those without memory


def main():
    torch.manual_seed(0)
    encoder, centres = nn.Linear(16, 8), torch.randn(20, 16)
    loss = MemorySupConLoss(AdaptiveMemoryBank(size=4096, dim=8), start_after=SETTLED * PARTS)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(PARTS):
            labels = torch.randperm(20)[:4].repeat_interleave(4)
            images = centres[labels] + torch.randn(16, 16)
            (loss(encoder(images), labels) / PARTS).backward()
        optimizer.step()
    print(f"{STEPS} steps of the optimiser, {len(loss.bank) // 16} of the bank, {len(loss.bank)} rows")
    return loss


if __name__ == "__main__":
    main()
