"""From a folder of real runs to JSON, table, pictures and headline."""

import json
import re
from dataclasses import replace
from statistics import fmean, median, stdev

import evidence
import headline
import measure
import numpy as np
import pytest
import restore
import yaml

from adaptive_memory_bank.lab.compare.plan import plan_runs, write_plan
from adaptive_memory_bank.lab.compare.pool import make_job
from adaptive_memory_bank.lab.compare.runner import compare
from adaptive_memory_bank.lab.compare.worker import run_job
from adaptive_memory_bank.lab.data.sources.glyphs import glyphs

UNFINISHED = 1  # of the planned runs, the last ones: not started, as while a comparison still runs


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """24 + 12 characters x 8 images of 16 x 16."""
    found = glyphs(train_classes=24, test_classes=12, images_per_class=8).resized(16)
    path = tmp_path_factory.mktemp("data") / "tiny.npz"
    parts = {"train": found.train, "test": found.query}
    np.savez(
        path,
        **{f"{name}_images": part.images for name, part in parts.items()},
        **{f"{name}_labels": part.labels.numpy() for name, part in parts.items()},
    )
    return path


COMMAND = "amb compare --config x.yaml --data_root /home/someone/data --jobs 2 --out /home/someone/runs/tiny"
PORTABLE = "amb compare --config x.yaml --data_root FOLDER --jobs 2 --out runs/tiny"


def train(config, *, leave_out):
    planned = plan_runs(config)
    write_plan(config, planned, command=COMMAND)
    for run in planned[: len(planned) - leave_out]:
        answer = run_job(make_job(run))
        assert answer["status"] == "complete", answer
    return planned


COMMON = ["--epochs", 2, "--threads", 1, "--wandb", "disabled", "--quiet", "--embedding_dim", 16, "--drift_every", 4]


@pytest.fixture(scope="module")
def grid(data, parse):
    """Two batch sizes, three adapters, three seeds; a larger batch without memory."""
    words = ["--data", f"npz:{data}", "--adapters", "none", "identity", "auto", "--batch_sizes", 8, 16]
    words += ["--none_batch_sizes", 24, "--memories", 0.5, "--seeds", 0, 1, 2, "--validation", 0.2, *COMMON]
    return lambda out: parse(*words, "--out", out)


@pytest.fixture(scope="module")
def retrieval(grid, tmp_path_factory):
    """The grid; the last run is missing."""
    out = tmp_path_factory.mktemp("retrieval")
    train(grid(out), leave_out=UNFINISHED)
    return out


