"""Two real processes on gloo."""

import pytest
import torch
import torch.multiprocessing as mp

from adaptive_memory_bank import AdaptiveMemoryBank
from distributed_bank import SIZES, batch, work


def assert_same_state(first, second):
    for key, value in first.items():
        assert torch.equal(value, second[key]) if isinstance(value, torch.Tensor) else value == second[key], key


@pytest.mark.parametrize(("name", "labelled"), [("axbn", False), ("auto", True)])
def test_gathered_banks_equal_each_other_and_one_bank_fed_everything(tmp_path, name, labelled):
    mp.spawn(work, args=(str(tmp_path), name, labelled), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1)]
    one = AdaptiveMemoryBank(16, 3, name)
    for step in range(len(SIZES)):
        (rows0, labels0), (rows1, labels1) = batch(step, 0), batch(step, 1)
        one.update(torch.cat([rows0, rows1]), torch.cat([labels0, labels1]) if labelled else None)
    assert_same_state(ranks[0]["gathered"], ranks[1]["gathered"])
    assert_same_state(ranks[0]["gathered"], one.state_dict())
    # Banks that do not gather stay each rank's own: DDP cannot copy one over the other.
    for rank in (0, 1):
        alone = AdaptiveMemoryBank(16, 3, name)
        for step in range(len(SIZES)):
            alone.update(batch(step, rank)[0])
        assert_same_state(ranks[rank]["local"], alone.state_dict())


def test_without_a_process_group_gathering_is_the_batch_itself():
    alone, plain = AdaptiveMemoryBank(16, 3, "xbn", gather_distributed=True), AdaptiveMemoryBank(16, 3, "xbn")
    for step in range(len(SIZES)):
        alone.update(*batch(step, 0))
        plain.update(*batch(step, 0))
    assert torch.equal(alone.embeddings, plain.embeddings)
