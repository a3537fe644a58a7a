"""README's results are those of the committed files: a line for every condition that can be judged."""

import re
from pathlib import Path

import headline
import headline_picture
import markers
import measure
import pytest

README = Path(__file__).parents[2] / "README.md"
FIRST_STEP = measure.read(headline.FIRST_STEP)


def difference(mean, beyond=False):
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01, "seeds": 3, "comparisons": 2, "beyond_noise": beyond}


def row(name, score, *, pick="chosen", metric="val/recall@1", to_plain=None, to_none=None, way=None):
    known = {"plain": to_plain, "none": to_none}
    differences = {role: {} if found is None else {pick: found} for role, found in known.items()}
    values = {f"{pick} {metric}": {"mean": score, "std": 0.01, "seeds": 3}}
    return {"variant": name, "seeds": 3, "values": values, "differences": differences, "way": way}


def table(rows, *, setting="Omniglot", pick="chosen", metric="val/recall@1", frozen=None):
    return {
        "setting": setting, "condition": "batch 64, memory 50 %, 10 epochs", "metric": metric, "picks": [pick],
        "references": {"plain": "identity", "none": "none"}, "without_memory": ["none"], "ceilings": ["fresh"],
        "frozen": frozen or {}, "rows": rows,
    }  # fmt: skip


def content(name, *tables):
    known = {"complete": 4, "planned": 6, "seeds": [0, 1, 2], "epochs": [10]}
    return {"name": name, "title": name.capitalize(), **known, "tables": list(tables)}


ROWS = [
    row("none", 0.80, to_plain=difference(0.01)),
    row("identity", 0.79, to_none=difference(-0.01)),
    row("auto", 0.82, to_plain=difference(0.03, beyond=True), to_none=difference(0.02), way=0.75),
    row("fresh", 0.83, to_plain=difference(0.04, beyond=True), to_none=difference(0.03), way=1.0),
]


def lines(text):
    """The rows of all tables, without their heads."""
    return [line.replace(headline.NO_BREAK, " ") for line in text.splitlines() if line.startswith("| [")]


@pytest.fixture
def files(monkeypatch):
    """The comparisons that are there, by name."""
    found = {headline.FIRST_STEP: FIRST_STEP}
    monkeypatch.setattr(headline, "read", found.get)
    return found


def test_a_number_changed_by_hand_would_be_noticed(files):
    files["omniglot"] = content("omniglot", table(ROWS))
    text = markers.filled(README.read_text(), headline.PARTS)
    changed = text.replace("| 82.0 |", "| 85.0 |")
    assert markers.filled(changed, headline.PARTS) == text != changed


def test_a_condition_takes_a_line_with_scores_intervals_and_ceiling(files):
    files["omniglot"] = content("omniglot", table(ROWS))
    assert lines(headline.headline()) == [
        "| [Omniglot](benchmarks/results/omniglot.md), batch 64, memory 50 %, 10 epochs, 3 seeds "
        "| 80.0 | 79.0 | 82.0 | 83.0 | **+3.0 ± 1.0** | +2.0 ± 1.0 | **+4.0 ± 1.0** |"
    ]


def test_the_last_epoch_stands_below_the_chosen_one_and_early_epochs_do_not(files):
    both = row("auto", 0.82, to_plain=difference(0.03))
    both["values"] |= {"last val/recall@1": {"mean": 0.84, "std": 0.01, "seeds": 3}}
    both["differences"]["plain"] |= {"last": difference(0.05, beyond=True), "epoch 5": difference(0.07)}
    files["omniglot"] = content("omniglot", {**table([both]), "picks": ["chosen", "last", "epoch 5"]})
    (line,) = lines(headline.headline())
    assert line.endswith(", 3 seeds | 82.0<br>84.0 | +3.0 ± 1.0<br>**+5.0 ± 1.0** |")


def test_what_is_not_complete_says_so(files):
    files["omniglot"] = content("omniglot", table(ROWS))
    assert "Omniglot: 4 of 6 runs so far." in headline.headline()
    files["omniglot"] |= {"complete": 6}
    assert "so far" not in headline.headline()


def test_the_first_comparison_is_told_as_what_it_was(files):
    files["omniglot"] = content("omniglot", table(ROWS))
    _, picture, *_, told = headline.headline().splitlines()
    assert picture.startswith('<img src="benchmarks/results/headline.svg"')
    rows = [row for here in FIRST_STEP["tables"] for row in here["rows"] if row["variant"] == "auto"]
    gains = [f"{100 * row['differences']['plain']['chosen']['mean']:+.1f}" for row in rows]
    assert f"`auto` {' and '.join(gains)} points against plain memory" in told
    assert "(benchmarks/results/omniglot_first_step.md)" in told


