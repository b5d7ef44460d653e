"""The page of a sweep: whole, offline, and nothing in it is taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sendnn_bench.sweep.analysis import Analysis, analyse
from sendnn_bench.sweep.page import _plotly, render
from sendnn_bench.sweep.summary import Row, Summary, as_csv
from sendnn_bench.sweep.table import render as render_table
from tests.timeline.browser import chromium

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
SLO = {"ttft": 500.0}


def row(rate: int, size: str, ttft_ms: float) -> Row:
    return Row(
        server=(("max-num-seqs", size),),
        load=(("request-rate", str(rate)),),
        server_flags=("--max-num-seqs", size),
        client_flags=("--model", "m", "--request-rate", str(rate)),
        status="done",
        exit_code=0,
        file="r.json",
        numbers={
            "output_throughput": 100.0 * rate,
            "user_throughput": 20.0 / rate,
            "median_ttft_ms": ttft_ms / 2,
            "p99_ttft_ms": ttft_ms,
            "request_goodput": float(rate),
            "good_share": 1.0,
        },
    )


def failed(found: Row, message: str) -> Row:
    return replace(found, status="failed", exit_code=4, message=message, numbers={}, file=None)


def summary(size: str = "8", message: str = "no\nmore", model: str = "m") -> Summary:
    rows = [row(rate, size, ttft) for rate, ttft in ((1, 100), (2, 110), (3, 130), (4, 2000))]
    rows += [failed(row(5, size, 1), message), replace(row(6, size, 1), status="open", numbers={})]
    rows[0] = replace(rows[0], findings=(f"30 requests are few {size}",))
    rows[1] = replace(rows[1], findings=(f"60 requests are few {size}",))
    return Summary(model, SLO, tuple(rows))


def page(found: Summary) -> str:
    return render(found, analyse(found))


def without_library(text: str) -> str:
    library = _plotly()
    assert text.count(library) == 1
    return text.replace(library, "")


def test_it_holds_what_was_found() -> None:
    text = without_library(page(summary()))
    assert "<title>Sweep of m: 4 of 6 points</title>" in text
    assert text.count("<figure>") == 3
    assert "request-rate=5: exit code 4: no\nmore" in text
    assert "sendnn-bench sim-server MODEL --max-num-seqs 8\n" in text
    assert "Best goodput with max-num-seqs=8: 4.00 req/s at request-rate=4" in text
    assert "not run" in text


def test_it_loads_nothing() -> None:
    text = without_library(page(summary()))
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)\s*=", text)
    assert not re.search(r"https?://(?!www\.w3\.org)", text.replace("https://plot.ly", ""))


@pytest.mark.parametrize("where", ["size", "message", "model"])
def test_data_is_no_markup(where: str) -> None:
    text = without_library(page(summary(**{where: EVIL})))
    assert "<img" not in text
    assert "<script>document" not in text
    assert "onerror" in text  # it is told, as text


def test_without_results_it_says_so() -> None:
    found = Summary("m", {}, (failed(row(1, "8", 1), "no"),))
    assert "No point has a result yet" in page(found)
    assert analyse(found) == Analysis((), "", (), ())
    assert "failed (4): no" in render_table(found, analyse(found))


def test_one_point_has_no_curve() -> None:
    text = without_library(page(Summary("m", {}, (row(1, "8", 1),))))
    assert text.count("<figure>") == 1


def test_the_table() -> None:
    lines = render_table(summary(), analyse(summary())).splitlines()
    assert " ".join(lines[0].split()) == (
        "max-num-seqs request-rate tok/s tok/s/user TTFT med ms TTFT P99 ms goodput req/s in time %"
    )
    assert lines[3].endswith("100.0  pareto knee")
    assert lines[5].endswith("failed (4): no")
    assert lines[6].endswith("not run")
    assert "In time means: TTFT at most 500 ms." in lines
    told = "At max-num-seqs=8 request-rate=1, and at 1 other points the like: 30 requests are few 8"
    assert told in lines


def test_the_csv_leaves_empty_what_is_not_known() -> None:
    lines = as_csv(summary()).splitlines()
    assert lines[0].startswith("max-num-seqs,request-rate,status,exit_code,output_throughput,")
    assert lines[1].startswith("8,1,done,0,100.0,")
    assert lines[5] == "8,5,failed,4,,,,,,,"


@pytest.mark.browser
def test_a_browser_draws_every_figure(tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(page(summary(size=EVIL)))
    with chromium() as browser:
        tab = browser.new_page()
        problems: list[str] = []
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        tab.on("request", lambda r: None if r.url.startswith("file:") else problems.append(r.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#figure-3 svg.main-svg")
        assert tab.locator("svg.main-svg .scatterlayer").count() == 3
        assert tab.title() == "Sweep of m: 4 of 6 points"
        assert problems == []
