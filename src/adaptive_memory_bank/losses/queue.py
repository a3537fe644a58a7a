"""The sum over a queue that is not full yet: the rows of a bank, and rows that no bank has."""

import torch
from torch import Tensor

from adaptive_memory_bank.bank import AdaptiveMemoryBank
from adaptive_memory_bank.losses.infonce import log_sum_exp
from adaptive_memory_bank.losses.walk import Workspace


def log_sum_exp_with(
    bank: AdaptiveMemoryBank, others: Tensor, queries: Tensor, *, temperature: float, workspace: Workspace
) -> Tensor:
    """``log sum_j exp(q_i . z_j / temperature)`` over a bank's realigned unit rows and others, (B,).

    Args:
        bank: Its rows are walked over block by block.
        others: Further rows (m, dim), as they are: few, or for the first steps only.
        queries: Unit vectors, shape (B, dim); the result is differentiable in them.
        temperature: Divides the products.
        workspace: Memory for a block of rows.

    Example:
        >>> bank = AdaptiveMemoryBank(size=2, dim=2, adapter="identity")
        >>> bank.update(torch.tensor([[3.0, 4.0]]))
        >>> query, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
        >>> log_sum_exp_with(bank, other, query, temperature=1.0, workspace=Workspace())  # log(e^0.6 + e^0)
        tensor([1.0375])
    """
    total = log_sum_exp(bank, queries, None, temperature=temperature, workspace=workspace)
    if not len(others):
        return total
    return torch.logaddexp(total, (queries / temperature @ others.to(queries.dtype).T).logsumexp(1))
