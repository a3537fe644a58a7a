import json

from adaptive_memory_bank.lab.compare.comparison import read_comparison
from adaptive_memory_bank.lab.compare.report.mistakes import galleries, read_gallery


def test_the_worst_query_comes_first(tmp_path, write_run, write_gallery):
    write_gallery(write_run(tmp_path, "xbn"), count=4)
    (section,) = read_comparison([tmp_path]).sections
    (gallery,) = galleries(section)
    assert gallery.title == "xbn, seed 0"
    assert [query.first_match for query in gallery.queries] == [5, 4, 3, 2]
    assert [match.correct for match in gallery.queries[-1].matches][:2] == [False, True]


def test_one_gallery_for_each_variant(tmp_path, write_run, write_gallery):
    for adapter in ("ema", "xbn"):
        for seed in (0, 1):
            write_gallery(write_run(tmp_path, adapter, seed))
    write_run(tmp_path, "auto")
    (section,) = read_comparison([tmp_path]).sections
    assert [gallery.title for gallery in galleries(section)] == ["xbn, seed 0", "ema, seed 0"]


def test_what_is_no_image_gets_no_address(tmp_path, write_run):
    run = write_run(tmp_path, "xbn")
    query = {"class": "a", "image": 'x" onerror="alert(1)', "first_match": "5", "matches": [3, {"score": "high"}]}
    (run / "gallery.json").write_text(json.dumps({"queries": [query, "nonsense"]}))
    (section,) = read_comparison([tmp_path]).sections
    (found,) = read_gallery(section.runs[0])
    assert found.picture.source == ""
    assert found.first_match is None
    assert [(match.correct, match.score) for match in found.matches] == [(False, None)]
