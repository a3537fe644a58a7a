"""What each of several gloo processes does in test_shards: a module, so that a new process can import it."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss
from adaptive_memory_bank.shards import gather_shares

DIM, SIZE = 3, 18
# Rows of each of four ranks: uneven, none on some rank, one in all, around every ring, more than a share at once.
UNEVEN = [
    (4, 4, 4, 4),
    (3, 5, 2, 1),
    (0, 2, 3, 0),
    (1, 0, 0, 0),
    (0, 0, 0, 0),
    (7, 6, 1, 9),
    (4, 4, 4, 4),
    (2, 3, 4, 5),
]
EVEN = [(4, 4, 4, 4)] * 6
STEPS = len(UNEVEN)


class Case(NamedTuple):
    """One bank and one loss on it."""

    adapter: str
    labelled: bool
    loss: str = "supcon"
    dtype: torch.dtype = torch.float64
    temperature: float = 0.1
    mine: bool = True

    def make(self, size=SIZE, **layout):
        bank = AdaptiveMemoryBank(size, DIM, self.adapter, dtype=self.dtype, **layout)
        if self.loss == "supcon":
            return MemorySupConLoss(bank, temperature=self.temperature, pos_margin=0.2, neg_margin=1.5, mine=self.mine)
        return MemoryInfoNCELoss(bank, temperature=self.temperature)

    def __str__(self):
        parts = (self.adapter, "labelled" if self.labelled else "not labelled", self.loss, str(self.dtype)[6:])
        return ", ".join([*parts, f"t {self.temperature}", "mined" if self.mine else "all pairs"])


ADAPTERS = ("identity", "xbn", "ema", "axbn", "auto")
CASES = [
    *(Case(name, labelled=True) for name in ADAPTERS),
    *(Case(name, labelled, "infonce") for name, labelled in product(ADAPTERS, (False, True))),
    Case("auto", labelled=True, mine=False),
    Case("auto", labelled=True, temperature=0.01),  # sums relative to the largest logit, which ranks must agree on
    Case("xbn", labelled=True, loss="infonce", temperature=0.01),
    Case("auto", labelled=True, dtype=torch.float32),
    Case("auto", labelled=False, loss="infonce", dtype=torch.float32),
    Case("xbn", labelled=True, dtype=torch.bfloat16),
]


EVEN_CASES = [Case("auto", labelled=True), Case("auto", labelled=False, loss="infonce")]


def batch(step, rank, counts=UNEVEN):
    """Rows, other views of them, and labels."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    count = counts[step][rank]
    rows, keys = 0.5 + 0.1 * step + torch.randn(2, count, DIM, generator=generator, dtype=torch.float64)
    if (step, rank) == (6, 1):
        rows[2] = keys[2] = torch.nan  # a gap in one share
    return rows, keys, torch.randint(0, 4, (count,), generator=generator)


def step_loss(loss, case, rows, keys, labels):
    """The loss of a batch, and its gradient in the rows (of InfoNCE: the queries)."""
    rows, keys = rows.to(case.dtype).requires_grad_(len(rows) > 0), keys.to(case.dtype)  # an empty batch asks for none
    value = loss(rows, labels) if case.loss == "supcon" else loss(rows, keys, labels if case.labelled else None)
    if value.requires_grad:
        value.backward()
    gradient = rows.grad if rows.grad is not None else torch.zeros_like(rows)
    return {"loss": value.detach(), "gradient": gradient, "rows": loss.bank.embeddings, "labels": loss.bank.labels}


def train(case, rank, counts=UNEVEN, loss=None, steps=None):
    loss = loss or case.make(shard_distributed=True)
    return loss, [step_loss(loss, case, *batch(step, rank, counts)) for step in steps or range(len(counts))]


def work(rank, ranks, folder):
    """Train every case, uneven and even; save and load in every way."""
    torch.set_num_threads(1)
    early = AdaptiveMemoryBank(SIZE, DIM, "xbn", shard_distributed=True)  # before the ranks are known
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    named = all(key.startswith(f"rank_{rank}_of_{ranks}.") for key in early.state_dict())
    early.update(torch.ones(2, DIM))
    done = {"uneven": [train(case, rank)[1] for case in CASES], "early": (named, len(early.ring.stored))}
    even = [(case, case.make(8 * ranks, shard_distributed=True)) for case in EVEN_CASES]
    done["even"] = [train(case, rank, EVEN, loss)[1] for case, loss in even]
    done["resumed"] = resume(rank, folder)
    done["dealt out"] = deal_out()
    done["too late"] = use_too_late()
    done["elements"] = {size: elements(AdaptiveMemoryBank(size, 8, shard_distributed=True)) for size in (400, 4000)}
    torch.save(done, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def deal_out():
    """What is here of a bank that was trained by one process, once it is loaded in shards."""
    case = Case("auto", labelled=True)
    plain, _ = train(case, 0, loss=case.make(), steps=range(4))
    sharded = case.make(shard_distributed=True)
    sharded.load_state_dict(plain.state_dict())
    return sharded.bank.embeddings


def use_too_late():
    """The complaint of a bank that was filled before the ranks were known."""
    bank = AdaptiveMemoryBank(SIZE, DIM, "xbn")
    bank.update(torch.ones(2, DIM))
    bank.shard_distributed = True
    try:
        bank.update(torch.ones(2, DIM))
    except RuntimeError as error:
        return str(error)


def elements(bank):
    """Numbers that the state of a bank holds."""
    return sum(value.numel() for value in bank.state_dict().values() if isinstance(value, torch.Tensor))


def resume(rank, folder):
    """Three ways through a checkpoint, each followed by the same steps, and never having stopped."""
    case, half, rest = Case("auto", labelled=True), range(5), range(5, STEPS)
    loss, _ = train(case, rank, steps=half)
    own = loss.state_dict()
    whole = gather_shares(own)
    dcp.save({"loss": own}, checkpoint_id=f"{folder}/dcp")
    if rank == 0:
        torch.save(whole, f"{folder}/whole.pt")
    dist.barrier()
    template = case.make(shard_distributed=True)
    read = {"loss": template.state_dict()}
    dcp.load(read, checkpoint_id=f"{folder}/dcp")
    states = {"own": own, "trainer": torch.load(f"{folder}/whole.pt", weights_only=True), "dcp": read["loss"]}
    found = {}
    for name, state in states.items():
        again = case.make(shard_distributed=True)
        again.load_state_dict(state)
        found[name] = train(case, rank, loss=again, steps=rest)[1], again.state_dict()
    return {**found, "never stopped": (train(case, rank, loss=loss, steps=rest)[1], loss.state_dict())}
