"""Contests of loss steps: how they are judged, and that every contestant of the real ones can take part."""

import contest
import encoder_share
import loss_step
import measure
import pages
import pytest
import queue_step
import torch
from contest import Aim, Case

from process_settings import settings_as_contestants

MEASURED = {
    "ours": {"min_ms": 3.0, "median_ms": 4.0, "min_cpu_ms": 6.0, "peak_mib": 10.0},
    "theirs": {"min_ms": 12.0, "median_ms": 12.0, "min_cpu_ms": 12.0, "peak_mib": 40.0},
}
WITH_ORIGINAL = {"ours": MEASURED["ours"], "original": MEASURED["theirs"]}


def test_an_aim_is_a_ratio_of_minima_with_medians_and_cpu_time_beside():
    found = contest.judge(Aim("ours", "theirs", 0.3), MEASURED)
    assert (found["ratio"], found["ratio_of_cpu"], found["met"]) == (0.25, 0.5, True)
    assert found["ratio_of_medians"] == pytest.approx(1 / 3)
    assert not contest.judge(Aim("ours", "theirs", 0.2), MEASURED)["met"]


def test_an_aim_is_judged_by_the_median_of_the_ratios_of_several_processes():
    found = [{**MEASURED, "ours": {**MEASURED["ours"], "min_ms": ms}} for ms in (2.4, 9.0, 3.0)]
    judged = contest.judge(Aim("ours", "theirs", 0.3), *found)
    assert (judged["ratio"], judged["least_and_most"], judged["met"]) == (0.25, pytest.approx([0.2, 0.75]), True)
    shown = contest.show_aims([{"case": "a case", "targets": [judged]}])
    assert shown.splitlines()[-1] == "| a case | ours / theirs | ms | 0.250 (0.20 to 0.75) | 0.500 | <= 0.300 | yes |"


def test_memory_is_a_ratio_or_a_number_of_mib():
    assert contest.judge(Aim("ours", "theirs", 0.5, "MiB"), MEASURED)["ratio"] == 0.25
    found = contest.judge(Aim("ours", None, 8.0, "MiB"), MEASURED)
    assert (found["ratio"], found["met"]) == (10.0, False)
    shown = contest.show_aims([{"case": "a case", "measured": MEASURED, "targets": [found]}])
    assert shown.splitlines()[-1] == "| a case | ours | MiB | 10.000 |  | <= 8.000 | **no** |"


def test_a_case_is_measured_judged_and_shown():
    steps = {"one": lambda: torch.zeros(2**18), "two": lambda: torch.zeros(2**19)}
    case = Case("zeros", lambda: steps, [Aim("one", "two", 0.6, "MiB")])
    result = contest.run(case, rounds=2)
    assert result["measured"]["one"]["peak_mib"] == pytest.approx(1, abs=0.1)
    assert result["targets"][0]["met"]
    assert "| zeros | one / two | MiB | 0.5" in contest.show([result])


def test_processors_stand_side_by_side_bold_where_they_miss_an_aim(tmp_path, monkeypatch):
    met, missed = (contest.judge(Aim("ours", "original", aim), WITH_ORIGINAL) for aim in (0.3, 0.2))
    for maker, cpu, targets in (("amd", "AMD", [met, missed]), ("intel", "Intel", [missed])):
        results = [{"case": "a case", "measured": WITH_ORIGINAL, "targets": targets}]
        facts = {"cpu": cpu, "command": "python x.py", "versions": {"torch": "2"}, "results": results}
        measure.write(f"queue_step_{maker}", facts, tmp_path)
    monkeypatch.setattr(pages, "RESULTS", tmp_path)
    monkeypatch.setattr(pages, "read", lambda name: measure.read(name, tmp_path))
    text = pages.contest("queue_step").splitlines()
    assert text[0] == "| case | ours / theirs | of | aim | AMD | Intel |"
    assert text[2] == "| a case | ours / original | ms | <= 0.300 | 0.250 | - |"
    assert text[3] == "| a case | ours / original | ms | <= 0.200 | **0.250** | **0.250** |"
    assert text[5:8] == [
        "| case, AMD | original, ms | ours, of it |",
        "| --- | --- | --- |",
        "| a case | 12.0 | 0.25 |",
    ]
    assert text[9] == "AMD: `python x.py`; torch 2."
    assert pages.contest("loss_step") == "Not run yet."


def test_each_case_is_measured_in_new_processes_with_the_same_settings():
    case = Case("settings", settings_as_contestants, [])
    torch.manual_seed(7)
    settings = contest.run(case, rounds=1, processes=2)["measured"]
    assert list(settings) == [f"seed 7, {torch.get_num_threads()} threads"]


@pytest.mark.parametrize("script", [loss_step, queue_step])
def test_every_aim_is_about_contestants_that_there_are(script, monkeypatch):
    """At a size of 64 rows every contestant takes a step, and every aim finds its two."""
    monkeypatch.setattr(contest, "BATCHES", 2)
    monkeypatch.setattr(script, "BATCHES", 2)
    assert len({case.name for case in script.CASES}) == len(script.CASES)
    for case in script.CASES:
        steps = contestants_in_small(case)
        for step in steps.values():
            step()
        assert {aim.ours for aim in case.aims} | {aim.against for aim in case.aims if aim.against} <= set(steps)


def contestants_in_small(case):
    """The contestants of a case, with 64 rows of dimension 16."""
    make = case.contestants
    arguments = [64 if isinstance(value, int) and value >= 512 else value for value in make.args]
    arguments = [16 if value in (128, 512) else value for value in arguments]
    in_small = {} if make.func is queue_step.pml_steps else {"dim": 16}
    return make.func(*arguments, **{**make.keywords, **in_small, "batch": 8})


def test_shares_are_of_the_step_with_loss_and_encoder():
    times = {"swapped": {"min_ms": 10.0}, "lightly's own": {"min_ms": 30.0}}
    found = {"encoders": {"small": {"min_ms": 90.0}}, "losses": {"4096": times}}
    assert encoder_share.show_shares(found).splitlines()[-1] == "| 4,096 | 10.0 | 30.0 | 10.0 % or 25.0 % |"


def test_the_swap_s_ratios_reach_the_readme(monkeypatch):
    target = contest.judge(Aim("auto", "original", 0.3), {"auto": MEASURED["ours"], "original": MEASURED["theirs"]})
    cases = [f"{loss}, 4,096 x 128, batch 64" for loss in ("SupConLoss", "NTXentLoss")]
    amd = {"results": [{"case": case, "targets": [target]} for case in cases]}
    intel = {"results": [{"case": cases[1], "targets": [{**target, "ratio": 0.31}]}]}
    monkeypatch.setattr(pages, "read", {}.get)
    monkeypatch.setattr(pages, "contests", {"queue_step": [amd, intel]}.get)
    assert (
        "- 4,096 x 128, batch 64, `auto`, of the original's time: SupConLoss 0.25; NTXentLoss 0.25 to 0.31"
        in pages.cost()
    )
    assert "Loss against encoder: not run yet." in pages.cost()


def test_a_ratio_near_zero_is_not_called_zero():
    assert pages._from_to([0.0041, 0.0038]) == "0.004"
    assert pages._from_to([0.254, 0.251]) == "0.25"
    assert pages._from_to([0.31, 0.25]) == "0.25 to 0.31"


def test_times_have_a_minimum_a_median_and_cpu_time():
    found = measure.interleaved({"nothing": lambda: None}, rounds=3)["nothing"]
    assert 0 <= found["min_ms"] <= found["median_ms"]
    assert found["min_cpu_ms"] >= 0
