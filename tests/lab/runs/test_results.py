import json

import pytest

from adaptive_memory_bank.lab.runs.results import Run, read_details


def test_a_runs_own_file_wins_over_the_list_and_the_list_keeps_lost_folders(tmp_path, write_run):
    folder = write_run(tmp_path, "xbn")
    lost = {"run": "gone", "adapter": "ema", "status": "complete"}
    (tmp_path / "results.json").write_text(json.dumps([{"run": folder.name, "adapter": "old"}, lost]))
    details = read_details(tmp_path)
    assert details[folder.name]["adapter"] == "xbn"
    assert details["gone"]["adapter"] == "ema"


def test_broken_json_is_named(tmp_path):
    (tmp_path / "results.json").write_text("[{")
    with pytest.raises(ValueError, match=r"results\.json` is not valid JSON"):
        read_details(tmp_path)


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    details = {"adapter": "xbn", "memory_size": 64, "metrics": {"val/recall@1": float("nan"), "x": "y", "z": 1}}
    run = Run.from_details(tmp_path, details, {})
    assert run.metrics == {"z": 1.0}
    assert run.best == {}


def test_the_place_in_a_comparison_wins_over_what_the_run_knows(tmp_path):
    details = {"adapter": "xbn", "data": "sop", "batch_size": 64, "memory_size": 100, "seed": 3}
    run = Run.from_details(tmp_path, details, {"variant": "XBM*", "setting": "SOP", "batch_size": 32, "memory": 0.5})
    assert (run.name, run.setting, run.batch_size, run.memory, run.seed) == ("XBM*", "SOP", 32, 0.5, 3)
    assert Run.from_details(tmp_path, {**details, "adapter": "none"}, {}).memory is None
