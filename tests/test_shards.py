"""Two and four real processes on gloo hold one bank together: as one process that holds it all, in plain loops."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.ring import LazyRing
from adaptive_memory_bank.shards import Share, adopt_share
from reference import NaiveAdapter, NaiveBank
from sharded_banks import CASES, DIM, EVEN, EVEN_CASES, SIZE, UNEVEN, Case, batch, step_loss, train, work
from supcon_reference import naive


@pytest.fixture(scope="module", params=[2, 4])
def group(request, tmp_path_factory):
    """What every rank found, and the folder they wrote to."""
    folder = tmp_path_factory.mktemp(f"{request.param}_ranks")
    mp.spawn(work, args=(request.param, str(folder)), nprocs=request.param)
    found = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(request.param)]
    return found, folder


class NaiveShards(NaiveBank):
    """Slots of all ranks, one share after the other; every adaptation rewrites every row of all of them."""

    def __init__(self, ranks: int, size: int, adapter: str) -> None:
        super().__init__(size, DIM, NaiveAdapter(adapter))
        self.shares = [Share(rank, ranks).rows_of(size) for rank in range(ranks)]
        self.starts = [sum(self.shares[:rank]) for rank in range(ranks)]
        self.cursors = [0] * ranks

    def enqueue_of(self, rank, rows, labels):
        """Store a rank's batch and return the slot of each row; -1 where a later one of the same batch has it."""
        slots = []
        for row, label in zip(rows.numpy(), labels.tolist(), strict=True):
            slot = self.starts[rank] + self.cursors[rank]
            self.rows[slot], self.labels[slot] = row if np.isfinite(row).all() else np.nan, label
            self.cursors[rank] = (self.cursors[rank] + 1) % self.shares[rank]
            slots = [-1 if earlier == slot else earlier for earlier in slots] + [slot]
        return slots

    def served(self, slots=()):
        """Rows, their labels, and where among them those of slots are; -1 for none."""
        places = np.where(self.held, self.held.cumsum() - 1, -1)
        labels = torch.tensor([label for label, held in zip(self.labels, self.held, strict=True) if held])
        found = [int(places[slot]) if slot >= 0 else -1 for slot in slots]
        return torch.from_numpy(self.embeddings.copy()), labels, found

    def of_rank(self, rank):
        here = slice(self.starts[rank], self.starts[rank] + self.shares[rank])
        rows, labels = self.rows[here], np.array(self.labels[here])
        held = ~np.isnan(rows[:, 0])
        return torch.from_numpy(rows[held].copy()), labels[held].tolist()


def naive_infonce(case, queries, keys, ids, rows, row_ids):
    """In loops: one query, one row at a time."""
    losses = []
    for query, key, own in zip(F.normalize(queries, dim=1), F.normalize(keys, dim=1), ids, strict=True):
        others = [j for j in range(len(rows)) if not case.labelled or row_ids[j] != own]
        negatives = [query @ row / case.temperature for row in F.normalize(rows[others], dim=1)]
        positive = query @ key / case.temperature
        losses.append(torch.stack([positive, *negatives]).logsumexp(0) - positive)
    return torch.stack(losses).mean() if losses else queries.sum()


