import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_memory_bank import Moments
from adaptive_memory_bank import moments as moments_module
from reference import moments_in_classes


def test_known_values_of_independent_rows():
    # rows 0, 2, 4, 6: mean 3, squared deviations 9 + 1 + 1 + 9 = 20, variance 20/3
    moments = Moments.of(torch.tensor([[0.0], [2.0], [4.0], [6.0]], dtype=torch.float64))
    assert moments.count == 4
    torch.testing.assert_close(moments.mean.item(), 3.0)
    torch.testing.assert_close(moments.std.item(), (20 / 3) ** 0.5)
    torch.testing.assert_close(moments.population_std.item(), (20 / 3) ** 0.5)
    torch.testing.assert_close(moments.mean_variance.item(), 20 / 3 / 4)
    torch.testing.assert_close(moments.std_variance.item(), 20 / 3 / 6)


def test_known_values_of_rows_in_classes():
    # classes {0, 2} and {4, 6}: s_w^2 = (1 + 1 + 1 + 1) / 2 = 2, class means 1 and 5 with variance 8,
    # s_b^2 = 8 - 2/2 = 7, population variance 9, mean varies by 8/2, std by (2*64/1.5 + 2*(2/2)^2/2.5) / (4*9)
    rows = torch.tensor([[0.0], [2.0], [4.0], [6.0]], dtype=torch.float64)
    moments = Moments.of(rows, torch.tensor([7, 7, -1, -1]))
    torch.testing.assert_close(moments.std.item(), (20 / 3) ** 0.5)
    torch.testing.assert_close(moments.population_std.item(), 3.0)
    torch.testing.assert_close(moments.mean_variance.item(), 4.0)
    torch.testing.assert_close(moments.std_variance.item(), (128 / 1.5 + 0.8) / 36)


@pytest.mark.parametrize("classes", ["_classes", "_classes_by_sorting"], ids=["on a CPU", "elsewhere"])
@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=3, max_size=30), seed=st.integers(0, 2**31))
def test_unequal_classes_equal_a_loop(classes, labels, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments_module, "_classes", getattr(moments_module, classes))
        check_unequal_classes(labels, seed)


def check_unequal_classes(labels, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64)
    moments = Moments.of(rows, torch.tensor(labels))
    if not 1 < len(set(labels)) < len(labels):
        assert torch.equal(moments.population_std, moments.std)
        return
    for name, value in moments_in_classes(rows.numpy(), torch.tensor(labels).numpy()).items():
        torch.testing.assert_close(getattr(moments, name), torch.from_numpy(value))


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [5, 5, 5, 5]], ids=["all apart", "all one"])
def test_classes_that_show_nothing_leave_the_plain_moments(labels):
    rows = torch.randn(4, 3)
    for found, plain in zip(Moments.of(rows, torch.tensor(labels)), Moments.of(rows), strict=True):
        torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("classes", [4, 16])
def test_sampling_variances_are_those_of_repeated_samples(classes):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(4)
    found = []
    for _ in range(2000):
        centers = 0.8 * torch.randn(classes, 8, generator=generator)
        found.append(Moments.of(centers[labels] + 0.6 * torch.randn(len(labels), 8, generator=generator), labels))
    means = torch.stack([moments.mean for moments in found])
    spreads = torch.stack([moments.population_std for moments in found])
    claimed = torch.stack([moments.mean_variance for moments in found]).mean()
    torch.testing.assert_close(claimed, means.var(0).mean(), rtol=0.05, atol=0)
    # The delta method is an approximation that errs to the safe side when classes are few.
    claimed = torch.stack([moments.std_variance for moments in found]).mean()
    assert 0.95 < claimed / spreads.var(0).mean() < 1.15
    assert abs(spreads.square().mean() - 1) < 0.03  # 0.8^2 + 0.6^2: unbiased, where the plain variance is not
    plain = torch.stack([moments.std for moments in found]).square().mean()
    if classes == 4:
        assert plain < 0.9


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_rows_have_no_spread_and_no_nan(count):
    moments = Moments.of(torch.ones(count, 3), torch.zeros(count, dtype=torch.int64))
    assert moments.count == count
    assert torch.equal(moments.mean, torch.full((3,), float(count)))
    assert all(torch.equal(value, torch.zeros(3)) for value in moments[3:])


def test_constant_rows_have_no_spread_and_no_nan():
    moments = Moments.of(torch.full((6, 2), 3.0), torch.tensor([0, 0, 1, 1, 2, 2]))
    for value in (moments.std, moments.population_std, moments.mean_variance, moments.std_variance):
        assert torch.equal(value, torch.zeros(2))
