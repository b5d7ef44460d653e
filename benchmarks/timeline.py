"""Size and speed of timeline.html on long runs, against the limits that it must keep.

Run from the repository root: `python -m benchmarks.timeline`. Needs Chromium and the test group.
Exit code 1 when a limit is broken. Runs in headless Chromium without a GPU.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from sendnn_bench.report.timeline import timeline_of_file
from tests.timeline import runs
from tests.timeline.browser import chromium, open_timeline

MB = 1_000_000
LONG_LIMITS = {
    "file_mb": 15.0,
    "write_s": 10.0,
    "first_paint_s": 3.0,
    "complete_s": 3.0,
    "slowest_zoom_s": 0.5,
}
SMALL_LIMITS = {
    "file_mb": 5.0,
    "write_s": 10.0,
    "first_paint_s": 3.0,
    "complete_s": 3.0,
    "slowest_zoom_s": 0.5,
}

ZOOM = """async share => {
  const whole = timeline.whole(), began = performance.now();
  const time = (whole.to - whole.from) * share, rows = (whole.bottom - whole.top) * share;
  await timeline.show({ from: whole.from + time * .5, to: whole.from + time * 1.5,
    top: whole.top + rows * .5, bottom: whole.top + rows * 1.5 });
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  return (performance.now() - began) / 1000;
}"""
"""Zoom to a share of time and rows; answers after the frame that shows it."""


@dataclass(frozen=True)
class Case:
    """A run to draw, and what its page may cost."""

    name: str
    make: Any
    requests: int
    tokens: int
    limits: dict[str, float]


CASES = (
    Case("64 x 64, simulated", runs.simulated, 64, 64, SMALL_LIMITS),
    Case("1,000 x 500, simulated", runs.simulated, 1000, 500, LONG_LIMITS),
    Case("1,000 x 500, real hardware", runs.upstream, 1000, 500, LONG_LIMITS),
    Case("1,000 x 500, plain vLLM", runs.plain, 1000, 500, LONG_LIMITS),
)


def measure(case: Case, browser: Browser, directory: Path) -> dict[str, float]:
    """Figures of one case, by the names of the limits."""
    schedule = runs.arrivals(case.requests, case.tokens, gap_ms=900)
    # Jitter makes every step's duration its own: the hardest case for compression.
    data = case.make(schedule, max_batch=32, jitter_ns=5 * runs.MS)
    result = runs.write(directory / f"{case.requests}-{case.make.__name__}.json", data)
    began = time.perf_counter()
    out = timeline_of_file(result, None, "60,80")
    write_s = time.perf_counter() - began
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    open_timeline(page, out)
    bars_s, drawn_s = page.evaluate(
        "['bars', 'drawn'].map(name => performance.getEntriesByName(name)[0].startTime / 1000)"
    )
    zooms = [page.evaluate(ZOOM, share) for share in (1, 0.5, 0.1, 0.01, 0.001, 0.5, 1)]
    segments = sum(total["count"] for total in page.evaluate("timeline.totals()"))
    page.close()
    return {
        "file_mb": out.stat().st_size / MB,
        "write_s": write_s,
        "first_paint_s": bars_s,
        "complete_s": drawn_s,
        "slowest_zoom_s": max(zooms),
        "segments": segments,
    }


def main() -> int:
    """Measure all cases and print one line for each figure."""
    broken = 0
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        for case in CASES:
            figures = measure(case, browser, Path(directory))
            print(f"{case.name}: {figures.pop('segments'):,.0f} segments")
            for name, value in figures.items():
                limit = case.limits[name]
                broken += value > limit
                verdict = "ok" if value <= limit else "BROKEN"
                print(f"  {name:<16}{value:8.2f}  (at most {limit:g})  {verdict}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
