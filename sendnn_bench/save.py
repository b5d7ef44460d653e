"""Make the result JSON out of vLLM's, and save it so that nothing is lost.

vLLM's keys come first, in vLLM's order, untouched. Then ours:

- per-request columns ``spyre_<key>``, one for every metric with data, aligned with vLLM's rows and
  null for a request that failed or has no metrics (only with --save-detailed);
- totals, under the ``total_key`` of their metric; null where no request has the metric;
- ``spyre_mean_<name>``, ``spyre_median_<name>``, ``spyre_p99_<name>`` for the metrics of the
  printed section that have data. As vLLM's ``mean_ttft_ms``, the name ends in the printed unit:
  `queued_time_s` gives ``spyre_mean_queued_time_ms``. A percentage is in percent here, while its
  column holds the fraction;
- the ``sendnn`` block: what ran, how, and on which versions. What differs between two runs that
  are otherwise equal (wall time, dates) is kept in its ``wall`` part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sendnn_bench.errors import ResultError
from sendnn_bench.metrics import (
    COLUMN_PREFIX,
    METRICS,
    Metric,
    Record,
    Show,
    Unit,
    percentile_word,
    samples,
    summarise,
)
from sendnn_bench.results import BLOCK_KEY, write_atomically

DETAILED_FIELDS = (
    "input_lens",
    "output_lens",
    "start_times",
    "ttfts",
    "itls",
    "generated_texts",
    "errors",
)
"""vLLM's per-request columns, left out without --save-detailed."""

_UNIT_SUFFIX = {Unit.SECONDS: ("_s", "_ms"), Unit.NANOSECONDS: ("_ns", "_ms")}


def compose(
    vllm_result: Mapping[str, Any],
    records: Sequence[Record | None],
    percentiles: Sequence[float],
    block: Mapping[str, Any],
    detailed: bool,
) -> dict[str, Any]:
    """The whole result. ``vllm_result`` is vLLM's, with per-request columns."""
    kept = {
        key: value for key, value in vllm_result.items() if detailed or key not in DETAILED_FIELDS
    }
    return {
        **kept,
        **(columns(records) if detailed else {}),
        **aggregates(records, percentiles),
        BLOCK_KEY: dict(block),
    }


def columns(records: Sequence[Record | None]) -> dict[str, list[Any]]:
    """One aligned column for every metric that at least one request has."""
    table = {metric.column: [metric.read(record) for record in records] for metric in METRICS}
    return {
        key: column for key, column in table.items() if any(cell is not None for cell in column)
    }


def aggregates(records: Sequence[Record | None], percentiles: Sequence[float]) -> dict[str, Any]:
    """Totals, means, medians and percentiles."""
    found: dict[str, Any] = {
        metric.total_key: total(metric, records) for metric in METRICS if metric.total_key
    }
    for metric in METRICS:
        summary = summarise(samples(metric, records), percentiles)
        if metric.show is not Show.SECTION or summary is None:
            continue
        found[stat_key("mean", metric)] = summary.mean
        found[stat_key("median", metric)] = summary.median
        for percentile, value in summary.percentiles:
            found[stat_key(f"p{percentile_word(percentile)}", metric)] = value
    return found


def total(metric: Metric, records: Sequence[Record | None]) -> int | float | None:
    """Sum of a metric over all requests, or None where no request has it."""
    values = [value for record in records if (value := metric.read(record)) is not None]
    return sum(values) if values else None


def stat_key(statistic: str, metric: Metric) -> str:
    """JSON key of a statistic: `mean` of `queued_time_s` is `spyre_mean_queued_time_ms`."""
    stored, printed = _UNIT_SUFFIX.get(metric.unit, ("", ""))
    return f"{COLUMN_PREFIX}{statistic}_{metric.key.removesuffix(stored)}{printed}"


def save(result: Mapping[str, Any], path: Path, append: bool) -> None:
    """Write the result, or append it as one line, separated as vLLM separates them.

    Raises:
        ResultError: the file cannot be written.
    """
    text = json.dumps(result)
    if not append:
        write_atomically(path, text)
        return
    try:
        with path.open("a", encoding="utf-8") as out:
            out.write(("\n" if out.tell() else "") + text)
    except OSError as error:
        raise ResultError(f"{path} cannot be written: {error.strerror}.") from error


def partial_columns(outputs: Sequence[Any]) -> dict[str, Any]:
    """vLLM's per-request columns and counts for a run that did not reach its end.

    ``outputs`` are what vLLM's request functions returned, in the order of submission.
    """
    return {
        "completed": sum(output.success for output in outputs),
        "failed": sum(not output.success for output in outputs),
        "input_lens": [output.prompt_len for output in outputs],
        "output_lens": [output.output_tokens or 0 for output in outputs],
        "ttfts": [output.ttft for output in outputs],
        "itls": [output.itl for output in outputs],
        "start_times": [output.start_time for output in outputs],
        "generated_texts": [output.generated_text for output in outputs],
        "errors": [output.error for output in outputs],
    }
