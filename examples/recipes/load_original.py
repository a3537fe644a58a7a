"""Go on from a checkpoint of pytorch-metric-learning or lightly: their `state_dict` loads into the drop-ins.

python examples/recipes/load_original.py
"""

import warnings

import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning import losses

from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory


def from_pml():
    """Rows and labels; PML saves neither where it goes on nor whether it is full, so say so if you know."""
    theirs = losses.CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=64)
    for _ in range(3):
        theirs(torch.randn(32, 8), torch.arange(8).repeat_interleave(4))
    ours = CrossBatchMemory(losses.ContrastiveLoss(), embedding_size=8, memory_size=64, adapter="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that says what had to be guessed
        ours.load_state_dict(theirs.state_dict())
    ours.queue_idx, ours.has_been_filled = theirs.queue_idx, theirs.has_been_filled
    return theirs.embedding_memory, ours.embedding_memory


def from_lightly():
    """The queue and its position."""
    theirs = NTXentLoss(memory_bank_size=(64, 8))
    for _ in range(3):
        theirs(torch.randn(32, 8, requires_grad=True), torch.randn(32, 8))
    ours = swap_memory_bank(NTXentLoss(memory_bank_size=(64, 8)), "auto")
    ours.load_state_dict(theirs.state_dict())
    return theirs.memory_bank.bank.T, ours.memory_bank.bank.T


def main():
    torch.manual_seed(0)
    pairs = {"pytorch-metric-learning": from_pml(), "lightly": from_lightly()}
    for name, (theirs, ours) in pairs.items():
        print(f"{name}: {len(ours)} rows, as they were: {torch.allclose(theirs, ours)}")
    return pairs


if __name__ == "__main__":
    main()
