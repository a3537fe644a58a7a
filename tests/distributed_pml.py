"""What each of two gloo processes does in test_pml_gathered: a module, so that a new process can import it."""

import torch
import torch.distributed as dist
from pytorch_metric_learning.losses import ContrastiveLoss, MultiSimilarityLoss, NTXentLoss, SupConLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.reducers import MeanReducer

from adaptive_memory_bank.integrations.pml import CrossBatchMemory

STEPS, BATCH, DIM, SIZE = 7, 4, 5, 19  # no multiple of the gathered batch
LABELS = torch.arange(BATCH) % 2  # on both ranks, so that their losses average over as many queries or pairs
MASK = torch.arange(BATCH) < 2


def make_memory(name, **options):
    loss, miner = {
        "supcon": (SupConLoss(), None),
        "ntxent": (NTXentLoss(), None),
        "contrastive": (ContrastiveLoss(reducer=MeanReducer()), None),
        "multi-similarity": (MultiSimilarityLoss(), MultiSimilarityMiner()),
    }[name]
    return CrossBatchMemory(loss, DIM, SIZE, miner, adapter="axbn", **options)


CASES = [
    ("supcon", {}, False),
    ("supcon", {}, True),
    ("ntxent", {"fused": False}, False),
    ("contrastive", {}, False),
    ("multi-similarity", {}, False),
    ("multi-similarity", {}, True),
]


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(BATCH, DIM, generator=generator) for _ in range(STEPS)]


def train(rank, name, options, masked):
    memory = make_memory(name, gather_distributed=True, **options)
    losses, gradients = [], []
    for rows in batches(rank):
        loss = memory(rows.requires_grad_(), LABELS, enqueue_mask=MASK if masked else None)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(rows.grad)
    return {"losses": losses, "gradients": gradients, "rows": memory.embedding_memory, "position": memory.queue_idx}


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.save([train(rank, *case) for case in CASES], f"{folder}/{rank}.pt")
    dist.destroy_process_group()