@pytest.fixture(scope="module")
def written(retrieval, tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    return results, evidence.write(retrieval, "tiny", results)


@pytest.fixture(scope="module")
def content(written):
    return json.loads((written[0] / "tiny.json").read_text())


def test_it_writes_json_page_two_pictures_and_the_logs(written):
    results, paths = written
    files = ["tiny.json", "tiny.md", "tiny.svg", "tiny_staleness.svg", "tiny_logs.tar.xz"]
    assert [path.name for path in paths] == files
    assert all((results / path.name).stat().st_size > 500 for path in paths)


def test_the_json_holds_what_is_needed_to_repeat_and_to_judge(content, retrieval):
    assert content["command"] == content["plan"]["command"] == PORTABLE
    assert (content["complete"], content["planned"], content["seeds"]) == (20, 21, [0, 1, 2])
    assert sum(content["commits"].values()) in (0, 20)  # none where the package is installed outside its checkout
    assert {"python", "torch", "adaptive-memory-bank"} <= set(content["versions"])
    assert "cores" in content["machine"]
    run = next(run for run in content["runs"] if run["adapter"] == "auto")
    own = json.loads((retrieval / run["run"] / "result.json").read_text())
    assert run["packages"] | ({"commit": run["commit"]} if run["commit"] else {}) == own["versions"]
    assert run["options"]["model"] == "conv4_32"
    assert run["last"]["val/recall@1"] == pytest.approx(own["metrics"]["val/recall@1"], abs=1e-6)
    assert run["chosen"]["best/recall@1"] == pytest.approx(own["best"]["best/recall@1"], abs=1e-6)
    assert (run["batch_size"], run["memory"], run["chosen_epoch"]) == (own["batch_size"], 0.5, own["best_epoch"])
    curves = run["curves"]
    assert set(curves["val/recall@1"]) == set(curves["bank/staleness"]) == {"0", "1"}
    assert curves["val/recall@1"][str(own["best_epoch"])] == run["chosen"]["best/recall@1"]


def test_no_path_of_a_machine_is_in_the_files(written):
    for path in written[1]:
        if path.suffix != ".xz":
            assert "/home/" not in path.read_text(), path.name


def at_batch_8(content):
    """The table, and Recall@1 of the last epoch by adapter, in the order of seeds."""
    here = next(table for table in content["tables"] if table["batch_size"] == 8)
    values = {}
    for run in sorted(content["runs"], key=lambda run: run["seed"]):
        if run["batch_size"] == 8:
            values.setdefault(run["adapter"], []).append(run["last"]["val/recall@1"])
    return here, values


@pytest.mark.parametrize(("role", "against"), [("plain", "identity"), ("none", "none")])
def test_means_and_paired_differences_are_those_of_the_runs(role, against, content):
    here, values = at_batch_8(content)
    row = next(row for row in here["rows"] if row["variant"] == "auto")
    assert row["values"]["last val/recall@1"]["mean"] == pytest.approx(fmean(values["auto"]), abs=1e-5)
    assert row["values"]["last val/recall@1"]["std"] == pytest.approx(stdev(values["auto"]), abs=1e-5)
    assert here["references"] == {"plain": "identity", "none": "none"}
    pairs = [ours - theirs for ours, theirs in zip(values["auto"], values[against], strict=True)]
    difference = row["differences"][role]["last"]
    assert difference["mean"] == pytest.approx(fmean(pairs), abs=1e-5)
    # Three comparisons share the 5 %: t(1 - 0.05 / 6, 2 degrees of freedom) = 7.6489
    half = 7.6489 * stdev(pairs) / 3**0.5
    assert difference["high"] - difference["mean"] == pytest.approx(half, abs=1e-3)
    assert difference["comparisons"] == 3


def test_plain_memory_against_none_and_none_against_plain_memory_are_one_question(content):
    rows = {row["variant"]: row["differences"] for row in at_batch_8(content)[0]["rows"]}
    there, back = rows["identity"]["none"]["last"], rows["none"]["plain"]["last"]
    assert (there["low"], there["high"]) == pytest.approx((-back["high"], -back["low"]))


def test_every_row_says_how_it_was_trained(content):
    here, _ = at_batch_8(content)
    rows = {row["variant"]: row["trained"] for row in here["rows"]}
    assert list(rows) == ["none", "none, batch 24", "identity", "auto"]
    assert [how["batch_size"] for how in rows.values()] == [8, 24, 8, 8]
    assert {(how["model"], how["image_size"], how["epochs"]) for how in rows.values()} == {("conv4_32", 16, 2)}
    images = 19 * 8  # 24 characters without a fifth (5 of them), 8 images each
    assert [(how["memory"], how["memory_rows"]) for how in rows.values()][1:3] == [(None, 0), (0.5, images / 2)]
    seconds = [run["seconds"] for run in content["runs"] if (run["variant"], run["batch_size"]) == ("auto", 8)]
    assert rows["auto"]["minutes"] == pytest.approx(median(seconds) / 60)


def test_the_page_says_how_far_the_comparison_is(written):
    page = (written[0] / "tiny.md").read_text()
    assert "20 of 21 runs are complete" in page
    assert "shared the machine with other work" in page
    assert "- Larger batches without memory against none: `none, batch 24` " in page
    assert "| auto | conv4_32 | 16 | 8 | 50 %, 76 rows | 2 | 3 | " in page
    assert "Logs (`metrics.jsonl`) of 20 runs: [tiny_logs.tar.xz](tiny_logs.tar.xz)." in page
    assert "![tiny_staleness](tiny_staleness.svg)" in page
    assert "Recall@1 % (chosen epoch)" in page
    assert "Recall@1 % (last epoch)" in page
    trained = [row.split(" | ") for row in page.splitlines() if re.match(r"\| (none|identity|auto) \| conv4", row)]
    assert [int(cells[6]) for cells in trained] == [3, 3, 3, 3, 3, 2]


def test_the_pictures_name_every_adapter_and_repeat_to_the_byte(written, retrieval, tmp_path):
    results, _ = written
    metric, staleness = ((results / name).read_text() for name in ("tiny.svg", "tiny_staleness.svg"))
    for name in ("identity", "auto"):
        assert f">{name}<" in metric
        assert f">{name}<" in staleness
    assert ">none<" in metric
    assert ">none<" not in staleness
    evidence.write(retrieval, "tiny", tmp_path)
    assert (tmp_path / "tiny_staleness.svg").read_text() == staleness
    assert (tmp_path / "tiny_logs.tar.xz").read_bytes() == (results / "tiny_logs.tar.xz").read_bytes()


def test_the_logs_come_back_whole(written, retrieval, tmp_path):
    for run in restore.restore(written[0] / "tiny.json", tmp_path):
        assert (run / "metrics.jsonl").read_bytes() == (retrieval / run.name / "metrics.jsonl").read_bytes()
    evidence.write(tmp_path, "tiny", tmp_path)
    for name in ("tiny_logs.tar.xz", "tiny.md"):
        assert (tmp_path / name).read_bytes() == (written[0] / name).read_bytes()


def test_without_the_logs_the_curves_come_back_and_pass_for_no_log(written, content, tmp_path):
    (tmp_path / "tiny.json").write_text((written[0] / "tiny.json").read_text())
    restore.restore(tmp_path / "tiny.json", tmp_path / "runs")
    paths = evidence.write(tmp_path / "runs", "tiny", tmp_path / "results")
    assert "tiny_logs.tar.xz" not in [path.name for path in paths]
    again = json.loads((tmp_path / "results" / "tiny.json").read_text())
    assert (again["logs"], again["runs"]) == (0, content["runs"])


def test_a_grid_that_met_a_new_release_names_both():
    runs = [{"torch": "2.15.0", "timm": "1.0.31"}, {"torch": "2.15.0", "timm": "1.0.30"}, {"torch": "2.15.0"}]
    assert evidence._all_versions(runs) == {"torch": "2.15.0", "timm": "1.0.30 and 1.0.31"}


@pytest.mark.slow
def test_a_comparison_goes_on_elsewhere_from_the_json_alone(written, content, grid, tmp_path):
    assert len(restore.restore(written[0] / "tiny.json", tmp_path)) == content["complete"] == 20
    compare(grid(tmp_path), command=COMMAND)  # trains the one that is missing
    evidence.write(tmp_path, "tiny", tmp_path)
    later = json.loads((tmp_path / "tiny.json").read_text())
    assert (later["complete"], later["planned"]) == (21, 21)
    names = {run["run"]: run for run in content["runs"]}
    assert [run for run in later["runs"] if run["run"] in names] == content["runs"]
    assert len({run["run"] for run in later["runs"]} - set(names)) == 1
    whole, again = at_batch_8(content)[0], at_batch_8(later)[0]  # complete before
    for row, same in zip(whole["rows"], again["rows"], strict=True):
        assert {key: value["mean"] for key, value in same["values"].items()} == pytest.approx(
            {key: value["mean"] for key, value in row["values"].items()}, abs=2e-6
        )
    assert restore.restore(written[0] / "tiny.json", tmp_path) == []


def test_the_headline_has_the_chosen_epochs_numbers(content, monkeypatch):
    monkeypatch.setattr(headline, "read", {headline.FAIR[0]: content}.get)
    text = headline.headline()
    row = next(row for row in at_batch_8(content)[0]["rows"] if row["variant"] == "auto")
    chosen, last = (f"{100 * row['values'][f'{pick} val/recall@1']['mean']:.1f}" for pick in ("chosen", "last"))
    line = next(line for line in text.splitlines() if line.startswith("| [") and "batch 8" in line)
    assert "(benchmarks/results/tiny.md)" in line
    assert "3 seeds |" in line
    assert f"| {chosen}<br>{last} |" in line
    assert "20 of 21 runs so far" in text


def test_moco_is_reported_at_its_last_epoch_alone(data, parse, tmp_path, monkeypatch):
    arrays = dict(np.load(data))
    same = {f"test_{name}": arrays[f"train_{name}"][::2] for name in ("images", "labels")}  # classes it can know
    np.savez(tmp_path / "same.npz", **{**arrays, **same})
    words = ["--task", "moco", "--data", f"npz:{tmp_path / 'same.npz'}", "--adapters", "identity", "auto"]
    words += [*COMMON, "--seeds", 0, "--batch_size", 16, "--width", 0.125, "--memory", 64, "--out", tmp_path / "runs"]
    train(parse(*words), leave_out=0)
    evidence.write(tmp_path / "runs", "moco", tmp_path)
    content = json.loads((tmp_path / "moco.json").read_text())
    assert [table["picks"] for table in content["tables"]] == [["last"]]
    assert not any("chosen" in run for run in content["runs"])
    page = (tmp_path / "moco.md").read_text()
    assert "nothing was chosen on the test images" in page
    assert "kNN % (last epoch)" in page
    assert "[unknown]" in page  # a single seed has no interval
    for early, columns in (((1, 2), ["kNN % (last epoch)", "kNN % (epoch 1)"]), ((2,), ["kNN % (last epoch)"])):
        monkeypatch.setattr(evidence, "EARLY", early)  # the last epoch needs no second column
        evidence.write(tmp_path / "runs", "moco", tmp_path)
        page = (tmp_path / "moco.md").read_text()
        assert re.findall(r"kNN % \([^)]*\)", page) == columns
        assert ("to plain (epoch 1)" in page) == ("The same at epoch 1: `auto`" in page) == (1 in early)


def test_runs_are_those_of_files_however_they_were_started(data, parse, tmp_path, monkeypatch, capsys):
    """Two parts of a grid, one after the other; the folder has the plan of the second alone. Another adds a seed."""
    options = {"title": "Whole", "data": f"npz:{data}", "adapters": ["none", "identity"], "memories": [0.5, 1.0]}
    options |= {"epochs": 1, "memory_start": 0, "embedding_dim": 16, "threads": 1, "wandb": "disabled"}
    for seed, name in enumerate(("tiny", "more")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(options | {"seeds": [seed]}))
    whole = parse("--config", tmp_path / "tiny.yaml", "--out", tmp_path / "runs")
    names = [run.name for run in plan_runs(whole)]
    train(replace(whole, adapters=["none"]), leave_out=0)
    train(replace(whole, adapters=["identity"], memories=[1.0], seeds=[1, 0]), leave_out=0)
    words = ["evidence.py", tmp_path / "runs", "--name", "tiny", "--results", tmp_path, "--config"]
    command = "amb compare --config benchmarks/{}.yaml --data_root FOLDER --out runs/tiny"
    for files, complete in ((["tiny"], 2), (["tiny", "more"], 3)):
        monkeypatch.setattr("sys.argv", list(map(str, [*words, *(tmp_path / f"{name}.yaml" for name in files)])))
        evidence.main()
        content = json.loads((tmp_path / "tiny.json").read_text())
        assert (content["complete"], content["planned"], content["title"]) == (complete, 3 * len(files), "Whole")
        assert [run["run"] for run in content["runs"]][:2] == [names[0], names[2]]
        assert content["command"] == "\n".join(map(command.format, files))
        told = " --config benchmarks/tiny.yaml benchmarks/more.yaml" * (len(files) > 1)
        assert f"evidence.py RUNS --name tiny{told}\n```" in (tmp_path / "tiny.md").read_text()
        assert content["logs"] == complete
    assert str(tmp_path / "tiny_logs.tar.xz") in capsys.readouterr().out


def test_a_folder_without_a_complete_run_says_so(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result.json").write_text('{"status": "running", "adapter": "auto", "data": "x"}')
    with pytest.raises(ValueError, match="holds no complete run yet"):
        evidence.write(tmp_path, "x", tmp_path)


@pytest.mark.parametrize(("image_size", "known"), [(96, True), (97, False)])
def test_frozen_features_stand_above_runs_of_their_backbone_data_and_size(image_size, known, write_run, tmp_path):
    frozen = measure.read(evidence.FROZEN)
    options = {"model": frozen["model"], "image_size": image_size}
    for adapter in ("none", "identity"):
        write_run(tmp_path / "runs", adapter, data=frozen["data"], options=options)
    evidence.write(tmp_path / "runs", "birds", tmp_path)
    rows = [line for line in (tmp_path / "birds.md").read_text().splitlines() if line.startswith("| frozen features")]
    scores = " | - | ".join(f"{100 * frozen['frozen']['96'][name]:.1f}" for name in ("recall@1", "map@r"))
    assert rows == [f"| frozen features | {frozen['model']} | 96 | - | - | - | - | - | {scores} | - |"] * known
