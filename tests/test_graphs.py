"""A training step under `torch.compile`: the same numbers, and nothing is compiled twice."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from lightly.loss import NTXentLoss
from pytorch_metric_learning.losses import SupConLoss
from torch import nn

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.integrations.lightly import swap_memory_bank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss

pytestmark = [
    # Dynamo looks at `.grad` of what crosses a break between two graphs.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="torch 2.6 can forbid to compile again"),
]

STEPS = 12  # of 8 rows, in a bank of 40: it is full after 5 steps, and wraps


class SimilarityLoss(nn.Module):
    """A loss of one's own on the verbs of a bank."""

    def __init__(self, bank):
        super().__init__()
        self.bank = bank

    def forward(self, queries, labels):
        self.bank.update(queries, labels)
        return self.bank.similarity(queries).logsumexp(1).mean()


class ToItself(MemoryInfoNCELoss):
    """InfoNCE with the queries, changed a little, for keys; ids are all different."""

    def forward(self, queries, labels):
        return super().forward(queries, queries.detach().flip(1))


class Swapped(nn.Module):
    """lightly's criterion, on a bank of its own."""

    def __init__(self, bank, fused=True):
        super().__init__()
        original = NTXentLoss(temperature=0.1, memory_bank_size=(bank.size, bank.dim))
        self.criterion = swap_memory_bank(original, "auto", fused=fused)

    def forward(self, queries, labels):
        return self.criterion(queries, queries.detach().flip(1))


def in_pml(bank, **options):
    """The PML drop-in, fused or not."""
    return CrossBatchMemory(SupConLoss(), bank.dim, memory_size=bank.size, **options)


LOSSES = {
    "supcon": MemorySupConLoss,
    "infonce": ToItself,
    "verbs": SimilarityLoss,
    "lightly": Swapped,
    "lightly, not fused": partial(Swapped, fused=False),
    "pml": in_pml,
    "pml, not fused": partial(in_pml, fused=False),
}


def train(kind, backend=None):
    """Losses of a small training, and the weights at its end."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
    criterion = LOSSES[kind](AdaptiveMemoryBank(40, 8, "auto"))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)

    def step(images, labels):
        optimizer.zero_grad()
        loss = criterion(encoder(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run, values = step if backend is None else torch.compile(step, backend=backend), []
    for number in range(STEPS):
        images = torch.randn(8, 6, generator=torch.Generator().manual_seed(number))
        with torch.compiler.set_stance("fail_on_recompile" if backend and number >= 3 else "default"):
            values.append(run(images, torch.arange(8) // 2 + number % 3))
    return torch.stack(values), torch.cat([weights.flatten() for weights in encoder.parameters()]).detach()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("kind", LOSSES)
def test_a_compiled_step_is_the_same_step_and_is_compiled_once(kind):
    torch.testing.assert_close(train(kind, "aot_eager"), train(kind), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOSSES)
def test_a_step_compiled_to_machine_code_too(kind):
    torch.testing.assert_close(train(kind, "inductor"), train(kind), rtol=1e-5, atol=1e-5)


def test_a_bank_does_not_load_the_compiler():
    code = (
        "import sys, torch; from adaptive_memory_bank import AdaptiveMemoryBank;"
        "AdaptiveMemoryBank(4, 2).update(torch.randn(4, 2)); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
