"""Mixed precision: call the loss inside or outside of autocast; the bank keeps float32 either way.

A step that overflows (a `GradScaler` skips it) leaves no trace in the bank: rows with NaN or infinity are not stored.

    python examples/recipes/mixed_precision.py
"""

import torch
from torch import nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss


def main():
    torch.manual_seed(0)
    encoder, centres = nn.Linear(16, 8), torch.randn(8, 16)
    loss = MemorySupConLoss(AdaptiveMemoryBank(size=1024, dim=8))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())  # float16 needs it, bfloat16 does not
    labels = torch.arange(8).repeat_interleave(4)
    for step in range(10):
        images = centres[labels] + torch.randn(32, 16)
        if step == 5:
            images[3] = torch.inf  # an overflow
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(encoder(images), labels)
        if not value.isfinite():
            continue
        optimizer.zero_grad()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
    rows = loss.bank.embeddings
    print(f"{len(rows)} rows in {rows.dtype}, all finite: {bool(rows.isfinite().all())}")
    return loss


if __name__ == "__main__":
    main()
