import pytest

from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report.figures import curve_charts, grid_charts, seeds_chart
from adaptive_memory_bank.lab.runs.metrics import CURVES, QUALITY, STALE


def section_of(folder):
    (section,) = read_comparison([folder]).sections
    return section


def test_a_curve_is_the_mean_over_seeds_and_the_band_one_deviation(tmp_path, write_run):
    for seed, score in ((0, 0.4), (1, 0.6)):
        write_run(tmp_path, "xbn", seed, score=score, epochs=1)
    section = section_of(tmp_path)
    recall = curve_charts(section, CURVES[QUALITY], at=section.conditions[0])[0]
    low, high, line = recall.figure.data
    assert list(line.x) == [1]
    assert line.y[0] == pytest.approx(50)
    # sample deviation of 40 and 60: sqrt(200) = 14.14
    assert (low.y[0], high.y[0]) == (pytest.approx(50 - 14.142, abs=1e-3), pytest.approx(50 + 14.142, abs=1e-3))


def test_one_seed_has_no_band(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    section = section_of(tmp_path)
    assert len(curve_charts(section, CURVES[QUALITY], at=section.conditions[0])[0].figure.data) == 1


def test_charts_without_any_value_are_left_out(tmp_path, write_run):
    write_run(tmp_path, "none")
    section = section_of(tmp_path)
    assert curve_charts(section, CURVES[STALE], at=section.conditions[0]) == []


def test_staleness_stands_next_to_what_it_would_be_without_adaptation(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    section = section_of(tmp_path)
    (staleness,) = curve_charts(section, CURVES[STALE], at=section.conditions[0])
    adapted, plain = staleness.figure.data
    assert plain.line.dash == "dot"
    assert plain.y[-1] == pytest.approx(1.3 * adapted.y[-1])


def test_grids_become_line_charts_over_what_varies(tmp_path, write_run):
    for batch in (16, 64):
        write_run(tmp_path, "none", batch_size=batch)
        for memory in (256, 1024):
            write_run(tmp_path, "xbn", batch_size=batch, memory_size=memory)
    charts = grid_charts(section_of(tmp_path))
    assert [chart.title for chart in charts] == [
        "Recall@1 over batch size · memory 256 rows",
        "Recall@1 over batch size · memory 1,024 rows",
        "Recall@1 over memory size · batch 16",
        "Recall@1 over memory size · batch 64",
    ]
    assert [trace.name for trace in charts[0].figure.data] == ["none", "xbn"]
    assert list(charts[0].figure.data[0].x) == ["16", "64"]


def test_without_a_grid_there_is_no_grid_chart(tmp_path, write_run):
    write_run(tmp_path, "xbn")
    assert grid_charts(section_of(tmp_path)) == []


def test_every_seed_is_a_dot(tmp_path, write_run):
    for seed in range(3):
        write_run(tmp_path, "xbn", seed)
    section = section_of(tmp_path)
    dots, mean = seeds_chart(section, at=section.conditions[0]).figure.data
    assert list(dots.text) == ["seed 0", "seed 1", "seed 2"]
    assert mean.x[0] == pytest.approx(sum(dots.x) / 3)


def test_names_are_text_to_plotly(tmp_path, write_run):
    write_run(tmp_path, "xbn", name="<a href='javascript:1'>x</a>")
    section = section_of(tmp_path)
    assert (
        curve_charts(section, CURVES[QUALITY], at=section.conditions[0])[0].figure.data[0].name.startswith("&lt;a href")
    )


def charts_with_start(folder, write_run, start, **options):
    write_run(folder, "xbn", options={"memory_start": start, **options})
    section = section_of(folder)
    at = section.conditions[0]
    return [chart for metrics in CURVES.values() for chart in curve_charts(section, metrics, at=at)]


def test_every_curve_marks_where_the_memory_starts_and_the_loss_says_what_that_means(tmp_path, write_run):
    charts = charts_with_start(tmp_path, write_run, 0.5, warmup_epochs=1)
    assert {shape.x0 for chart in charts for shape in chart.figure.layout.shapes} == {1.5}
    assert {len(chart.figure.layout.shapes) for chart in charts} == {1}
    assert {chart.figure.layout.annotations[0].text for chart in charts} == {"memory starts"}
    told = [chart.title for chart in charts if "the loss may jump" in chart.caption]
    assert told == ["Training loss per epoch"]


@pytest.mark.parametrize("start", [0, 5])
def test_a_memory_that_is_used_at_once_or_never_has_no_line(tmp_path, write_run, start):
    charts = charts_with_start(tmp_path, write_run, start)
    assert not any(chart.figure.layout.shapes or "memory starts" in chart.caption for chart in charts)