def test_a_condition_of_too_few_seeds_waits_on_its_own_page(files):
    too_few, without_the_adapter = table([{**each, "seeds": 2} for each in ROWS]), table(ROWS[:2])
    files["omniglot"] = content("omniglot", too_few, without_the_adapter)
    assert headline.headline() == ""
    files["omniglot"] = content("omniglot", too_few, table(ROWS, setting="judged"), without_the_adapter)
    assert [line.split("]")[0] for line in lines(headline.headline())] == ["| [judged"]


def test_a_score_of_fewer_seeds_than_its_line_says_so(files):
    files["omniglot"] = content("omniglot", table([*ROWS[:3], {**row("fresh", 0.83), "seeds": 1}]))
    assert "| 82.0 | 83.0<br>(1 seed) |" in headline.headline()


def test_birds_come_first_characters_second_moco_third(files):
    known = {"pick": "last", "metric": "val/knn"}
    moco = [row(name, 0.5, **known) for name in ("identity", "auto")]
    files["cifar_moco"] = content("cifar_moco", table(moco, setting="CIFAR-10", **known))
    files["omniglot"] = content("omniglot", table(ROWS), table(ROWS))
    files["cub200"] = content("cub200", table(ROWS, setting="CUB", frozen={"recall@1": 0.291}))
    birds, *characters, last = lines(headline.headline())
    assert birds.startswith("| [CUB]")
    assert "Frozen features of the backbone score 29.1 on CUB." in headline.headline()
    assert [line.split("]")[0] for line in characters] == ["| [Omniglot"] * 2
    assert last.startswith("| [CIFAR-10]")
    assert last.endswith("3 seeds | 50.0 | 50.0 |")
    heads = [line for line in headline.headline().splitlines() if line.startswith(("| Recall@1 % |", "| kNN % |"))]
    assert heads[1:] == ["| kNN % | `identity` | `auto` |"]  # a metric has a table, without columns that nobody fills


def test_the_picture_shows_every_condition_of_the_table_and_repeats_to_the_byte(files, tmp_path):
    known = {"pick": "last", "metric": "val/knn"}
    moco = [row("identity", 0.5, **known), row("auto", 0.5, to_plain=difference(0.01), **known)]
    not_yet = table([{**each, "seeds": 2} for each in ROWS], setting="of two seeds")
    files["omniglot"] = content("omniglot", table(ROWS), not_yet)
    files["cifar_moco"] = content("cifar_moco", table(moco, setting="CIFAR-10", **known))
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        headline.draw(folder)
        pictures.append((folder / headline.PICTURE).read_text())
    assert pictures[0] == pictures[1]
    words = re.findall(r">([^<>]+)</", pictures[0])
    where = "batch 64, memory 50 %, 10 epochs"
    panels = ["auto: points above plain memory", "auto: points above no memory", "fresh: points above plain memory"]
    assert {*panels, "Omniglot", "CIFAR-10", where} <= set(words)
    assert "of two seeds" not in words


def drawn(*gains):
    """What is drawn of the gains of `auto` over plain memory, one condition after the other."""
    tables = [table([row("auto", 0.8, to_plain=gain)]) for gain in gains]
    axis = headline_picture._figure(tables, [("auto", "plain")] * 2).axes[0]
    return [(line.get_marker(), list(line.get_xdata())) for line in axis.lines if line.get_color() != "black"]


def test_a_mean_has_its_interval_and_an_arrow_where_that_leaves_the_panel():
    wide = {**difference(0.05), "low": -0.5, "high": 0.1}  # the panel: 6 points around means from 1 to 5, and zero
    first, second, third, fourth, fifth = drawn(difference(0.01), wide)
    assert first == ("None", pytest.approx([0, 2]))
    assert second == ("*", pytest.approx([1]))
    assert third == ("None", pytest.approx([-6, 10]))
    assert fourth == ("<", [-6])
    assert fifth == ("*", pytest.approx([5]))


def test_a_mean_of_too_few_seeds_has_no_interval():
    assert drawn({**difference(0.01), "low": None, "high": None, "seeds": 1}) == [("*", pytest.approx([1]))]


def test_the_picture_of_readme_is_of_the_comparisons_that_are_shown():
    picture = (measure.RESULTS / headline.PICTURE).read_text()
    for _, here in headline.shown():
        assert f">{here['setting']}<" in picture
        assert f">{here['condition']}<" in picture


def test_without_any_comparison_there_is_nothing(files, tmp_path):
    files.clear()
    headline.draw(tmp_path)
    assert (headline.headline(), list(tmp_path.iterdir())) == ("", [])
