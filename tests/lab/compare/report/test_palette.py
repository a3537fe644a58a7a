from adaptive_memory_bank.lab.compare.report.palette import STYLES, styles_of
from adaptive_memory_bank.lab.runs.variants import FRESH, NONE


def test_an_adapter_looks_the_same_among_any_others():
    assert styles_of(["none", "identity", "auto"], "none")["auto"] == styles_of(["xbn", "auto"], None)["auto"]
    assert styles_of(["XBM"], None)["XBM"] == styles_of(["identity"], None)["identity"]


def test_no_two_variants_share_a_look_while_there_are_enough():
    names = ["none", "XBM", "XBM*", "XBN", "AXBN", "auto", "mine", "yours"]
    found = styles_of(names, "none")
    assert len(set(found.values())) == len(names)
    assert found["none"].color == NONE.color


def test_more_variants_than_colours_still_get_one():
    names = [f"momentum {index}" for index in range(3 * len(STYLES))]
    assert set(styles_of(names, None)) == set(names)


def test_a_ceiling_looks_like_no_adapter():
    names = ["none", "identity", "xbn", "ema", "axbn", "auto", "a", "b", "c", "ideal"]
    found = styles_of(names, "none", ["ideal"])
    assert found["ideal"].color == FRESH.color
    assert [name for name in names if found[name].marker == found["ideal"].marker] == ["ideal"]
    assert styles_of(["fresh"], None)["fresh"] == found["ideal"]
