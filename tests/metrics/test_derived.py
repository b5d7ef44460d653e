"""Metrics that the client derives from what the server sends."""

from __future__ import annotations

import pytest

from sendnn_bench.metrics import METRICS, Record

BY_KEY = {metric.key: metric for metric in METRICS}


@pytest.mark.parametrize(
    ("key", "record", "value"),
    [
        ("num_pauses", {"pause_latencies_s": [0.5, 0.25]}, 2),
        ("num_pauses", {"pause_latencies_s": []}, 0),
        ("num_pauses", {}, None),
        ("total_pause_s", {"pause_latencies_s": [0.5, 0.25]}, 0.75),
        ("total_pause_s", {"pause_latencies_s": []}, 0.0),
        ("total_pause_s", {}, None),
    ],
)
def test_a_derived_value(key: str, record: Record, value: float | None) -> None:
    assert BY_KEY[key].read(record) == value
