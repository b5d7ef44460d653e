"""Detailed results made up for tests: what a point's run would have saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def detailed(
    *, ttfts_s: list[float], gap_s: float = 0.05, tokens: int = 3, duration_s: float = 10.0
) -> dict[str, Any]:
    """A result whose requests all have the same gaps between tokens."""
    count = len(ttfts_s)
    return {
        "model_id": "tiny",
        "duration": duration_s,
        "completed": count,
        "failed": 0,
        "request_throughput": count / duration_s,
        "output_throughput": count * tokens / duration_s,
        "total_token_throughput": count * (tokens + 8) / duration_s,
        "input_lens": [8] * count,
        "output_lens": [tokens] * count,
        "start_times": [float(index) for index in range(count)],
        "ttfts": ttfts_s,
        "itls": [[gap_s] * (tokens - 1)] * count,
        "errors": [""] * count,
        "sendnn": {
            "schema": 1,
            "partial": False,
            "findings": [],
            "wall": {"duration_s": 2.0},
        },
    }


def write(path: Path, data: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path
