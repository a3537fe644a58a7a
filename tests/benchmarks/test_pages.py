"""The benchmarks' pages say what the files in `results/` say."""

import json

import evidence_page
import markers
import measure
import pages
import pytest


@pytest.mark.parametrize("path", pages.PAGES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_page_and_files_agree(path):
    text = path.read_text()
    assert markers.filled(text, pages.PAGES[path]) == text, "run `python benchmarks/pages.py`"


COMPARISONS = [path.stem for path in sorted(measure.RESULTS.glob("*.json")) if "tables" in measure.read(path.stem)]


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_page_of_a_comparison_is_that_of_its_json(name):
    page = measure.RESULTS / f"{name}.md"
    assert evidence_page.render(measure.read(name)) == page.read_text(encoding="utf-8")


def test_a_changed_ratio_would_be_noticed(tmp_path, monkeypatch):
    found = pages.read("retrieval_eval")
    found["contestants"]["ours"]["min_seconds"] = 1234.5
    (tmp_path / "retrieval_eval.json").write_text(json.dumps(found))
    monkeypatch.setattr(pages, "read", lambda name: json.loads((tmp_path / f"{name}.json").read_text()))
    path = pages.HERE / "README.md"
    text = markers.filled(path.read_text(), {"retrieval_eval": pages.PAGES[path]["retrieval_eval"]})
    assert "1234.50" in text
    assert text != path.read_text()


def test_what_was_not_run_says_so():
    assert pages._measured(None, "SOP", "XBN") == "not run"
    table = {"setting": "SOP", "metric": "val/recall@1", "rows": []}
    assert pages._measured({"tables": [table]}, "SOP", "XBN") == "not run"


def test_a_repeated_table_stands_beside_the_published_one():
    values = {"last val/recall@1": {"mean": 0.8062, "std": 0.001, "seeds": 3}}
    table = {"setting": "SOP", "metric": "val/recall@1", "rows": [{"variant": "XBN", "values": values}]}
    assert pages._measured({"tables": [table]}, "SOP", "XBN") == "80.6 ± 0.1"


def test_markers_must_be_there_once():
    with pytest.raises(ValueError, match="must hold `<!-- x -->` and `<!-- /x -->` once"):
        markers.filled("<!-- x -->", {"x": str})
    assert markers.filled("a <!-- x -->old<!-- /x -->", {"x": lambda: "new"}) == "a <!-- x -->\nnew\n<!-- /x -->"


def test_findings_are_sentences_for_every_condition_of_the_fair_comparisons(monkeypatch):
    difference = {"mean": 0.03, "low": 0.01, "high": 0.05, "seeds": 3, "comparisons": 1, "beyond_noise": True}
    rows = [
        {"variant": "identity", "seeds": 5, "differences": {"plain": {}}, "way": None},
        {"variant": "auto", "seeds": 3, "differences": {"plain": {"chosen": difference}}, "way": None},
    ]
    here = {"setting": "Omniglot", "condition": "batch 64", "picks": ["chosen", "last"], "rows": rows}
    here |= {"references": {"plain": "identity"}, "without_memory": [], "ceilings": []}
    found = {"name": "omniglot", "complete": 2, "planned": 4, "seeds": [0], "tables": [here]}
    monkeypatch.setattr(pages, "read", {"omniglot": found}.get)
    assert pages.findings() == (
        "[Omniglot: batch 64](results/omniglot.md), 3 to 5 seeds:\n\n"
        "- Adapters against plain memory: `auto` +3.0 [+1.0, +5.0]; `auto` better beyond the noise."
    )
    monkeypatch.setattr(pages, "read", {}.get)
    assert pages.findings() == "None of them is here yet."
