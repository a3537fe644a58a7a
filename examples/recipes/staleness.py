"""How stale is the memory in one's own loop? Remember where each row came from, and embed some of them again.

python examples/recipes/staleness.py
"""

import torch
from torch import nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.diagnostics import StoredSources
from adaptive_memory_bank.losses import MemorySupConLoss

SIZE, DIM = 512, 8


def main():
    torch.manual_seed(0)
    labels = torch.arange(40).repeat_interleave(25)
    images = torch.randn(40, 16)[labels] + torch.randn(1000, 16)
    encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, DIM))
    loss = MemorySupConLoss(AdaptiveMemoryBank(SIZE, DIM), mine=False)
    sources = StoredSources(SIZE, DIM)  # follows the bank
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    found = []
    for step in range(1, 101):
        batch = torch.randperm(1000)[:64]
        rows = encoder(images[batch])
        value = loss(rows, labels[batch])
        sources.enqueue(rows, batch)  # right after the bank did
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step % 25 == 0:
            slots = sources.sample(128)
            with torch.no_grad():
                fresh = encoder(images[sources.images(slots)])
            found.append(sources.staleness(loss.bank, slots, fresh))
            print(f"step {step}: {found[-1].adapted:.3f} as served, {found[-1].unadapted:.3f} as stored")
    return found


if __name__ == "__main__":
    main()
