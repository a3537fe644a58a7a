import pytest
import torch
from torch import Tensor


@pytest.fixture
def clustered():
    """Rows around class centres, hard enough that every metric lies well inside (0, 1), with their labels."""

    def draw(
        rows: int, classes: int, dim: int, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        centres = torch.randn(classes, dim, generator=torch.Generator().manual_seed(1234), dtype=dtype)
        labels = torch.randint(classes, (rows,), generator=generator)
        return centres[labels] + 1.2 * torch.randn(rows, dim, generator=generator, dtype=dtype), labels

    return draw
