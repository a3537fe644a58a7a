"""From a checkpoint of pytorch-metric-learning or lightly into the drop-ins, and back to the originals.

python examples/recipes/load_original.py
"""

import warnings

import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning import losses

from adaptive_memory_bank.integrations.lightly import export_memory_bank, swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory

warnings.simplefilter("ignore", UserWarning)  # both loads warn of what a checkpoint of the original lacks


def from_pml():
    """Rows and labels; PML saves neither where it goes on nor whether it is full, so say so if you know."""
    theirs = losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=64)
    for _ in range(3):
        theirs(torch.randn(32, 8), torch.arange(8).repeat_interleave(4))
    ours = CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=64, adapter="auto")
    ours.load_state_dict(theirs.state_dict())
    ours.queue_idx, ours.has_been_filled = theirs.queue_idx, theirs.has_been_filled
    print(f"pytorch-metric-learning: {len(ours.bank)} rows, the next goes to slot {ours.queue_idx}")
    return theirs, ours


def from_lightly():
    """Lightly saves no queue (ours does): it starts empty, and is full again after one lap."""
    theirs = NTXentLoss(memory_bank_size=(64, 8))
    ours = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "auto")
    ours.load_state_dict(theirs.state_dict())
    keys = [len(ours.memory_bank.memory)]
    for _ in range(2):
        ours(torch.randn(32, 8, requires_grad=True), torch.randn(32, 8))
        keys.append(len(ours.memory_bank.memory))
    print(f"lightly: {keys[0]} keys at first, then {keys[1]}, then {keys[2]}")
    return keys


def back(ours):
    """The originals with the rows as they are now: realigned, and no longer moved."""
    criterion = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "auto")
    criterion(torch.randn(32, 8, requires_grad=True), torch.randn(32, 8))
    originals = ours.to_pml(), export_memory_bank(criterion)
    print("back:", ", ".join(f"{type(original).__module__}.{type(original).__name__}" for original in originals))
    return originals


def main():
    torch.manual_seed(0)
    theirs, ours = from_pml()
    return (theirs, ours), from_lightly(), back(ours)


if __name__ == "__main__":
    main()
