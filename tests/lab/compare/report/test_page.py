"""The report in a real browser: it renders, asks for nothing, complains about nothing, and lets no name run."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_memory_bank.lab.compare.reading import read_comparison
from adaptive_memory_bank.lab.compare.report import write_report
from adaptive_memory_bank.lab.data import Part
from adaptive_memory_bank.lab.training.worst_queries import QUERIES, render_gallery

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return tmp_path_factory.mktemp("small")


@pytest.fixture
def report(small, write_run, write_worst_queries):
    """A report with two data sets, a grid, a failed run, and class names that try to run."""
    path = small / "report.html"
    if path.exists():
        return path
    for adapter in ("none", "identity", "xbn"):
        for seed in (0, 1):
            run = write_run(small / "plain", adapter, seed)
            write_worst_queries(run, names=(EVIL, "a name that is much too long for the little room below a picture"))
    for batch in (16, 64):
        for adapter in ("identity", "auto"):
            write_run(small / "grid", adapter, data=f"npz:{EVIL}", batch_size=batch, name=adapter + EVIL)
    write_run(small / "grid", "ema", status="failed", error=f"ValueError: {EVIL}", data=f"npz:{EVIL}")
    return write_report(read_comparison([small / "plain", small / "grid"]), path)


@pytest.fixture
def page(report, open_page, kept_pages):
    """The report on a wide screen, opened once for all tests that only look."""
    if "wide" not in kept_pages:
        kept_pages["wide"] = open_page(report)
    return kept_pages["wide"]


@pytest.fixture(scope="session")
def kept_pages():
    return {}


class Loads(HTMLParser):
    """Collects what a page would load when it is opened."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href", "srcset", "action")]


def test_the_file_loads_nothing_and_holds_one_copy_of_plotly(report):
    text = report.read_text(encoding="utf-8")
    parser = Loads()
    parser.feed(text)
    assert [address for address in parser.addresses if not address.startswith(("data:", "#"))] == []
    (packed,) = re.findall(r'<script type="application/gzip" id="plotly">([^<]*)</script>', text)
    assert gzip.decompress(base64.b64decode(packed)).decode().count("* plotly.js v") == 1
    assert "plotly.js v" not in text


