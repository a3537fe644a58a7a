import json

import pytest

from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.verdict import verdict


@pytest.fixture
def judge(tmp_path, write_run):
    """Write runs from {adapter: scores by seed} and return the sentence."""

    def sentence(scores, **changes):
        for adapter, values in scores.items():
            for seed, score in enumerate(values):
                write_run(tmp_path, adapter, seed, score=score, **changes)
        (section,) = read_comparison([tmp_path]).sections
        return verdict(section)

    return sentence


def test_a_clear_gain_is_beyond_the_noise(judge):
    said = judge({"identity": [0.70, 0.72, 0.71], "xbn": [0.75, 0.771, 0.762]})
    assert said == (
        "On glyphs, `xbn` (+5.1 points) is better than plain memory (`identity`, Recall@1 71.0): beyond the noise "
        "(paired 95 % intervals over 3 seeds)."
    )


def test_a_clear_loss_is_said_as_plainly(judge):
    said = judge({"identity": [0.70, 0.72, 0.71], "xbn": [0.65, 0.671, 0.662], "ema": [0.70, 0.73, 0.705]})
    assert "`xbn` (-4.9 points) is worse than plain memory" in said
    assert "for 2 comparisons" in said
    assert said.endswith("Within the noise: `ema`.")


def test_two_seeds_say_very_little_even_where_they_agree(judge):
    said = judge({"identity": [0.70, 0.72], "xbn": [0.75, 0.771], "auto": [0.78, 0.79]})
    assert said == (
        "On glyphs, 2 seeds cannot tell an adapter from plain memory (`identity`, Recall@1 71.0) beyond the noise: the "
        "largest mean difference is that of `auto`, +7.5 points (+8.0 and +7.0). Add seeds."
    )


def test_one_seed_measures_no_noise(judge):
    said = judge({"identity": [0.70], "xbn": [0.90]})
    assert "1 seed cannot tell an adapter from plain memory" in said
    assert said.endswith("`xbn`, +20.0 points. Add seeds.")


def test_seeds_that_agree_to_the_digit_have_measured_no_noise(judge):
    said = judge({"identity": [0.5, 0.5, 0.5], "xbn": [0.75, 0.75, 0.75]})
    assert "no adapter differs" in said
    assert said.endswith("`xbn`, +25.0 points with each of the 3 seeds. Add seeds.")


def test_an_interval_around_zero_is_within_the_noise(judge):
    said = judge({"identity": [0.70, 0.72, 0.71], "xbn": [0.74, 0.72, 0.70]})
    assert "no adapter differs from plain memory (`identity`, Recall@1 71.0) beyond the noise of 3 seeds" in said
    assert "ahead with 1 of 3 seeds" in said


def test_where_plain_memory_is_highest_no_adapter_is_called_so(judge):
    scores = {"identity": [0.70, 0.72, 0.71], "xbn": [0.69, 0.71, 0.712], "auto": [0.70, 0.71, 0.709]}
    # auto: 0, -1.0, -0.1; deviation 0.551; t(1 - 0.05 / 4, 2) = 6.205; 6.205 * 0.551 / sqrt(3) = 1.97
    assert judge(scores) == (
        "On glyphs, no adapter differs from plain memory (`identity`, Recall@1 71.0) beyond the noise of 3 seeds: both "
        "are below it on average, `auto` least, -0.4 points (95 % interval -2.3 to +1.6 points; ahead with 0 of 3 "
        "seeds)."
    )


def test_adapters_that_share_the_lead_are_both_named(judge):
    said = judge({"identity": [0.70, 0.72], "xbn": [0.71, 0.74], "auto": [0.72, 0.73], "ema": [0.7, 0.7]})
    assert said.endswith("the largest mean difference is that of `xbn` and `auto`, +1.5 points. Add seeds.")


def test_an_adapter_that_lacks_seeds_is_not_called_noise(tmp_path, write_run):
    for adapter, scores in {"identity": [0.5, 0.52, 0.51], "xbn": [0.6, 0.621, 0.611], "ema": [0.9]}.items():
        for seed, score in enumerate(scores):
            write_run(tmp_path, adapter, seed, score=score)
    (section,) = read_comparison([tmp_path]).sections
    assert verdict(section).endswith(
        "(paired 95 % intervals over 3 seeds, for 2 comparisons). Too few seeds to tell: `ema`."
    )


def test_another_reference_is_not_called_plain_memory(tmp_path, write_run):
    runs = {write_run(tmp_path, adapter, score=score).name: adapter for adapter, score in (("xbn", 0.5), ("auto", 0.6))}
    places = {name: {"variant": adapter, "seed": 0} for name, adapter in runs.items()}
    (tmp_path / "compare.json").write_text(json.dumps({"reference": "xbn", "runs": places}))
    (section,) = read_comparison([tmp_path]).sections
    assert "1 seed cannot tell an adapter from `xbn` (Recall@1 50.0) beyond the noise" in verdict(section)


def test_without_an_adapter_there_is_none_to_judge(judge):
    assert judge({"none": [0.3], "identity": [0.5]}) == (
        "On glyphs: no adapter stands next to plain memory (`identity`, Recall@1 50.0), so there is none to judge."
    )


def test_equal_scores_are_called_equal(judge):
    assert "every adapter scores exactly as plain memory" in judge({"identity": [0.5, 0.6], "xbn": [0.5, 0.6]})


def test_several_adapters_are_listed_best_first(judge):
    said = judge({"identity": [0.50, 0.52, 0.51], "xbn": [0.60, 0.621, 0.611], "auto": [0.70, 0.721, 0.711]})
    assert "`auto` (+20.1 points) and `xbn` (+10.1 points) are better" in said


def test_no_memory_is_not_an_adapter(judge):
    said = judge({"none": [0.30, 0.321, 0.311], "identity": [0.50, 0.52, 0.51], "xbn": [0.50, 0.53, 0.51]})
    assert "no adapter differs" in said
    assert "`none`" not in said


def test_without_plain_memory_nothing_is_claimed(judge):
    assert "no run with plain memory" in judge({"none": [0.3], "xbn": [0.5]})


def test_without_common_seeds_nothing_is_claimed(tmp_path, write_run):
    write_run(tmp_path, "identity", 0)
    write_run(tmp_path, "xbn", 1)
    (section,) = read_comparison([tmp_path]).sections
    assert "no adapter shares a seed" in verdict(section)


def test_a_grid_is_averaged_and_says_so(tmp_path, write_run):
    for batch in (16, 64):
        for seed in (0, 1):
            write_run(tmp_path, "identity", seed, batch_size=batch)
            write_run(tmp_path, "xbn", seed, batch_size=batch)
    (section,) = read_comparison([tmp_path]).sections
    assert verdict(section).startswith("On glyphs, averaged over 2 conditions, ")
