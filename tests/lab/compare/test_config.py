import pytest

from adaptive_memory_bank.lab.compare.config import (
    CompareConfig,
    Setting,
    Variant,
    check_compare,
    settings_of,
    variants_of,
)


def test_adapters_are_variants_and_a_data_set_is_a_setting():
    config = CompareConfig(adapters=["none", "xbn"], data="digits")
    assert variants_of(config) == [Variant("none", {"adapter": "none"}), Variant("xbn", {"adapter": "xbn"})]
    assert settings_of(config, "glyphs") == [Setting("digits", {"data": "digits"})]
    assert settings_of(CompareConfig(), "glyphs")[0].name == "glyphs"


def test_larger_batches_without_memory_follow_the_usual_one():
    names = [variant.name for variant in variants_of(CompareConfig(none_batch_sizes=[128, 256]))]
    assert names == ["none", "none, batch 128", "none, batch 256", "identity", "xbn", "auto"]
    named = CompareConfig(variants=[Variant("XBM", {"adapter": "xbm"})], none_batch_sizes=[128])
    assert [variant.name for variant in variants_of(named)] == ["none, batch 128", "XBM"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": []}, r"`seeds` must hold at least one entry, got \[\]\."),
        ({"adapters": []}, "`adapters` must hold at least one entry"),
        ({"seeds": [1, 2, 1]}, "`seeds` must not repeat entries, got 1 twice"),
        ({"batch_sizes": [8, 8]}, "`batch_sizes` must not repeat entries, got 8 twice"),
        ({"variants": [Variant("a"), Variant("a")]}, "`variants` must not repeat entries, got 'a' twice"),
        ({"none_batch_sizes": [8, 8]}, "`none_batch_sizes` must not repeat entries, got 8 twice"),
        (
            {"variants": [Variant("none, batch 8")], "none_batch_sizes": [8]},
            "`variants` must not repeat entries, got 'none, batch 8' twice",
        ),
        (
            {"none_batch_sizes": [8], "reference": "none, batch 8"},
            "`reference` must be one of none, identity, xbn, auto, got 'none, batch 8'",
        ),
        ({"jobs": 0}, "`jobs` must be a positive integer, got 0"),
        ({"reference": "xbm"}, "`reference` must be one of none, identity, .*, got 'xbm'"),
        ({"settings": [Setting("SOP", published={"XBM": 1.0})]}, "`settings` 'SOP' must speak of none, .*, got 'XBM'"),
        (
            {"variants": [Variant("XBM")], "settings": [Setting("SOP", variants={"xbn": {"lr": 1.0}})]},
            "`settings` 'SOP' must speak of XBM, got 'xbn'",
        ),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        check_compare(CompareConfig(**options))


def test_a_setting_may_speak_of_adapters_that_are_left_out_this_time():
    setting = Setting("SOP", variants={"xbn": {"lr": 1.0}, "fresh": {"lr": 2.0}})
    check_compare(CompareConfig(adapters=["xbn"], settings=[setting]))
