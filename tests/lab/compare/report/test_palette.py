from adaptive_memory_bank.lab.compare.report.palette import CEILING, COLORS, NO_MEMORY, looks


def test_an_adapter_looks_the_same_among_any_others():
    assert looks(["none", "identity", "auto"], "none")["auto"] == looks(["xbn", "auto"], None)["auto"]
    assert looks(["XBM"], None)["XBM"] == looks(["identity"], None)["identity"]


def test_no_two_variants_share_a_look_while_there_are_enough():
    names = ["none", "XBM", "XBM*", "XBN", "AXBN", "auto", "mine", "yours"]
    found = looks(names, "none")
    assert len(set(found.values())) == len(names)
    assert found["none"].color == NO_MEMORY


def test_more_variants_than_colours_still_get_one():
    names = [f"momentum {index}" for index in range(3 * len(COLORS))]
    assert set(looks(names, None)) == set(names)


def test_a_ceiling_looks_like_no_adapter():
    names = ["none", "identity", "xbn", "ema", "axbn", "auto", "a", "b", "c", "ideal"]
    found = looks(names, "none", ["ideal"])
    assert found["ideal"].color == CEILING
    assert [name for name in names if found[name].marker == found["ideal"].marker] == ["ideal"]
    assert looks(["fresh"], None)["fresh"] == found["ideal"]
