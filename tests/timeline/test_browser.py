"""The page in a real browser: `apt install chromium`, then `pytest -m browser`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from sendnn_bench.report.timeline import timeline_of_file
from sendnn_bench.report.timeline.segments import KIND_TITLES, Kind
from tests.timeline import runs
from tests.timeline.browser import chromium, open_timeline, wait_until

pytestmark = pytest.mark.browser

MS = runs.MS
EVIL = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Watched:
    """A page that remembers what went wrong on it and what it asked the network for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """Every test ends with the check that all was quiet."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    watched = Watched(page)
    yield watched
    page.close()
    assert watched.problems == []
    assert [url for url in watched.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in watched.asked) <= 1


def draw(watched: Watched, directory: Path, data: dict, thresholds: str | None = None) -> Page:
    result = runs.write(directory / "run.json", data)
    return open_timeline(watched.page, timeline_of_file(result, None, thresholds))


def hover(page: Page, row: int, at_ns: float) -> list[str]:
    place = page.evaluate("([row, ns]) => timeline.position(row, ns)", [row, at_ns])
    page.mouse.move(place["x"], place["y"])
    return page.inner_text("#tip").split("\n")


def kind_totals(page: Page) -> dict[str, dict]:
    return {total["title"]: total for total in page.evaluate("timeline.totals()")}


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream])
def test_requests_and_segment_totals_equal_the_json(make, watched, tmp_path):
    data = make(runs.arrivals(30, 20, gap_ms=300), failed=(4,), tkv_limit=4000, jitter_ns=MS)
    page = draw(watched, tmp_path, data)
    assert page.evaluate("timeline.requests.length") == len(data["start_times"])
    totals = kind_totals(page)
    columns = {Kind.PREFILL: "chunk_prefill", Kind.DECODE: "decode", Kind.PAUSE: "pause"}
    for kind, name in columns.items():
        told = [value for row in data[f"spyre_{name}_latencies_s"] for value in row]
        drawn = totals[KIND_TITLES[kind]]
        assert drawn["count"] == len(told)
        assert drawn["ns"] == pytest.approx(sum(told) * 1e9, abs=500 * len(told))
    queued = sum(value or 0 for value in data["spyre_queued_time_s"])
    assert totals[KIND_TITLES[Kind.QUEUE]]["ns"] == pytest.approx(queued * 1e9, abs=30_000)


def test_totals_of_a_plain_result_are_what_vllm_knows(watched, tmp_path):
    data = runs.plain(runs.arrivals(10, 10, gap_ms=200))
    totals = kind_totals(draw(watched, tmp_path, data))
    first, token = totals[KIND_TITLES[Kind.FIRST_TOKEN]], totals[KIND_TITLES[Kind.TOKEN]]
    assert (first["count"], token["count"]) == (10, 90)
    assert first["ns"] == pytest.approx(sum(data["ttfts"]) * 1e9, abs=20)
    assert token["ns"] == pytest.approx(sum(map(sum, data["itls"])) * 1e9, abs=200)
    assert not page_has_steps(watched.page)


def page_has_steps(page: Page) -> bool:
    return page.evaluate("document.getElementById('plot').textContent.includes('Batch size')")


def test_hover_tells_a_known_chunk_a_known_decode_step_and_a_known_wait(watched, tmp_path):
    """Prompts of 100 and 600 tokens: see the steps worked out in test_model.py."""
    data = runs.simulated([(0, 100, 3), (10 * MS, 600, 2)])
    page = draw(watched, tmp_path, data)
    assert hover(page, 1, 350 * MS) == [
        "Request #1",
        "Prefill chunk 2 of 2: 100 ms",
        "Virtual time 0.302 s to 0.402 s",
        "Tokens 88",
        "Batch size 1",
        "tkv 600",
        "KV blocks in use 10",
    ]
    assert hover(page, 0, 275 * MS) == [
        "Request #0",
        "Decode step 2 of 2: 51 ms",
        "Virtual time 0.251 s to 0.302 s",
        "Tokens 1",
        "Batch size 1",
        "tkv 102",
        "KV blocks in use 10",
    ]
    assert hover(page, 1, 80 * MS) == [
        "Request #1",
        "Queue wait: 141 ms",
        "Virtual time 0.01 s to 0.151 s",
    ]


def test_zoom_changes_the_level_of_detail(watched, tmp_path):
    data = runs.simulated(runs.arrivals(200, 100, gap_ms=300), max_batch=16)
    page = draw(watched, tmp_path, data)
    whole = page.evaluate("timeline.stats()")
    assert whole["segments"] > 2 * whole["runs"], "narrow neighbours must merge"
    middle = page.evaluate("timeline.whole().to / 2")
    page.evaluate("ns => timeline.show({ from: ns, to: ns + 1e9 })", middle)
    near = page.evaluate("timeline.stats()")
    assert near["segments"] < whole["segments"] / 10
    assert near["runs"] >= near["segments"] * 0.8, "wide segments must be drawn one by one"


def test_a_box_zooms_and_a_double_click_shows_all(watched, tmp_path):
    page = draw(watched, tmp_path, runs.simulated(runs.arrivals(20, 20, gap_ms=300)))
    box = page.locator("#plot").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, box["y"] + 260, steps=4)
    page.mouse.up()
    wait_until(page, "timeline.view().from > timeline.whole().from")
    view, whole = page.evaluate("[timeline.view(), timeline.whole()]")
    assert view["to"] < whole["to"]
    assert view["bottom"] - view["top"] < whole["bottom"] - whole["top"]
    assert page.evaluate("timeline.selected()") == -1
    page.mouse.dblclick(box["x"] + 500, box["y"] + 150)
    wait_until(page, "timeline.view().from === timeline.whole().from")


@pytest.mark.parametrize(
    ("by", "column"),
    [("ttft", "ttfts"), ("queue", "spyre_queued_time_s"), ("arrival", "start_times")],
)
def test_sorting(by, column, watched, tmp_path):
    data = runs.simulated(runs.arrivals(25, 10, gap_ms=200), failed=(3,))
    page = draw(watched, tmp_path, data)
    page.select_option("#sort", "e2el")
    page.select_option("#sort", by)
    order = page.evaluate("timeline.order()")
    assert sorted(order) == list(range(25))
    known = [data[column][row] for row in order if by == "arrival" or row != 3]
    assert known == sorted(known, reverse=by != "arrival")
    assert by == "arrival" or order[-1] == 3


def test_slowest_ten_are_the_rows_in_view(watched, tmp_path):
    data = runs.simulated(runs.arrivals(25, 10, gap_ms=200))
    page = draw(watched, tmp_path, data)
    page.click("#slowest")
    e2els = [t + sum(i) for t, i in zip(data["ttfts"], data["itls"], strict=True)]
    slowest = sorted(range(25), key=lambda row: -e2els[row])[:10]
    assert page.evaluate("timeline.order().slice(0, 10)") == slowest
    assert page.evaluate("[timeline.view().top, timeline.view().bottom]") == [-0.5, 9.5]


def test_search_click_and_keys_choose_a_request(watched, tmp_path):
    data = runs.simulated(runs.arrivals(25, 10, gap_ms=200), failed=(3,))
    page = draw(watched, tmp_path, data)
    page.fill("#search", "17")
    assert page.inner_text("#details h2") == "Request #17"
    page.fill("#search", "503")
    assert page.inner_text("#found") == "1 found"
    assert "too many" in page.inner_text("#details .error")
    place = page.evaluate("timeline.position(5, timeline.whole().to / 2)")
    page.mouse.click(place["x"], place["y"])
    details = page.inner_text("#details")
    assert "Request #5" in details
    assert f"Input tokens\n{data['input_lens'][5]}" in details
    page.keyboard.press("ArrowDown")
    assert page.evaluate("timeline.selected()") == 6
    page.keyboard.press("Enter")
    wait_until(page, "timeline.view().from > timeline.whole().from")
    page.keyboard.press("0")
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    assert page.is_hidden("#details")
    view, whole = page.evaluate("[timeline.view(), timeline.whole()]")
    assert view["to"] - view["from"] == pytest.approx((whole["to"] - whole["from"]) / 2)


def test_link_in_the_table_chooses_its_request(watched, tmp_path):
    page = draw(watched, tmp_path, runs.simulated(runs.arrivals(25, 10, gap_ms=200)))
    link = page.locator("main a").first
    wanted = link.inner_text()
    link.click()
    wait_until(page, "timeline.selected() >= 0")
    assert page.inner_text("#details h2") == f"Request {wanted}"


def test_markup_in_a_result_does_not_run(watched, tmp_path):
    data = runs.simulated(runs.arrivals(3, 3, gap_ms=50), failed=(1,))
    data["model_id"] = data["errors"][1] = EVIL
    data["spyre_request_id"] = [EVIL] * 3
    page = draw(watched, tmp_path, data)
    page.fill("#search", "1")
    hover(page, 1, data["spyre_arrival_ns"][0])
    assert EVIL in page.inner_text("h1")
    assert EVIL in page.inner_text("#details .error")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream, runs.plain])
def test_pages_without_success_and_with_one_request_are_drawn(make, watched, tmp_path):
    page = draw(watched, tmp_path, make(runs.arrivals(3, 3, gap_ms=50), failed=(0, 1, 2)))
    assert page.is_hidden("#status")
    assert "Not one request succeeded" in page.inner_text("body")
    page = open_timeline(
        page, timeline_of_file(runs.write(tmp_path / "one.json", make([(0, 100, 1)])), None, None)
    )
    assert page.evaluate("timeline.requests.length") == 1
    watched.asked = watched.asked[-1:]


def test_long_times_are_written_as_seconds(watched, tmp_path):
    data = runs.plain([(0, 100, 2)])
    data["start_times"], data["ttfts"], data["itls"] = [0.0], [59.9996], [[30 * 3600.0]]
    page = draw(watched, tmp_path, data)
    ticks = page.locator(".xtick").all_text_contents()
    assert "100000 s" in ticks
    assert hover(page, 0, 54_000e9)[1] == "Next token 1 of 1: 108000 s"


def test_dark_theme_and_no_javascript(browser, tmp_path):
    result = runs.write(tmp_path / "run.json", runs.simulated(runs.arrivals(3, 3, gap_ms=50)))
    out = timeline_of_file(result, None, None)
    context = browser.new_context(color_scheme="dark")
    page = open_timeline(context.new_page(), out)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    context.close()
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(out.as_uri())
    assert page.locator("table").count() == 3
    assert "needs JavaScript" in page.inner_text("body")
    context.close()