def test_twelve_runs_with_photographs_take_at_most_three_megabytes(tmp_path, write_run):
    """The pictures are those of photographs at their full size, as the trainers leave them."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 12, 12, 3), dtype=np.uint8)
    images = np.stack([np.asarray(Image.fromarray(pixels).resize((64, 64))) for pixels in noise])
    part = Part(images, torch.zeros(9, dtype=torch.int64), class_names=("a class",))
    found = {"first_match": [2] * QUERIES, "matches": [[*range(1, 9)]] * QUERIES, "scores": [[0.5] * 8] * QUERIES}
    gallery = render_gallery({"queries": [0] * QUERIES, **found}, part, None, 0)
    for adapter in ("none", "identity", "xbn", "auto"):
        for seed in range(3):
            run = write_run(tmp_path / "runs", adapter, seed)
            (run / "gallery.json").write_text(json.dumps(gallery), encoding="utf-8")
    page = write_report(read_comparison([tmp_path / "runs"]), tmp_path / "report.html")
    assert page.read_text(encoding="utf-8").count("data:image/webp;base64,") == 4 * QUERIES * 9
    assert page.stat().st_size < 3_000_000


def test_it_renders_with_its_charts_and_the_console_is_clean(report, page):
    shown = page.evaluate("document.querySelectorAll('.plot .main-svg').length > 0")
    drawn = page.evaluate(
        "[...document.querySelectorAll('.plot')].filter((p) => p.querySelector('.scatterlayer .trace')).length"
    )
    assert shown
    assert drawn == int(page.evaluate("document.documentElement.dataset.charts"))
    assert drawn >= 10
    assert page.evaluate("document.querySelector('h1').textContent").startswith("Adapters compared on glyphs")
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith("data:")] == [report.resolve().as_uri()]


def test_pictures_are_marked_right_and_wrong(page):
    marks = page.evaluate(
        "[...document.querySelectorAll('details.worst:last-of-type .query')].map((query) =>"
        " [...query.querySelectorAll('.matches i')].map((mark) => mark.textContent).join(''))"
    )
    assert marks == ["✗✗✗✓✓✓✓✓", "✗✗✓✓✓✓✓✓", "✗✓✓✓✓✓✓✓"]
    assert page.evaluate("[...document.querySelectorAll('.picture img')].every((image) => image.naturalWidth === 28)")


def test_charts_in_a_closed_fold_are_drawn_when_it_opens(page):
    plots = page.evaluate("document.querySelectorAll('.plot').length")
    assert int(page.evaluate("document.documentElement.dataset.charts")) < plots
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.wait_for(f"document.documentElement.dataset.charts === '{plots}'")
    assert page.complaints() == []


def test_names_stay_text(page):
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.wait_for("document.documentElement.dataset.charts === String(document.querySelectorAll('.plot').length)")
    assert page.evaluate("window.hacked === undefined")
    assert page.evaluate("document.querySelectorAll('script').length") == 3
    assert page.evaluate("document.querySelectorAll('img[onerror], a[href^=javascript]').length") == 0
    titles = page.evaluate("[...document.querySelectorAll('.picture')].map((p) => p.title)")
    assert EVIL in titles
    assert "<script>" in page.evaluate("[...document.querySelectorAll('.legendtext')].map((t) => t.textContent).join()")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_without_sideways_scrolling(report, open_page, dark):
    page = open_page(report, width=390, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    page.wait_for("document.documentElement.dataset.charts === String(document.querySelectorAll('.plot').length)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    widest = (
        "Math.max(...[...document.querySelectorAll('.plot .main-svg')].map((s) => s.getBoundingClientRect().right))"
    )
    assert page.evaluate(widest) <= 390
    assert page.complaints() == []


def test_charts_follow_the_colours_of_the_page_when_they_change(page):
    colors = (
        "[getComputedStyle(document.body.parentNode).backgroundColor,"
        " getComputedStyle(document.querySelector('.xtick text')).fill]"
    )
    light = page.evaluate(colors)
    page.set_dark(True)
    page.wait_for("getComputedStyle(document.querySelector('.xtick text')).fill === 'rgb(229, 232, 236)'")
    assert light[1] == "rgb(29, 34, 40)"
    assert page.evaluate(colors)[0] == "rgb(20, 23, 27)"


def test_the_page_says_what_the_table_says(report):
    text = report.read_text(encoding="utf-8").partition("</main>")[0]  # a failure prints it; not with all of Plotly
    assert "1 of 11 runs are not complete" in text
    assert "2 seeds cannot tell an adapter from plain memory (<code>identity</code>" in text
    assert "Options shared by all runs" in text
    assert "<dt>torch</dt><dd>2.9.0</dd>" in text


def test_the_checker_sees_what_a_bad_page_does(tmp_path: Path, open_page):
    # The checks above are worth something only if they can fail.
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<html data-charts='0'><img src='http://127.0.0.1:9/x.png'><script>console.warn('x'); throw Error('y')</script>"
        "<div style='width: 900px'>wide</div></html>"
    )
    page = open_page(bad, width=390)
    assert len(page.complaints()) >= 2
    assert "http://127.0.0.1:9/x.png" in page.requests()
    assert page.evaluate("document.documentElement.scrollWidth") > 390


@pytest.mark.parametrize("width", [1200, 400])
def test_a_fresh_memory_stands_apart_below_a_rule(tmp_path, write_run, open_page, width):
    for adapter, level in {"none": 0.6, "identity": 0.7, "xbn": 0.73, "auto": 0.74, "fresh": 0.75}.items():
        for seed in range(3):
            run = {"score": level + 0.001 * seed * (adapter == "fresh"), "options": {"memory_start": 1.0}}
            write_run(tmp_path, adapter, seed, **run)
    page = open_page(write_report(read_comparison([tmp_path]), tmp_path / "report.html"), width=width)
    rows = "[...document.querySelectorAll('main .scroll:first-of-type tr.apart')]"
    assert page.evaluate(f"{rows}.map((row) => row.querySelector('th').textContent)")[0] == "fresh"
    assert page.evaluate(f"{rows}.every((row) => !row.querySelector('strong') && !row.nextElementSibling)")
    assert page.evaluate(f"getComputedStyle({rows}[0].cells[0]).borderTopStyle") == "double"
    assert "of the way to fresh" in page.evaluate("document.querySelector('thead').textContent")
    lines = page.evaluate("document.querySelectorAll('.shapelayer path').length")
    assert lines == page.evaluate("document.querySelectorAll('.plot').length") - 1  # all but the seeds' chart
    assert page.complaints() == []


def test_a_run_that_still_trains_has_no_error_to_show(tmp_path, write_run):
    write_run(tmp_path, "xbn", status="running")
    path = write_report(read_comparison([tmp_path]), tmp_path / "report.html")
    assert "no error recorded" in path.read_text(encoding="utf-8")
