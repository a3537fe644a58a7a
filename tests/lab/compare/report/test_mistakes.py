import json

from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report.mistakes import read_queries, worst_queries


def test_the_worst_query_comes_first(tmp_path, write_run, write_worst_queries):
    write_worst_queries(write_run(tmp_path, "xbn"), count=4)
    (section,) = read_comparison([tmp_path]).sections
    ((title, queries),) = worst_queries(section).items()
    assert title == "xbn, seed 0"
    assert [query["first_match"] for query in queries] == [5, 4, 3, 2]
    assert [match["correct"] for match in queries[-1]["matches"]][:2] == [False, True]


def test_every_variant_shows_those_of_one_run(tmp_path, write_run, write_worst_queries):
    for adapter in ("ema", "xbn"):
        for seed in (0, 1):
            write_worst_queries(write_run(tmp_path, adapter, seed))
    write_run(tmp_path, "auto")
    (section,) = read_comparison([tmp_path]).sections
    assert list(worst_queries(section)) == ["xbn, seed 0", "ema, seed 0"]


def test_what_is_no_image_gets_no_address(tmp_path, write_run):
    run = write_run(tmp_path, "xbn")
    query = {"class": "a", "image": 'x" onerror="alert(1)', "first_match": "5", "matches": [3, {"score": "high"}]}
    (run / "gallery.json").write_text(json.dumps({"queries": [query, "nonsense"]}))
    (section,) = read_comparison([tmp_path]).sections
    (found,) = read_queries(section.runs[0])
    assert found["source"] == ""
    assert found["first_match"] is None
    assert [(match["correct"], match["score"]) for match in found["matches"]] == [(False, None)]
