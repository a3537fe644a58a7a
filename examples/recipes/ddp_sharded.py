"""One bank on several processes: each holds a share of the rows, and the loss compares with all of them.

For banks that no device holds alone. Rows stay where they were made; moments, queries and their gradients travel.
States say whose share they are, so `torch.distributed.checkpoint` writes and reads them side by side.

    torchrun --standalone --nproc-per-node 2 examples/recipes/ddp_sharded.py
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemorySupConLoss


def main():
    dist.init_process_group("gloo")  # "nccl" on GPUs; before the bank, which asks how many ranks there are
    torch.manual_seed(dist.get_rank())
    encoder = DistributedDataParallel(nn.Linear(16, 8))
    loss = MemorySupConLoss(AdaptiveMemoryBank(size=1024, dim=8, shard_distributed=True))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(10):
        images, labels = torch.randn(32, 16), torch.arange(8).repeat_interleave(4)
        optimizer.zero_grad()
        loss(encoder(images), labels).backward()
        optimizer.step()

    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)  # rank 0's
    dcp.save({"loss": loss.state_dict()}, checkpoint_id=folder[0])
    again = MemorySupConLoss(AdaptiveMemoryBank(size=1024, dim=8, shard_distributed=True))
    state = {"loss": again.state_dict()}  # on another number of ranks: see `adaptive_memory_bank.shards.adopt_share`
    dcp.load(state, checkpoint_id=folder[0])
    again.load_state_dict(state["loss"])
    same = torch.equal(again.bank.embeddings, loss.bank.embeddings)
    print(f"rank {dist.get_rank()}: {len(loss.bank)} rows of its own, the same when loaded: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
