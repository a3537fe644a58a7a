import json

import pytest

from adaptive_memory_bank.lab.commands.main import main
from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report.figures import curve_charts
from adaptive_memory_bank.lab.runs.metrics import CURVES
from adaptive_memory_bank.lab.tracking.dashboard import dashboard, make_workspace, spec_of


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """Nobody is logged in."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def panels_of(spec):
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    return {section["name"]: [panel["config"] for panel in section["panels"]] for section in sections}


def test_panels_show_what_runs_log_grouped_by_adapter(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    panels = panels_of(spec_of(make_workspace("t", read_comparison([tmp_path]).runs, entity="e", project="p")))
    assert list(panels) == ["Quality over epochs", "Best values", "Drift", "Staleness", "Cost", "Tables"]
    curve = panels["Quality over epochs"][0]
    assert (curve["metrics"], curve["xAxis"], curve["groupBy"]) == (["val/recall@1"], "epoch", "adapter.value")
    assert (curve["groupAgg"], curve["groupArea"]) == ("mean", "stddev")
    assert panels["Best values"][0]["metrics"] == ["summary_metrics.best/recall@1"]
    assert panels["Staleness"][0]["metrics"] == ["bank/staleness", "bank/staleness_unadapted"]


def test_the_curves_are_those_of_the_report(tmp_path, write_run):
    measured = {"val/recall@1": 0.5, "holdout/recall@1": 0.6, "drift/mean": 0.1, "bank/staleness": 0.2}
    measured |= {"bank/age": 3.0, "bank/size": 9}
    write_run(tmp_path, "xbn", metrics=measured)
    (section,) = read_comparison([tmp_path]).sections
    panels = panels_of(spec_of(make_workspace("t", section.runs, entity="e", project="p")))
    for title, metrics in CURVES.items():
        charts = curve_charts(section, metrics, at=section.conditions[0])
        assert len(panels[title]) == len(charts) > 0
    assert [panel["metrics"] for panel in panels["Quality over epochs"][1:2]] == [["holdout/recall@1"]]


def test_variants_that_share_an_adapter_are_grouped_by_name(tmp_path, write_run):
    write_run(tmp_path, "identity", run="a", name="XBM")
    write_run(tmp_path, "identity", run="b", name="XBM*")
    workspace = make_workspace("t", read_comparison([tmp_path]).runs, entity="me", project="mine")
    assert [key.name for key in workspace.runset_settings.groupby] == ["name"]


def test_only_the_runs_of_the_comparison_are_shown(tmp_path, write_run):
    run = write_run(tmp_path, "xbn")
    with (run / "config.yaml").open("a") as file:
        file.write("group: compare-x\nproject: mine\nentity: me\n")
    dashboard("t", read_comparison([tmp_path]).runs, dry_run=True, out=tmp_path / "spec.json")
    spec = json.loads((tmp_path / "spec.json").read_text())
    (filtered,) = spec["spec"]["section"]["runSets"][0]["filters"]["filters"]
    assert (filtered["key"]["name"], filtered["value"]) == ("group", ["compare-x"])
    assert (spec["entity"], spec["project"]) == ("me", "mine")


def test_an_entity_is_needed(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    with pytest.raises(ValueError, match="`entity` must name the W&B entity"):
        dashboard("t", read_comparison([tmp_path]).runs, project="p", dry_run=True)


def test_without_a_login_it_says_so_and_asks_nothing(tmp_path, write_run, capsys):
    write_run(tmp_path, "xbn")
    assert main(["dashboard", str(tmp_path), "--entity", "e", "--project", "p"]) == 2
    assert "Not logged in to W&B. Run `wandb login`" in capsys.readouterr().err


def test_the_command_writes_the_specification(tmp_path, write_run, capsys):
    write_run(tmp_path, "xbn")
    out = tmp_path / "spec.json"
    assert main(["dashboard", str(tmp_path), "--entity", "e", "--project", "p", "--dry-run", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"Dashboard: {out}\n"
    assert panels_of(json.loads(out.read_text()))
