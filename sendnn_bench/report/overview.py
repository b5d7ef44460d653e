"""What a result tells, ready to print: summaries of vLLM's metrics and ours, totals, findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sendnn_bench.metrics import (
    METRICS,
    Metric,
    Record,
    Show,
    Summary,
    percentile_word,
    samples,
    summarise,
)
from sendnn_bench.report import console, findings
from sendnn_bench.report.compare_samples import VLLM_MEASURES, collect, number
from sendnn_bench.results import RequestRow, Result
from sendnn_bench.save import stat_key, total

DEFAULT_PERCENTILES = (99.0,)
"""vLLM's."""

_SAVED_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)_(?:ttft|tpot|itl|e2el)_ms")


@dataclass(frozen=True)
class VllmMetric:
    """One of the metrics that vLLM prints, in ms: its key, the title and label of its lines."""

    key: str
    title: str
    label: str


VLLM_METRICS = (
    VllmMetric("ttft", "Time to First Token", "TTFT (ms)"),
    VllmMetric("tpot", "Time per Output Token (excl. 1st token)", "TPOT (ms)"),
    VllmMetric("itl", "Inter-token Latency", "ITL (ms)"),
    VllmMetric("e2el", "End-to-end Latency", "E2EL (ms)"),
)

_READ = {measure.key: measure for measure in VLLM_MEASURES}


@dataclass(frozen=True)
class Overview:
    """The numbers of a report.

    ``missing`` names what was asked for and cannot be told. A percentile that is missing is left
    out of its summary, a metric without data out of the list.
    """

    result: Result
    percentiles: tuple[float, ...]
    vllm: tuple[tuple[VllmMetric, Summary], ...]
    ours: tuple[tuple[Metric, Summary], ...]
    totals: tuple[tuple[Metric, int | float], ...]
    coverage: tuple[str, ...]
    host: dict[str, dict[str, float]]
    """Real time of the engine by phase of a step, in us; empty where none was measured."""
    findings: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass
class _Reader:
    """Takes statistics from a result: as saved, else computed from its rows."""

    result: Result
    percentiles: Sequence[float]
    missing: list[str] = field(default_factory=list)

    def summary(
        self, name: str, key: Callable[[str], str], values: Sequence[float] | None
    ) -> Summary | None:
        """``values`` are the samples, None where the result has no rows."""
        computed = summarise(values, self.percentiles) if values else None
        mean, median = self._saved(key("mean")), self._saved(key("median"))
        if mean is None or median is None:
            return computed
        known: list[tuple[float, float]] = []
        for index, percentile in enumerate(self.percentiles):
            word = f"p{percentile_word(percentile)}"
            value = self._saved(key(word))
            if value is None and computed is not None:
                value = computed.percentiles[index][1]
            if value is None:
                self.missing.append(f"{word.upper()} of {name}")
            else:
                known.append((percentile, value))
        return Summary(mean, median, tuple(known), len(values or ()))

    def _saved(self, key: str) -> float | None:
        return number(self.result.data.get(key))


def overview(result: Result, percentiles: Sequence[float] | None = None) -> Overview:
    """Read a result; ``percentiles`` are those that were saved where None.

    Raises:
        ResultError: a damaged per-request column.
    """
    asked = tuple(percentiles if percentiles is not None else saved_percentiles(result))
    rows = result.rows() if result.detailed else None
    records = None if rows is None else [row.record for row in rows]
    reader = _Reader(result, asked)
    vllm = _vllm_summaries(reader, rows)
    ours = _our_summaries(reader, records)
    failed = sum(row.failed for row in rows or ())
    told = any(record is not None for record in records or ())
    return Overview(
        result=result,
        percentiles=asked,
        vllm=tuple(vllm),
        ours=tuple(ours),
        totals=tuple(_totals(result, records)),
        coverage=tuple(console.coverage(records or (), failed)) if told else (),
        host=_host(result),
        findings=tuple(_findings(result, rows, asked)),
        missing=tuple(reader.missing),
    )


def saved_percentiles(result: Result) -> tuple[float, ...]:
    """The percentiles in a result, in its order."""
    found = (_SAVED_PERCENTILE.fullmatch(key) for key in result.data)
    words = dict.fromkeys(match[1] for match in found if match)
    return tuple(float(word) for word in words) or DEFAULT_PERCENTILES


def _vllm_summaries(
    reader: _Reader, rows: Sequence[RequestRow] | None
) -> list[tuple[VllmMetric, Summary]]:
    """vLLM prints and saves what --percentile-metrics names; so do we."""
    found = []
    for metric in VLLM_METRICS:
        if f"mean_{metric.key}_ms" not in reader.result.data:
            continue
        values = None if rows is None else collect(_READ[metric.key], rows).values.tolist()
        summary = reader.summary(metric.label.split()[0], _READ[metric.key].stat_key, values)
        if summary is not None:
            found.append((metric, summary))
    return found


def _our_summaries(
    reader: _Reader, records: Sequence[Record | None] | None
) -> list[tuple[Metric, Summary]]:
    found = []
    for metric in METRICS:
        if metric.show is not Show.SECTION:
            continue
        values = None if records is None else samples(metric, records)
        summary = reader.summary(metric.title, partial(stat_key, metric=metric), values)
        if summary is not None:
            found.append((metric, summary))
    return found


def _totals(
    result: Result, records: Sequence[Record | None] | None
) -> list[tuple[Metric, int | float]]:
    found = []
    for metric in METRICS:
        value = result.data.get(metric.total_key) if metric.total_key else None
        if number(value) is None and metric.total_title:
            value = total(metric, records or ())
        if value is not None:
            found.append((metric, value))
    return found


def _host(result: Result) -> dict[str, dict[str, float]]:
    wall = result.block.get("wall")
    phases = wall.get("engine") if isinstance(wall, dict) else None
    known = phases if isinstance(phases, dict) else {}
    return {
        str(phase): times
        for phase, times in known.items()
        if isinstance(times, dict)
        and all(number(times.get(key)) is not None for key in ("mean_us", "p99_us"))
    }


def _findings(
    result: Result, rows: Sequence[RequestRow] | None, percentiles: Sequence[float]
) -> list[str]:
    """As saved after the run, when more was known; from the rows for results of other tools.

    What concerns percentiles is told of those that are shown.
    """
    saved = result.block.get("findings")
    if isinstance(saved, list):
        count = int(number(result.data.get("completed")) or 0)
        of_percentiles = findings.too_few(count, saved_percentiles(result))
        kept = [str(text) for text in saved if text not in of_percentiles]
        return [*kept, *findings.too_few(count, percentiles)]
    if result.block.get("partial"):
        return [f"The run did not reach its end: {result.block.get('reason')}"]
    return [] if rows is None else findings.find(findings.facts_of_rows(result, rows, percentiles))
