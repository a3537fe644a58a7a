"""Tracking on simulated drift: the true moments walk, the filter sees batches."""

import itertools

import pytest
import torch

from adaptive_memory_bank import EMA, XBN, AutoAXBN, Moments

SPEEDS, BATCHES, ROWS_PER_CLASS = (0.0, 0.01, 0.05, 0.2, 1.0), (16, 64, 256), (1, 4)
WITHIN = 0.6  # share of the spread within a class
STEPS, WARM_UP, DIM = 300, 20, 64


def draw_batch(mean, std, batch_size, rows_per_class, generator):
    labels = torch.arange(batch_size // rows_per_class).repeat_interleave(rows_per_class)
    noise = torch.randn(batch_size, DIM, generator=generator)
    if rows_per_class == 1:
        return Moments.of(mean + std * noise)
    centers = (1 - WITHIN**2) ** 0.5 * torch.randn(len(labels) // rows_per_class, DIM, generator=generator)
    return Moments.of(mean + std * (centers[labels] + WITHIN * noise), labels)


def walk(speed, batch_size, rows_per_class):
    """Yield the truth and a batch drawn from it; mean and log std walk, the latter between two walls."""
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.zeros(DIM), torch.zeros(DIM)
    for _ in range(STEPS):
        std = log_std.exp()
        yield mean, std, draw_batch(mean, std, batch_size, rows_per_class, generator)
        mean = mean + speed * std * torch.randn(DIM, generator=generator)
        log_std = log_std + speed * torch.randn(DIM, generator=generator)
        log_std = torch.where(log_std.abs() > 1, log_std.sign() * (2 - log_std.abs()).clamp(-1, 1), log_std)


def tracking_errors(speed, batch_size, rows_per_class):
    """Mean squared error of (mean, std) for each filter."""
    filters = {"xbn": XBN(), "auto": AutoAXBN(), "ema 0.1": EMA(0.1), "ema 0.5": EMA(0.5), "ema 0.9": EMA(0.9)}
    errors = {name: torch.zeros(2) for name in filters}
    for adapter in filters.values():
        adapter.reset(DIM)
    for step, (mean, std, batch) in enumerate(walk(speed, batch_size, rows_per_class)):
        for name, adapter in filters.items():
            target = adapter.observe(batch)
            if step >= WARM_UP:
                errors[name] += torch.stack([(target.mean - mean).square().mean(), (target.std - std).square().mean()])
    return errors


CONDITIONS = list(itertools.product(SPEEDS, BATCHES, ROWS_PER_CLASS))


@pytest.mark.parametrize(("speed", "batch_size", "rows_per_class"), CONDITIONS)
def test_it_tracks_no_worse_than_xbn_and_near_the_best_fixed_gain(speed, batch_size, rows_per_class):
    errors = tracking_errors(speed, batch_size, rows_per_class)
    assert (errors["auto"] <= 1.02 * errors["xbn"]).all(), errors
    if speed >= 0.05:
        best = torch.stack([errors[f"ema {momentum}"] for momentum in (0.1, 0.5, 0.9)]).amin(0)
        assert (errors["auto"] <= 1.25 * best).all(), errors


@pytest.mark.parametrize("rows_per_class", ROWS_PER_CLASS)
@pytest.mark.parametrize("alike", [0.1, 0.3])
@pytest.mark.parametrize("speed", [0.05, 0.2])
def test_it_listens_to_batches_that_are_more_alike_than_draws(speed, alike, rows_per_class):
    """As behind batch norm: only a share of what independent rows would add to the mean of a batch is there."""
    generator = torch.Generator().manual_seed(0)
    filters = {"auto": AutoAXBN(), **{f"ema {m}": EMA(m) for m in (0.1, 0.3, 0.5, 0.7, 0.9)}}
    errors = dict.fromkeys(filters, 0.0)
    for adapter in filters.values():
        adapter.reset(DIM)
    level = torch.zeros(DIM)
    for step in range(400):
        batch = draw_batch(torch.zeros(DIM), torch.ones(DIM), 16, rows_per_class, generator)
        level = level + speed * alike**0.5 * torch.randn(DIM, generator=generator)
        batch = batch._replace(mean=level + alike**0.5 * batch.mean)
        for name, adapter in filters.items():
            target = adapter.observe(batch)
            errors[name] += (target.mean - level).square().mean().item() if step >= 50 else 0.0
    assert errors["auto"] <= 1.25 * min(error for name, error in errors.items() if name != "auto"), errors
    assert filters["auto"].calibration[0] == pytest.approx(alike, rel=0.4)


def test_it_believes_batches_that_tell_the_truth():
    generator = torch.Generator().manual_seed(0)
    auto = AutoAXBN()
    auto.reset(DIM)
    shares = []
    for _ in range(400):
        auto.observe(draw_batch(torch.zeros(DIM), torch.ones(DIM), 16, 1, generator))
        shares.append(auto.calibration)
    settled = torch.stack(shares[100:])
    assert settled.mean(0).min() > 0.93
    assert settled.max() <= 1


def test_labels_make_it_listen_less_to_a_batch_of_few_classes():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(4)
    aware, blind = AutoAXBN(), AutoAXBN()
    aware.reset(DIM)
    blind.reset(DIM)
    for _ in range(50):
        rows = torch.randn(4, DIM, generator=generator)[labels] + 0.3 * torch.randn(16, DIM, generator=generator)
        aware.observe(Moments.of(rows, labels))
        blind.observe(Moments.of(rows))
    assert aware.gain[0] < 0.3 < 0.6 < blind.gain[0]


def test_the_gain_rises_when_the_encoder_jumps_and_falls_when_it_rests():
    generator = torch.Generator().manual_seed(0)
    auto = AutoAXBN()
    auto.reset(DIM)
    gains = []
    for step in range(120):
        level = 0.0 if step < 60 else 3.0
        auto.observe(Moments.of(level + torch.randn(16, DIM, generator=generator)))
        gains.append(auto.gain[0].item())
    assert gains[59] < 0.2
    assert gains[60] > 0.8
    assert gains[119] < 0.2
