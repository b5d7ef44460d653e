"""The numbers of one point, read from its detailed result: one declaration each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from sendnn_bench.report.compare_samples import (
    MEASURES,
    MS_PER_S,
    Measure,
    Samples,
    collect,
    number,
    point,
)
from sendnn_bench.results import RequestRow, Result
from sendnn_bench.sweep.slo import Slo, good

Numbers = dict[str, float | None]
"""By key of a column; None where the result cannot tell."""


class Run:
    """A result with what several numbers need of it."""

    def __init__(self, result: Result, slo: Slo) -> None:
        self.result, self.slo = result, slo
        self._samples: dict[str, Samples] = {}

    @cached_property
    def rows(self) -> list[RequestRow]:
        """Per-request rows."""
        return self.result.rows()

    @cached_property
    def good(self) -> int | None:
        """Requests that met every objective; None without objectives."""
        return sum(good(row, self.slo) for row in self.rows) if self.slo else None

    def scalar(self, key: str) -> float | None:
        """A number of the result."""
        return number(self.result.data.get(key))

    def statistic(self, measure: Measure, percentile: float | None) -> float | None:
        """Mean (None) or percentile of a measure over all requests that did not fail."""
        if measure.key not in self._samples:
            self._samples[measure.key] = collect(measure, self.rows)
        return point(self._samples[measure.key], percentile)


@dataclass(frozen=True)
class Column:
    """One number of every point."""

    key: str
    title: str
    unit: str
    read: Callable[[Run], float | None]


def _user_throughput(run: Run) -> float | None:
    tpot_ms = run.statistic(_MEASURES["tpot"], 50.0)
    return MS_PER_S / tpot_ms if tpot_ms else None


def _goodput(run: Run) -> float | None:
    duration_s = run.scalar("duration")
    return run.good / duration_s if run.good is not None and duration_s else None


def _good_share(run: Run) -> float | None:
    return run.good / len(run.rows) if run.good is not None and run.rows else None


_MEASURES = {measure.key: measure for measure in MEASURES}
_STATISTICS: tuple[tuple[str, str, float | None], ...] = (
    ("mean", "Mean", None),
    ("median", "Median", 50.0),
    ("p99", "P99", 99.0),
)


def _scalar(key: str, title: str, unit: str = "") -> Column:
    return Column(key, title, unit, lambda run: run.scalar(key))


def _statistics(measure: Measure, title: str) -> list[Column]:
    return [
        Column(
            measure.stat_key(statistic),
            f"{word} {title}",
            measure.unit,
            partial(Run.statistic, measure=measure, percentile=percentile),
        )
        for statistic, word, percentile in _STATISTICS
    ]


COLUMNS: tuple[Column, ...] = (
    _scalar("duration", "Duration", "s"),
    _scalar("completed", "Successful requests"),
    _scalar("failed", "Failed requests"),
    _scalar("request_throughput", "Request throughput", "req/s"),
    _scalar("output_throughput", "Output throughput", "tok/s"),
    _scalar("total_token_throughput", "Total token throughput", "tok/s"),
    Column(
        "user_throughput", "Output throughput per user (1 / median TPOT)", "tok/s", _user_throughput
    ),
    *_statistics(_MEASURES["ttft"], "TTFT"),
    *_statistics(_MEASURES["tpot"], "TPOT"),
    *_statistics(_MEASURES["itl"], "ITL"),
    *_statistics(_MEASURES["e2el"], "E2EL"),
    *_statistics(_MEASURES["queued_time"], "Queue Wait Time"),
    Column("request_goodput", "Request goodput", "req/s", _goodput),
    Column("good_share", "Requests that met the objectives", "fraction 0..1", _good_share),
)


def measure(result: Result, slo: Slo) -> Numbers:
    """All numbers of a detailed result.

    Raises:
        ResultError: no per-request data, or damaged columns.
    """
    run = Run(result, slo)
    return {column.key: column.read(run) for column in COLUMNS}


def columns_with_data(all_numbers: Sequence[Numbers]) -> list[Column]:
    """Those columns that at least one point has."""
    return [
        column
        for column in COLUMNS
        if any(numbers.get(column.key) is not None for numbers in all_numbers)
    ]
