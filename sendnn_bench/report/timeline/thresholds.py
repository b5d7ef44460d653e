"""The two limits that colour decode steps."""

from __future__ import annotations

import math

from sendnn_bench.errors import UsageError


def parse_decode_thresholds(text: str) -> tuple[float, float]:
    """Read ``LOW,HIGH`` in milliseconds.

    Raises:
        UsageError: not two finite numbers with 0 < LOW < HIGH.
    """
    try:
        low_ms, high_ms = (float(part) for part in text.split(","))
    except ValueError:
        low_ms, high_ms = math.nan, math.nan
    if not 0 < low_ms < high_ms < math.inf:
        raise UsageError(
            f"--decode-thresholds takes LOW,HIGH in milliseconds with 0 < LOW < HIGH, such as "
            f"60,120; got {text!r}."
        )
    return low_ms, high_ms
