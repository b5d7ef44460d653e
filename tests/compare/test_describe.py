"""`describe-metrics` tells every declaration, and the docs page is made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sendnn_bench.metrics import METRICS
from sendnn_bench.report import describe

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.mark.parametrize("name", sorted(describe.FORMATS))
def test_every_metric_is_described(name: str) -> None:
    text = describe.FORMATS[name]()
    missing = [m.key for m in METRICS if m.column not in text or m.title not in text]
    assert missing == []


def test_json_tells_unit_and_description() -> None:
    by_key = {entry["key"]: entry for entry in json.loads(describe.render_json())}
    assert by_key["queued_time_s"]["unit"] == "s"
    assert by_key["queued_time_s"]["printed_unit"] == "ms"
    assert all(entry["description"] for entry in by_key.values())


def test_docs_page_is_current() -> None:
    made = describe.render_markdown()
    assert PAGE.read_text(encoding="utf-8") == made, (
        "docs/metrics.md is old: sendnn-bench describe-metrics --format md > docs/metrics.md"
    )


def test_write_description(tmp_path: Path) -> None:
    path = tmp_path / "new" / "sendnn_bench_metrics_description.txt"
    describe.write_description(path)
    assert path.read_text(encoding="utf-8") == describe.render_text()
