"""Any order of verbs, against the literal formula."""

import copy

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from adaptive_memory_bank import AdaptiveMemoryBank
from reference import NaiveAdapter, NaiveBank

DIM = 3
batches = st.tuples(st.integers(0, 12), st.integers(0, 2**31), st.floats(-4, 4), st.floats(0.1, 4))


class BankMachine(RuleBasedStateMachine):
    """Update, adapt, enqueue, reset, save and load, change the dtype, in any order."""

    @initialize(name=st.sampled_from(["identity", "xbn", "ema", "axbn", "auto"]), size=st.integers(1, 9))
    def make(self, name, size):
        self.name, self.size = name, size
        self._renew()

    def _renew(self):
        self.bank = AdaptiveMemoryBank(self.size, DIM, self.name)
        self.naive = NaiveBank(self.size, DIM, NaiveAdapter(self.name))

    def _batch(self, batch):
        count, seed, level, spread = batch
        generator = torch.Generator().manual_seed(seed)
        rows = level + spread * torch.randn(count, DIM, generator=generator)
        return rows, torch.randint(0, 4, (count,), generator=generator)

    @rule(batch=batches)
    def update(self, batch):
        rows, labels = self._batch(batch)
        self.bank.update(rows, labels)
        self.naive.update(rows, labels)

    @rule(batch=batches)
    def update_with_a_bad_row(self, batch):
        rows, labels = self._batch(batch)
        bad = torch.tensor([[0.0, float("nan"), 0.0]])
        before = self.bank.rejected_rows
        rows, labels = torch.cat([bad, rows]), torch.cat([torch.tensor([0]), labels])
        self.bank.update(rows, labels)
        self.naive.update(rows, labels)
        assert self.bank.rejected_rows == before + 1

    @rule(batch=batches)
    def adapt(self, batch):
        rows, labels = self._batch(batch)
        self.bank.adapt(rows, labels)
        self.naive.adapt(rows, labels)

    @rule(batch=batches)
    def enqueue(self, batch):
        rows, labels = self._batch(batch)
        self.bank.enqueue(rows, labels)
        self.naive.enqueue(rows, labels)

    @rule()
    def reset(self):
        self.bank.reset()
        self.naive = NaiveBank(self.size, DIM, NaiveAdapter(self.name))

    @rule()
    def save_and_load(self):
        state = copy.deepcopy(self.bank.state_dict())
        self.bank = AdaptiveMemoryBank(self.size, DIM, self.name)
        self.bank.load_state_dict(state)

    @rule()
    def to_double_and_back(self):
        self.bank.double()
        assert self.bank.embeddings.dtype == torch.float64
        self.bank.float()

    @invariant()
    def equals_the_literal_formula(self):
        if hasattr(self, "bank"):
            # Tiny banks compose ratios of spreads that may be small: float32 shows at 1e-5 of the largest value.
            self.naive.assert_equals(self.bank, tolerance=2e-4)
            assert self.bank.embeddings.isfinite().all()
            assert len(self.bank) <= self.size


TestBankMachine = BankMachine.TestCase
TestBankMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
