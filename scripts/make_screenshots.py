"""Make the pictures of docs/timeline.md: `python -m scripts.make_screenshots`.

The run is made up, small and always the same; nothing is measured. Needs Chromium and the test
group.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sendnn_bench.report.timeline import timeline_of_file
from tests.timeline import runs
from tests.timeline.browser import chromium, open_timeline

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WHOLE = "timeline.show({})"
NEAR = "timeline.show({ from: 8e9, to: 13e9, top: 4.5, bottom: 14.5 })"
SHOTS = (
    ("timeline-light.png", "light", WHOLE),
    ("timeline-dark.png", "dark", WHOLE),
    ("timeline-zoom.png", "light", NEAR),
)
"""File, colour scheme, and the view."""


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(exist_ok=True)
    schedule = runs.arrivals(40, 40, gap_ms=700)
    data = runs.simulated(schedule, failed=(7,), tkv_limit=5000)
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        result = runs.write(Path(directory) / "run.json", data)
        page_file = timeline_of_file(result, None, "52.5,120")
        for name, scheme, view in SHOTS:
            page = browser.new_page(viewport={"width": 1280, "height": 1100}, color_scheme=scheme)  # type: ignore[arg-type]
            open_timeline(page, page_file)
            page.evaluate(view)
            page.screenshot(path=IMAGES / name)
            page.close()


if __name__ == "__main__":
    main()
