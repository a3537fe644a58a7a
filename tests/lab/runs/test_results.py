import json
import subprocess
from dataclasses import replace

import pytest

from adaptive_memory_bank.lab.runs.config import make_config
from adaptive_memory_bank.lab.runs.folder import RunFolder
from adaptive_memory_bank.lab.runs.results import Run, RunResult, code_commit, read_result, read_results, write_result
from adaptive_memory_bank.lab.training.retrieval.config import RetrievalConfig


def test_what_is_written_is_what_is_read(tmp_path):
    folder = RunFolder(tmp_path / "run")
    result = RunResult.of(make_config(RetrievalConfig, adapter="xbn"), folder.path, status="running", memory_size=64)
    assert read_result(folder) is None
    write_result(folder, result)
    assert read_result(folder) == result
    assert read_results(tmp_path) == {"run": result}
    assert (result.run, result.name, result.adapter) == ("run", "xbn", "xbn")
    assert "error" not in json.loads(folder.result_file.read_text())


def test_a_run_has_one_entry_in_the_list_whatever_it_says_later(tmp_path):
    first, second = RunFolder(tmp_path / "a"), RunFolder(tmp_path / "b")
    for folder in (first, second):
        write_result(folder, RunResult(run=folder.path.name, status="running"))
    write_result(first, RunResult(run="a", status="failed", error="x"))
    listed = json.loads((tmp_path / "results.json").read_text())
    assert [(entry["run"], entry["status"]) for entry in listed] == [("a", "failed"), ("b", "running")]


def test_keys_of_other_versions_are_kept(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.result_file.write_text(json.dumps({"adapter": "ema", "colour": "blue"}))
    result = read_result(folder)
    assert (result.adapter, result.status, result.other) == ("ema", "complete", {"colour": "blue"})
    write_result(folder, replace(result, status="failed"))
    assert json.loads(folder.result_file.read_text())["colour"] == "blue"


def test_a_runs_own_file_wins_over_the_list_and_the_list_keeps_lost_folders(tmp_path, write_run):
    folder = write_run(tmp_path, "xbn")
    lost = {"run": "gone", "adapter": "ema", "status": "complete"}
    (tmp_path / "results.json").write_text(json.dumps([{"run": folder.name, "adapter": "old"}, lost]))
    results = read_results(tmp_path)
    assert results[folder.name].adapter == "xbn"
    assert results["gone"].adapter == "ema"


def test_a_damaged_list_is_made_again_from_what_the_runs_hold(tmp_path, write_run):
    folder = write_run(tmp_path, "xbn")
    (tmp_path / "results.json").write_text("[{")
    with pytest.warns(
        UserWarning, match=r"results\.json is damaged: it is not valid JSON .* Using the result\.json of"
    ):
        assert list(read_results(tmp_path)) == [folder.name]
    with pytest.warns(UserWarning, match=r"results\.json is damaged"):
        write_result(RunFolder(tmp_path / "run"), RunResult(run="run"))
    assert sorted(read_results(tmp_path)) == ["run", folder.name]


def test_a_damaged_result_is_taken_from_the_list(tmp_path):
    folder = RunFolder(tmp_path / "run")
    write_result(folder, RunResult(run="run", status="complete", wandb_id="abc"))
    folder.result_file.write_bytes(folder.result_file.read_bytes()[:40])
    with pytest.warns(UserWarning, match=r"result\.json is damaged: .* Using .*results\.json instead"):
        assert (read_result(folder).status, read_result(folder).wandb_id) == ("complete", "abc")
    folder.list_file.unlink()
    with pytest.warns(UserWarning, match=r"result\.json is damaged"):
        assert read_result(folder) is None


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    entry = {"adapter": "xbn", "memory_size": 64, "metrics": {"val/recall@1": float("nan"), "x": "y", "z": 1}}
    run = Run.placed(tmp_path, RunResult.from_json(entry), {})
    assert run.metrics == {"z": 1.0}
    assert run.best == {}


def test_the_position_in_a_comparison_wins_over_what_the_run_knows(tmp_path):
    result = RunResult(adapter="xbn", data="sop", batch_size=64, memory_size=100, seed=3)
    run = Run.placed(tmp_path, result, {"variant": "XBM*", "setting": "SOP", "batch_size": 32, "memory": 0.5})
    assert (run.name, run.setting, run.batch_size, run.memory, run.seed) == ("XBM*", "SOP", 32, 0.5, 3)
    assert Run.placed(tmp_path, replace(result, adapter="none"), {}).memory is None


def test_the_commit_of_the_code_is_that_of_its_checkout_and_marked_where_files_have_changed(tmp_path):
    def git(*words):
        identity = ["-c", "user.name=x", "-c", "user.email=x"]
        return subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True)

    assert code_commit(tmp_path) is None
    code_commit.cache_clear()
    git("init")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "x")
    git("tag", "v1")
    commit = git("rev-parse", "HEAD").stdout.strip()
    assert code_commit(tmp_path) == commit
    code_commit.cache_clear()
    (tmp_path / "code.py").write_text("2")
    assert code_commit(tmp_path) == f"{commit}+"
    (tmp_path / "site-packages").mkdir()
    assert code_commit(tmp_path / "site-packages") is None
