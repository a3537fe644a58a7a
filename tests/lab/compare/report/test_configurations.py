from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report.configurations import configurations


def test_shared_options_are_told_once_and_the_rest_by_run(tmp_path, write_run):
    write_run(tmp_path, "ema", 0)
    write_run(tmp_path, "xbn", 1)
    found = configurations(read_comparison([tmp_path]).runs)
    assert found.shared == {"batch_size": "16", "data": "glyphs", "epochs": "5", "task": "retrieval"}
    assert found.differing == ("adapter", "seed")
    assert [values for _, values in found.rows] == [("xbn", "1"), ("ema", "0")]


def test_versions_that_differ_are_all_listed(tmp_path, write_run):
    write_run(tmp_path, "ema", versions={"torch": "2.8"})
    write_run(tmp_path, "xbn", versions={"torch": "2.9"})
    versions = configurations(read_comparison([tmp_path]).runs).versions
    assert versions == {"torch": "2.9, 2.8", "machine": "Linux, 2 cores"}
