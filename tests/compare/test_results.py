import json
from concurrent.futures import ProcessPoolExecutor

import pytest

from adaptive_memory_bank.compare.results import Run, read_details, write_json


def test_a_runs_own_file_wins_over_the_list_and_the_list_keeps_lost_folders(tmp_path, write_run):
    folder = write_run(tmp_path, "xbn")
    lost = {"run": "gone", "adapter": "ema", "status": "complete"}
    write_json(tmp_path / "results.json", [{"run": folder.name, "adapter": "old"}, lost])
    details = read_details(tmp_path)
    assert details[folder.name]["adapter"] == "xbn"
    assert details["gone"]["adapter"] == "ema"


def test_a_reader_never_sees_half_a_file_while_others_write(tmp_path):
    path = tmp_path / "results.json"
    write_json(path, [])
    with ProcessPoolExecutor(2) as pool:
        writers = [pool.submit(_rewrite, path) for _ in range(2)]
        for _ in range(300):
            assert isinstance(json.loads(path.read_text()), list)
        for writer in writers:
            writer.result()
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def _rewrite(path):
    for count in range(100):
        write_json(path, list(range(50 * count)))


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
