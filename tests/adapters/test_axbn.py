import pytest
import torch

from adaptive_memory_bank import AXBN, EMA, XBN, Moments


def batch(seed, rows=8):
    return Moments.of(torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)))


def test_known_values():
    # q=1, r=2, p0=1, b=2, gain at every step:
    # p'=2, K=2/3, p=2/3, mu=0+2/3*3=2;  p'=5/3, K=5/3/(8/3)=5/8, mu=2+5/8*8=7
    axbn = AXBN(q=1, r=2, p0=1, gain_interval=1)
    axbn.reset(1)
    means = [axbn.observe(Moments.of(torch.tensor([[x], [x]]))).mean.item() for x in (0.0, 3.0, 10.0)]
    torch.testing.assert_close(means, [0.0, 2.0, 7.0])


def test_the_gain_is_renewed_at_the_second_observation_and_then_every_interval():
    axbn, gains = AXBN(q=1, r=10, gain_interval=3), []
    axbn.reset(4)
    for step in range(9):
        axbn.observe(batch(step))
        gains.append(axbn.gain.item())
    changed = [i for i in range(1, 9) if gains[i] != gains[i - 1]]
    assert gains[0] == 1.0  # the first batch is taken whole
    assert changed == [1, 4, 7]


def test_the_noise_is_that_of_the_batch_at_which_the_gain_is_renewed():
    axbn = AXBN(q=1, r=2, p0=1)
    axbn.reset(4)
    axbn.observe(batch(0, rows=8))
    axbn.observe(batch(1, rows=4))  # p' = 2, K = 2 / (2 + 2/4)
    axbn.observe(batch(2, rows=16))
    torch.testing.assert_close(axbn.gain.item(), 0.8)


@pytest.mark.parametrize("q", [0.0, 1.0])
def test_without_noise_it_equals_xbn(q):
    axbn, xbn = AXBN(q=q, r=0, gain_interval=2), XBN()
    axbn.reset(4)
    for step in range(10):
        target, expected = axbn.observe(batch(step)), xbn.observe(batch(step))
        assert torch.equal(target.mean, expected.mean)
        assert torch.equal(target.std, expected.std)


def test_a_constant_gain_equals_ema():
    axbn = AXBN(q=1, r=8, p0=1, gain_interval=10**9)  # b=8: K = 2 / (2 + 1) for ever
    ema = EMA(momentum=1 / 3)
    axbn.reset(4)
    ema.reset(4)
    for step in range(50):
        target, expected = axbn.observe(batch(step)), ema.observe(batch(step))
        torch.testing.assert_close(target.mean, expected.mean)
        torch.testing.assert_close(target.std, expected.std)


def test_with_the_paper_s_noises_it_is_xbn_in_all_but_name():
    axbn = AXBN()
    axbn.reset(4)
    for step in range(3):
        axbn.observe(batch(step, rows=64))
    assert axbn.gain > 0.999
