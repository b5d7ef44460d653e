"""What `compare` looks at in a result: scalars, and samples of every metric by request."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sendnn_bench.metrics import (
    COLUMN_PREFIX,
    METRICS,
    Metric,
    Show,
    Unit,
    percentile_word,
    samples,
)
from sendnn_bench.results import RequestRow, Result

Floats = NDArray[np.float64]
MS_PER_S = 1e3


@dataclass(frozen=True)
class Measure:
    """A metric with many samples; ``stem`` and ``unit_suffix`` make its keys in the result JSON."""

    key: str
    title: str
    unit: str
    read: Callable[[RequestRow], list[float]]
    prefix: str = ""
    unit_suffix: str = "_ms"

    def stat_key(self, statistic: str) -> str:
        """Key of an aggregate, such as `mean_ttft_ms` or `spyre_p99_queued_time_ms`."""
        return f"{self.prefix}{statistic}_{self.key}{self.unit_suffix}"


@dataclass(frozen=True)
class Scalar:
    """A number that a result has once."""

    key: str
    title: str
    unit: str


@dataclass(frozen=True)
class Samples:
    """Samples of one measure: values in the printed unit, each with the index of its request."""

    values: Floats
    owner: NDArray[np.int64]
    requests: int


def _tpot(row: RequestRow) -> list[float]:
    """vLLM's definition: the time after the first token over the tokens after the first."""
    if row.output_tokens < 2:
        return []
    return [sum(row.itl_s) / (row.output_tokens - 1) * MS_PER_S]


VLLM_MEASURES = (
    Measure("ttft", "Time to First Token", "ms", lambda row: [row.ttft_s * MS_PER_S]),
    Measure("tpot", "Time per Output Token", "ms", _tpot),
    Measure("itl", "Inter-Token Latency", "ms", lambda row: [v * MS_PER_S for v in row.itl_s]),
    Measure("e2el", "End-to-End Latency", "ms", lambda row: [row.e2el_s * MS_PER_S]),
)

_UNIT_SUFFIX = {Unit.SECONDS: ("_s", "_ms"), Unit.NANOSECONDS: ("_ns", "_ms")}


def _of_metric(metric: Metric) -> Measure:
    stored, printed = _UNIT_SUFFIX.get(metric.unit, ("", ""))
    return Measure(
        key=metric.key.removesuffix(stored),
        title=metric.title,
        unit=metric.unit.printed,
        read=lambda row: samples(metric, [row.record]),
        prefix=COLUMN_PREFIX,
        unit_suffix=printed,
    )


MEASURES = (
    *VLLM_MEASURES,
    *(_of_metric(metric) for metric in METRICS if metric.show is Show.SECTION),
)

SCALARS = (
    Scalar("duration", "Benchmark duration", "s"),
    Scalar("completed", "Successful requests", ""),
    Scalar("failed", "Failed requests", ""),
    Scalar("total_input_tokens", "Input tokens", ""),
    Scalar("total_output_tokens", "Output tokens", ""),
    Scalar("request_throughput", "Request throughput", "req/s"),
    Scalar("request_goodput", "Request goodput", "req/s"),
    Scalar("output_throughput", "Output token throughput", "tok/s"),
    Scalar("total_token_throughput", "Total token throughput", "tok/s"),
    Scalar("max_output_tokens_per_s", "Peak output token throughput", "tok/s"),
    Scalar("max_concurrent_requests", "Peak concurrent requests", ""),
    *(Scalar(metric.total_key, metric.total_title, "") for metric in METRICS if metric.total_key),
)


def number(value: Any) -> float | None:
    """The value as a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def collect(measure: Measure, rows: Sequence[RequestRow]) -> Samples:
    """Samples of all requests that did not fail, in order of requests."""
    parts = [[] if row.failed else measure.read(row) for row in rows]
    return Samples(
        values=np.array([value for part in parts for value in part], dtype=np.float64),
        owner=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        requests=len(parts),
    )


def statistics(percentiles: Sequence[float]) -> list[tuple[str, float | None]]:
    """Names of the statistics with their percentile, None for the mean."""
    named = [(f"p{percentile_word(p)}", p) for p in percentiles]
    return [("mean", None), ("median", 50.0), *named]


def point(samples_: Samples, percentile: float | None) -> float | None:
    """Mean or percentile of all samples, None where there are none."""
    if not len(samples_.values):
        return None
    if percentile is None:
        return float(samples_.values.mean())
    return float(np.percentile(samples_.values, percentile))


def aggregate(result: Result, measure: Measure, statistic: str) -> float | None:
    """The statistic as the file itself tells it."""
    return number(result.data.get(measure.stat_key(statistic)))
