import torch

from adaptive_memory_bank import EMA, XBN, Moments


def test_known_values():
    # momentum 0.9: 1, then 0.9 * 1 + 0.1 * 11 = 2, then 0.9 * 2 + 0.1 * 2 = 2
    ema = EMA(momentum=0.9)
    ema.reset(1)
    levels = [ema.observe(Moments.of(torch.tensor([[x - 1], [x + 1]]))) for x in (1.0, 11.0, 2.0)]
    torch.testing.assert_close(torch.cat([level.mean for level in levels]), torch.tensor([1.0, 2.0, 2.0]))
    torch.testing.assert_close(torch.cat([level.std for level in levels]), torch.full((3,), 2**0.5))


def test_momentum_zero_equals_xbn():
    ema, xbn = EMA(0), XBN()
    ema.reset(4)
    for step in range(20):
        batch = Moments.of(torch.randn(8, 4, generator=torch.Generator().manual_seed(step)))
        assert torch.equal(ema.observe(batch).mean, xbn.observe(batch).mean)
        assert torch.equal(ema.observe(batch).std, xbn.observe(batch).std)
