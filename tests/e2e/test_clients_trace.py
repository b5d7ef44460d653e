"""A load that brings its own times, on a virtual server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sendnn_bench.serve_command import run_serve
from tests.e2e.conftest import Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ARRIVALS_NS = (0, 0, 333_333_333, 1_000_000_001, 1_000_000_001, 86_400_000_000_007)
"""Two pairs at once, an odd nanosecond, and one request a day later."""


def test_a_timed_trace_is_replayed_to_the_nanosecond(spyre_server: Server, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {
            "timestamp": when_ns / 1e9,
            "input_length": 48,
            "output_length": 4,
            "hash_ids": [row, 9, 9],
        }
        for row, when_ns in enumerate(ARRIVALS_NS)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    run_serve(
        [
            *("--model", "sim-granite-8b", "--base-url", spyre_server.url, "--disable-tqdm"),
            *("--dataset-name", "timed_trace", "--dataset-path", str(trace)),
            *("--num-prompts", str(len(lines)), "--save-result", "--save-detailed"),
            *("--result-dir", str(tmp_path), "--result-filename", "trace.json"),
        ]
    )
    result = json.loads((tmp_path / "trace.json").read_text())
    assert result["spyre_arrival_ns"] == list(ARRIVALS_NS)
    assert result["output_lens"] == [4] * len(lines)
    assert result["ttfts"][-1] == pytest.approx(0.1), "alone, a day later"
