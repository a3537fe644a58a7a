import random

import pytest
from scipy import stats

from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.statistics import Spread, half_width, paired_differences


def section_of(folder):
    (section,) = read_comparison([folder]).sections
    return section


def test_one_value_has_no_deviation():
    assert Spread.of([2.0]) == Spread(2.0, None, 1)
    assert Spread.of([]) is None


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_the_interval_is_that_of_scipys_paired_t_test(count):
    draw = random.Random(count)
    ours, theirs = ([draw.gauss(level, 0.1) for _ in range(count)] for level in (0.6, 0.5))
    reference = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    assert half_width(differences) == pytest.approx((reference.high - reference.low) / 2)


def test_more_comparisons_widen_the_interval_as_bonferroni_asks():
    differences = [0.1, 0.2, 0.4]
    expected = stats.ttest_1samp(differences, 0).confidence_interval(1 - 0.05 / 4)
    assert half_width(differences, comparisons=4) == pytest.approx((expected.high - expected.low) / 2)


@pytest.mark.parametrize("differences", [[0.1], [0.1, 0.1], [0.0, 0.0, 0.0], []])
def test_seeds_that_measured_no_noise_give_no_interval(differences):
    assert half_width(differences) is None


def test_differences_are_paired_by_seed(tmp_path, write_run):
    # The seeds are far apart, the adapters always 0.02 +- 0.001: unpaired noise would drown it.
    for seed, level, gain in [(0, 0.5, 0.019), (1, 0.7, 0.020), (2, 0.9, 0.021)]:
        write_run(tmp_path, "identity", seed=seed, score=level)
        write_run(tmp_path, "xbn", seed=seed, score=level + gain)
    (difference,) = paired_differences(section_of(tmp_path))
    assert difference.mean == pytest.approx(0.02)
    assert difference.is_beyond_noise
    assert difference.seeds == 3


def test_only_seeds_that_both_have_count(tmp_path, write_run):
    for seed in (0, 1, 2):
        write_run(tmp_path, "identity", seed=seed, score=0.5, status="failed" if seed == 1 else "complete")
    for seed in (1, 2, 3):
        write_run(tmp_path, "xbn", seed=seed, score=0.6)
    (difference,) = paired_differences(section_of(tmp_path))
    assert difference.seeds == 1
    assert difference.half_width is None
    assert not difference.is_beyond_noise


def test_over_a_grid_the_seeds_are_the_repetitions_not_the_conditions(tmp_path, write_run):
    gains = {(0, 16): 0.04, (0, 64): 0.00, (1, 16): 0.06, (1, 64): 0.02}
    for (seed, batch), gain in gains.items():
        write_run(tmp_path, "identity", seed=seed, batch_size=batch, score=0.5)
        write_run(tmp_path, "xbn", seed=seed, batch_size=batch, score=0.5 + gain)
    section = section_of(tmp_path)
    (difference,) = paired_differences(section)
    assert difference.seeds == 2  # not 4
    assert difference.mean == pytest.approx(0.03)
    assert difference.half_width == pytest.approx(half_width([0.02, 0.04]))
    (small,) = paired_differences(section, at=section.conditions[0])
    assert small.mean == pytest.approx(0.05)


def test_a_seed_that_lacks_a_condition_does_not_count_over_the_grid(tmp_path, write_run):
    for seed, batch in [(0, 16), (0, 64), (1, 16)]:
        write_run(tmp_path, "identity", seed=seed, batch_size=batch, score=0.5)
        write_run(tmp_path, "xbn", seed=seed, batch_size=batch, score=0.6)
    (difference,) = paired_differences(section_of(tmp_path))
    assert difference.seeds == 1


def test_noise_alone_is_seldom_called_an_effect():
    # 5 variants without any effect, 3 seeds: at least one false alarm in at most 5 % of the comparisons.
    draw, alarms, trials = random.Random(0), 0, 1000
    for _ in range(trials):
        variants = [[draw.gauss(0, 1) for _ in range(3)] for _ in range(5)]
        widths = [half_width(differences, comparisons=5) for differences in variants]
        alarms += any(abs(sum(d) / 3) > w for d, w in zip(variants, widths, strict=True) if w is not None)
    assert alarms / trials < 0.07
