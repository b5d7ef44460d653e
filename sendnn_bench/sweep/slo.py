"""Goodput: requests per second that met every service level objective, as vLLM defines it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sendnn_bench.errors import UsageError
from sendnn_bench.report.compare_samples import MS_PER_S
from sendnn_bench.results import RequestRow

Slo = dict[str, float]
"""Limits in ms by metric."""

NAMES = ("ttft", "tpot", "e2el")

ROUNDING = 1e-9
"""A sum of gaps that equals the limit may come out above it by as much, relative to the limit."""


def parse_slo(pairs: Sequence[str]) -> Slo:
    """`ttft:500 tpot:60`, in ms, as `vllm bench serve --goodput` takes them.

    Raises:
        UsageError: another metric, or a limit that is not above 0.
    """
    found: Slo = {}
    for pair in pairs:
        name, _, text = pair.partition(":")
        try:
            limit = float(text)
        except ValueError:
            limit = 0.0
        if name not in NAMES or not 0 < limit < math.inf:
            raise UsageError(
                f"--goodput {pair!r} is not NAME:MILLISECONDS; names are {', '.join(NAMES)}, such "
                "as ttft:500 tpot:60."
            )
        found[name] = limit
    return found


def describe(slo: Slo) -> str:
    """Such as `TTFT at most 500 ms, TPOT at most 60 ms`."""
    return ", ".join(f"{name.upper()} at most {limit:g} ms" for name, limit in slo.items())


def good(row: RequestRow, slo: Slo) -> bool:
    """Whether a request met every objective; a failed one never does.

    A single token has no time per output token: as for vLLM, it meets any.
    """
    if row.failed:
        return False
    gaps_s = sum(row.itl_s)
    measured = {
        "ttft": row.ttft_s,
        "tpot": gaps_s / (row.output_tokens - 1) if row.output_tokens > 1 else 0.0,
        "e2el": row.e2el_s,
    }
    return all(measured[name] * MS_PER_S <= limit * (1 + ROUNDING) for name, limit in slo.items())
