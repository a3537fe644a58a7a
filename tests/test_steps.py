"""The count of training steps and of those that taught nothing, alone and in every loss that has one."""

import copy
import io
import pickle

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss
from pytorch_metric_learning.miners import PairMarginMiner
from pytorch_metric_learning.reducers import DoNothingReducer

from adaptive_memory_bank import AdaptiveMemoryBank
from adaptive_memory_bank.integrations.pml import CrossBatchMemory
from adaptive_memory_bank.losses import MemoryInfoNCELoss, MemorySupConLoss
from adaptive_memory_bank.steps import StepCounter

ROWS = torch.eye(4)  # all at a distance of sqrt(2), beyond the margin of any default miner
TWINS = torch.tensor([0, 0, 1, 1])


def count(steps, empty):
    """A pattern of 0s and 1s, step by step."""
    for one in empty:
        steps.add(torch.tensor(one == 1))


def through_a_file(steps):
    file = io.BytesIO()
    torch.save(steps.state_dict(), file)
    file.seek(0)
    other = StepCounter("Do something.")
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


def test_half_of_a_hundred_empty_steps_pass_and_one_more_is_said_aloud_once():
    steps = StepCounter("Do something.")
    count(steps, [1, 0] * 50)
    count(steps, [1] * 50 + [0] * 50)
    count(steps, [0] * 49 + [1] * 50)  # 99 steps: no look yet
    with pytest.warns(UserWarning, match=r"In 51 of the last 100 steps nothing was left to compare.*Do something\."):
        count(steps, [1])
    count(steps, [1] * 300)  # warnings are errors here
    assert steps.stats() == {"steps": 600.0, "empty_steps": 451.0}


@pytest.mark.parametrize(
    "way",
    [through_a_file, copy.deepcopy, lambda steps: pickle.loads(pickle.dumps(steps))],
    ids=["file", "copy", "pickle"],
)
def test_stopped_within_a_hundred_it_warns_where_it_would_have(way):
    steps = StepCounter("Do something.")
    count(steps, [0] * 100 + [1] * 40)
    resumed = way(steps)
    count(resumed, [0] * 49 + [1] * 10)
    with pytest.warns(UserWarning, match="In 51 of the last 100"):
        count(resumed, [1])
    assert steps.stats() == {"steps": 140.0, "empty_steps": 40.0}
    count(way(resumed), [1] * 100)  # it has been said


def test_a_checkpoint_without_counts_leaves_them_and_is_not_refused():
    steps = torch.nn.Sequential(StepCounter("Do something."))
    count(steps[0], [1, 0])
    steps.load_state_dict({})  # strict
    assert steps[0].stats() == {"steps": 2.0, "empty_steps": 1.0}


def test_it_has_no_buffer_for_ddp_to_overwrite_and_never_asks_the_device_between_two_looks():
    steps = StepCounter("Do something.")
    assert list(steps.buffers()) == []
    for _ in range(99):
        steps.add(torch.empty((), dtype=torch.bool, device="meta"))  # has no value: reading it raises
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        steps.add(torch.empty((), dtype=torch.bool, device="meta"))


def test_a_mined_loss_of_pml_whose_miner_finds_nothing_says_so():
    """Rows of a class coincide and classes are orthogonal: no positive is farther than 0.2, no negative nearer than
    0.8, so NTXent has nothing to compare."""
    memory = CrossBatchMemory(NTXentLoss(), 4, 8, miner=PairMarginMiner(), adapter="xbn")
    for _ in range(99):
        assert memory(ROWS[TWINS], TWINS) == 0
    with pytest.warns(UserWarning, match=r"In 100 of the last 100 steps.*Try other margins of the miner, or no miner"):
        memory(ROWS[TWINS], TWINS)
    assert memory.stats() == {"steps": 100.0, "empty_steps": 100.0}


def test_ntxent_on_realigned_rows_counts_as_many_steps_as_had_loss_zero():
    generator = torch.Generator().manual_seed(0)
    memory = CrossBatchMemory(NTXentLoss(), 32, 64, miner=PairMarginMiner(), adapter="xbn")
    centres, zeros = torch.randn(8, 32, generator=generator), 0
    for step in range(40):
        labels = torch.randint(8, (8,), generator=generator)
        noise = torch.randn(8, 32, generator=generator) * (0.3 if step % 3 else 3.0)
        zeros += int(memory(centres[labels] + noise, labels) == 0)
    assert 0 < zeros < 40
    assert memory.stats() == {"steps": 40.0, "empty_steps": float(zeros)}


def test_what_a_reducer_gives_that_is_no_tensor_is_a_step_and_not_judged():
    memory = CrossBatchMemory(NTXentLoss(reducer=DoNothingReducer()), 4, 8)
    assert isinstance(memory(ROWS, TWINS), dict)
    assert memory.stats() == {"steps": 1.0, "empty_steps": 0.0}


def test_supcon_counts_steps_without_pairs_and_only_in_training():
    loss = MemorySupConLoss(AdaptiveMemoryBank(8, 4, "identity"))
    loss(ROWS[TWINS], TWINS)  # coinciding positives, far negatives
    loss(0.1 * ROWS + 1, TWINS)  # near negatives, and positives of the step before
    loss.eval()(ROWS[TWINS], TWINS)
    assert loss.stats() == {"steps": 2.0, "empty_steps": 1.0}


def test_supcon_warns_and_names_what_to_do():
    loss = MemorySupConLoss(AdaptiveMemoryBank(8, 4, "identity"))
    for _ in range(99):
        assert loss(ROWS[TWINS], TWINS) == 0
    with pytest.warns(UserWarning, match="Try other margins, or mine=False"):
        loss(ROWS[TWINS], TWINS)


def test_infonce_counts_steps_without_negatives_and_an_empty_bank_alone_is_no_reason_to_warn():
    loss = MemoryInfoNCELoss(AdaptiveMemoryBank(8, 4, "identity"))
    for _ in range(100):  # warnings are errors here
        loss(ROWS, ROWS)
    assert loss.stats() == {"steps": 100.0, "empty_steps": 1.0}


def test_infonce_warns_where_a_bank_holds_only_the_query_s_own_image():
    loss, ids = MemoryInfoNCELoss(AdaptiveMemoryBank(8, 4, "identity")), torch.zeros(4, dtype=torch.int64)
    for _ in range(99):
        assert loss(ROWS, ROWS, ids) == 0
    with pytest.warns(UserWarning, match=r"In 100 of the last 100 steps.*no rows of other images"):
        loss(ROWS, ROWS, ids)
    assert loss.stats() == {"steps": 100.0, "empty_steps": 100.0}