def step_in_loops(case, bank, batches):
    """Adapt all rows, then enqueue and compare (InfoNCE: compare and enqueue): loss and queries of each rank."""
    rows, keys, labels = zip(*batches, strict=True)
    rows, keys = ([part.to(case.dtype).double() for part in parts] for parts in (rows, keys))
    stored = rows if case.loss == "supcon" else [F.normalize(part, dim=1) for part in keys]
    used = torch.cat(labels) if case.labelled and case.loss == "supcon" else None
    bank.adapt(torch.cat(stored), used)
    leaves = [part.clone().requires_grad_() for part in rows]
    if case.loss == "infonce":
        losses = [naive_infonce(case, *three, *bank.served()[:2]) for three in zip(leaves, keys, labels, strict=True)]
    slots = [bank.enqueue_of(rank, *two) for rank, two in enumerate(zip(stored, labels, strict=True))]
    if case.loss == "supcon":
        options = {"temperature": case.temperature, "neg_margin": 1.5, "mine": case.mine}
        losses = []
        for leaf, own_labels, own_slots in zip(leaves, labels, slots, strict=True):
            everything, all_labels, places = bank.served(own_slots)
            losses.append(naive(leaf, own_labels, everything, all_labels, places, **options))
    return losses, leaves


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: str(CASES[number]))
def test_losses_gradients_and_rows_are_those_of_one_process_that_holds_all(group, number):
    found, _ = group
    case = CASES[number]
    bank = NaiveShards(len(found), SIZE, case.adapter)
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 3e-2}[case.dtype]
    close = {"rtol": tolerance, "atol": tolerance}
    for step in range(len(UNEVEN)):
        batches = [batch(step, rank) for rank in range(len(found))]
        losses, leaves = step_in_loops(case, bank, batches)
        for rank, (loss, leaf) in enumerate(zip(losses, leaves, strict=True)):
            ours = found[rank]["uneven"][number][step]
            rows, labels = bank.of_rank(rank)
            torch.testing.assert_close(ours["rows"].double(), rows, **close)
            if ours["labels"] is not None:
                assert ours["labels"].tolist() == labels
            if not batches[rank][0].isfinite().all():
                assert ours["loss"].isnan()
                continue
            torch.testing.assert_close(ours["loss"].double(), loss.detach(), **close)
            loss.backward()
            torch.testing.assert_close(ours["gradient"].double(), leaf.grad, **close)


@pytest.mark.parametrize("number", range(len(EVEN_CASES)), ids=lambda number: EVEN_CASES[number].loss)
def test_even_batches_are_as_in_one_bank_of_this_package(group, number):
    """Whole batches fill and leave the shards as they do one ring: the same rows, losses and gradients."""
    found, _ = group
    case, ranks = EVEN_CASES[number], len(found)
    whole = case.make(8 * ranks)
    for step in range(len(EVEN)):
        batches = [batch(step, rank, EVEN) for rank in range(ranks)]
        one = step_loss(whole, case, *(torch.cat(parts) for parts in zip(*batches, strict=True)))
        ours = [found[rank]["even"][number][step] for rank in range(ranks)]
        rows = torch.cat([part["rows"] for part in ours])
        torch.testing.assert_close(rows.sort(0).values, one["rows"].sort(0).values, rtol=1e-9, atol=1e-9)
        if case.loss == "infonce":  # whose loss is a plain mean over the queries
            torch.testing.assert_close(torch.stack([part["loss"] for part in ours]).mean(), one["loss"])
            gradient = torch.cat([part["gradient"] for part in ours]) / ranks
            torch.testing.assert_close(gradient, one["gradient"])


def assert_identical(found, expected):
    """The same to the bit, NaN included."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("way", ["own", "trainer", "dcp"])
def test_the_same_number_of_ranks_resumes_bit_for_bit(group, way):
    for rank in group[0]:
        (steps, state), (expected, expected_state) = rank["resumed"][way], rank["resumed"]["never stopped"]
        assert_identical(steps, expected)
        assert state.keys() == expected_state.keys()
        state.pop("steps._extra_state")  # how many steps had nothing to compare is known of one rank only
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                assert_identical(value, expected_state[key])
            else:
                assert value == expected_state[key], key


def rows_of(banks):
    """Rows with their labels, of several banks, in any order."""
    rows = torch.cat([torch.cat([bank.embeddings, bank.labels[:, None].double()], dim=1) for bank in banks])
    return torch.tensor(sorted(rows.tolist()))


def shares_of(state, ranks):
    """Banks that hold the shares of so many ranks of a loss's state, as each of these ranks would load it."""
    banks = []
    for rank in range(ranks):
        bank = AdaptiveMemoryBank(SIZE, DIM, "auto", dtype=torch.float64)
        own = {key.removeprefix("bank."): value for key, value in state.items() if key.startswith("bank.")}
        adopt_share(own, "", Share(rank, ranks), SIZE)
        bank.ring = LazyRing(Share(rank, ranks).rows_of(SIZE), DIM, torch.float64)
        bank.load_state_dict(own)
        banks.append(bank)
    return banks


