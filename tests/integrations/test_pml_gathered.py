"""The PML drop-in that gathers, in two real processes (gloo)."""

import pytest
import torch
import torch.multiprocessing as mp

from distributed_pml import CASES, LABELS, MASK, batches, make_memory, work


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", range(len(CASES)), ids=map(str, CASES))
def test_on_average_ranks_have_the_loss_and_gradient_of_one_process_with_the_whole_batch(ranks, case):
    name, options, masked = CASES[case]
    memory, (first, second) = make_memory(name, **options), (rank[case] for rank in ranks)
    for step, parts in enumerate(zip(batches(0), batches(1), strict=True)):
        rows = torch.cat(parts).requires_grad_()
        value = memory(rows, LABELS.repeat(2), enqueue_mask=MASK.repeat(2) if masked else None)
        value.backward()
        torch.testing.assert_close((first["losses"][step] + second["losses"][step]) / 2, value.detach())
        gradient = torch.cat([first["gradients"][step], second["gradients"][step]]) / 2
        torch.testing.assert_close(gradient, rows.grad, rtol=1e-4, atol=1e-6)
    for rank in (first, second):
        torch.testing.assert_close(rank["rows"], memory.embedding_memory)
        assert rank["position"] == memory.queue_idx
