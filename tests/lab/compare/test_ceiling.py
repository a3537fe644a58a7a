"""Does staleness limit this training? The sentence that a user most wants to read, in every case."""

import pytest

from adaptive_memory_bank.lab.compare.ceiling import freshness_sentence, shares_of_the_way
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.verdict import verdict

PLAIN = [0.70, 0.72, 0.71]


@pytest.fixture
def section(tmp_path, write_run):
    """Write runs from {adapter: scores by seed} (None: the run failed) and read them."""

    def read(scores, **changes):
        for adapter, values in scores.items():
            for seed, score in enumerate(values):
                status = "complete" if score is not None else "failed"
                write_run(tmp_path, adapter, seed, score=score or 0.5, status=status, **changes)
        (found,) = read_comparison([tmp_path]).sections
        return found

    return read


def test_a_fresh_memory_that_is_better_shows_that_staleness_limits(section):
    found = section(
        {"identity": PLAIN, "auto": [0.73, 0.75, 0.74], "xbn": [0.71, 0.73, 0.72], "fresh": [0.74, 0.761, 0.749]}
    )
    # fresh - plain: 4.0, 4.1, 3.9; deviation 0.1; t(0.975, 2) = 4.303; 4.303 * 0.1 / sqrt(3) = 0.25
    assert freshness_sentence(found) == (
        "Staleness limits this training: a memory kept fresh (`fresh`) is better than plain memory, +4.0 points, "
        "beyond the noise (95 % interval +3.8 to +4.2 points, 3 seeds). Of that way `auto` goes 75 % and `xbn` "
        "goes 25 %."
    )
    assert shares_of_the_way(found) == pytest.approx({"identity": 0, "xbn": 0.25, "auto": 0.75, "fresh": 1})
    assert "`fresh`" not in verdict(found).partition("Staleness")[0]


def test_a_difference_within_the_noise_says_that_staleness_does_not_limit(section):
    found = section({"identity": PLAIN, "xbn": PLAIN, "fresh": [0.71, 0.715, 0.71]})
    # 1.0, -0.5, 0.0: mean 0.17, deviation 0.764, half of the interval 1.90
    assert freshness_sentence(found) == (
        "Staleness is not what limits this training, as far as 3 seeds can tell: a memory kept fresh (`fresh`) differs "
        "from plain memory by +0.2 points, within the noise (95 % interval -1.7 to +2.1 points)."
    )
    assert shares_of_the_way(found) == {}


def test_a_fresh_memory_that_is_worse_says_so(section):
    found = section({"identity": PLAIN, "fresh": [0.66, 0.681, 0.669]})
    assert freshness_sentence(found) == (
        "Staleness is not what limits this training: a memory kept fresh (`fresh`) is worse than plain memory, -4.0 "
        "points, beyond the noise (95 % interval -4.2 to -3.8 points, 3 seeds)."
    )
    assert shares_of_the_way(found) == {}


@pytest.mark.parametrize(
    ("fresh", "seeds", "by"),
    [
        ([0.75], "1 seed", "+5.0 points"),
        ([0.75, None, 0.70], "2 seeds", "+2.0 points (+5.0 and -1.0)"),
        ([0.75, 0.77, 0.76], "3 seeds with the very same difference", "+5.0 points"),
    ],
)
def test_too_few_seeds_cannot_tell(section, fresh, seeds, by):
    found = section({"identity": PLAIN, "fresh": fresh})
    assert freshness_sentence(found) == (
        f"Whether staleness limits this training, {seeds} cannot tell: a memory kept fresh (`fresh`) differs from "
        f"plain memory by {by}."
    )
    assert shares_of_the_way(found) == {}


def test_the_same_scores_leave_nothing_for_freshness_to_gain(section):
    assert freshness_sentence(section({"identity": PLAIN, "fresh": PLAIN})) == (
        "Staleness is not what limits this training: a memory kept fresh (`fresh`) scores exactly as plain memory does "
        "with each of the 3 seeds."
    )


def test_without_a_complete_fresh_run_nothing_is_known(section):
    assert freshness_sentence(section({"identity": PLAIN, "fresh": [None, None]})) == (
        "What staleness costs is not known: no complete run of `fresh` shares a seed with `identity` (plain memory)."
    )


def test_without_a_fresh_or_a_plain_memory_nothing_is_said(section):
    assert freshness_sentence(section({"xbn": PLAIN, "fresh": PLAIN})) == ""
    assert freshness_sentence(section({"none": PLAIN}, batch_size=32)) == ""


def test_over_a_grid_the_conditions_that_differ_from_the_average_are_named(tmp_path, write_run):
    gains = {16: (0.08, 0.081, 0.079), 64: (0.01, -0.01, 0.02)}
    for batch, values in gains.items():
        for seed, gain in enumerate(values):
            write_run(tmp_path, "identity", seed, score=0.6, batch_size=batch)
            write_run(tmp_path, "fresh", seed, score=0.6 + gain, batch_size=batch)
    (found,) = read_comparison([tmp_path]).sections
    said = freshness_sentence(found)
    assert said.startswith("Staleness limits this training")
    assert said.endswith("That a fresh memory is better is beyond the noise at batch 16, memory 512 rows only.")