@pytest.mark.filterwarnings("ignore:You are using `torch.load` with `weights_only=False`:FutureWarning")  # torch 2.4
@pytest.mark.parametrize("way", ["trainer", "dcp"])
@pytest.mark.parametrize("ranks", [1, 3, 5])
def test_another_number_of_ranks_deals_the_rows_out_anew(group, ranks, way):
    found, folder = group
    path = folder / "whole.pt"
    if way == "dcp":
        path = folder / "converted.pt"
        dcp_to_torch_save(folder / "dcp", path)
    content = torch.load(path, weights_only=way == "trainer")
    state = content if way == "trainer" else content["loss"]
    before, after = shares_of(dict(state), len(found)), shares_of(dict(state), ranks)
    torch.testing.assert_close(rows_of(after), rows_of(before), rtol=1e-12, atol=1e-12)
    held = [len(bank) for bank in after]
    assert max(held) - min(held) <= 1
    assert all(bank.adapter.observations == before[0].adapter.observations for bank in after)
    assert sum(bank.rejected_rows for bank in after) == sum(bank.rejected_rows for bank in before)


def test_the_newest_rows_of_all_ranks_are_the_newest_of_the_new_ranks():
    states = {}
    for rank in range(2):
        ring = LazyRing(3, 1, torch.float64)
        ring.write(torch.tensor([[1.0], [2.0], [3.0], [4.0]], dtype=torch.float64) + 10 * rank, torch.arange(4))
        extra = {"rejected_rows": rank}
        states |= {**ring.state_dict(prefix=f"rank_{rank}_of_2.ring."), f"rank_{rank}_of_2._extra_state": extra}
    adopt_share(states, "", Share(0, 1), 6)
    ring = LazyRing(6, 1, torch.float64)
    ring.load_state_dict({key[5:]: value for key, value in states.items() if key.startswith("ring.")})
    assert ring.read().flatten().tolist() == [12.0, 2.0, 13.0, 3.0, 14.0, 4.0]
    assert (ring.labels.tolist(), ring.cursor) == ([1, 1, 2, 2, 3, 3], 0)
    assert states["_extra_state"] == {"rejected_rows": 1}


def test_a_plain_bank_is_dealt_out_to_ranks_and_back(group):
    found, _ = group
    plain = train(Case("auto", labelled=True), 0, loss=Case("auto", labelled=True).make(), steps=range(4))[0].bank
    torch.testing.assert_close(
        torch.tensor(sorted(torch.cat([rank["dealt out"] for rank in found]).tolist())),
        torch.tensor(sorted(plain.embeddings.tolist())),
    )


def test_a_state_without_all_shares_is_refused_and_says_how(group):
    found, _ = group
    own = found[0]["resumed"]["never stopped"][1]
    loss = Case("auto", labelled=True).make()
    with pytest.raises(ValueError, match=r"without that of rank 1; rank 0 of 1 needs all of them.*dcp_to_torch"):
        loss.load_state_dict(own)


def test_a_state_of_another_size_is_refused(group):
    _, folder = group
    with pytest.raises(ValueError, match="A bank of size 18 cannot be loaded into one of size 20; make the bank with"):
        Case("auto", labelled=True).make(20).load_state_dict(torch.load(folder / "whole.pt", weights_only=True))


def test_replicas_and_shares_exclude_each_other():
    with pytest.raises(ValueError, match="`gather_distributed` and `shard_distributed` exclude each other"):
        AdaptiveMemoryBank(8, 2, gather_distributed=True, shard_distributed=True)


def test_a_bank_made_before_the_ranks_are_known_takes_its_share_as_soon_as_they_are(group):
    shares = [Share(rank, len(group[0])).rows_of(SIZE) for rank in range(len(group[0]))]
    assert [rank["early"] for rank in group[0]] == [(True, rows) for rows in shares]
    assert all(
        re.search("is now rank . of .; make it after `init_process_group`", rank["too late"]) for rank in group[0]
    )


def test_without_a_process_group_it_is_a_bank_like_any_other():
    case = Case("auto", labelled=True)
    (alone, steps), (plain, expected) = (
        train(case, 0, loss=case.make(**layout)) for layout in ({"shard_distributed": True}, {})
    )
    assert_identical(steps, expected)
    assert alone.state_dict().keys() == plain.state_dict().keys()


def test_memory_of_a_rank_is_its_share_and_a_constant(group):
    ranks = len(group[0])
    for rank in group[0]:
        grown = rank["elements"][4000] - rank["elements"][400]
        assert grown * ranks == 3600 * (8 + 2)  # a row, its label, the mark of a gap
        assert rank["elements"][4000] < 4000 * 10 / ranks + 300
