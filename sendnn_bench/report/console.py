"""The `SenDNN Metrics` section, in the format of the table that `vllm bench serve` prints."""

from __future__ import annotations

from collections.abc import Sequence

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
from sendnn_bench.save import total

WIDTH = 50


def render(
    records: Sequence[Record | None],
    percentiles: Sequence[float],
    failed: int = 0,
    metrics: Sequence[Metric] = METRICS,
) -> str:
    """The section as text, without a newline at its end; empty where no request has metrics.

    ``records`` holds one entry per request, None where it failed or came without metrics;
    ``failed`` says how many failed. A metric without data is left out, never shown as zero.
    """
    if not any(record is not None for record in records):
        return ""
    lines = [f"{' SenDNN Metrics ':=^{WIDTH}}"]
    lines += [*_coverage(records, failed), *_totals(records, metrics)]
    for metric in metrics:
        if metric.show is Show.SECTION:
            summary = summarise(samples(metric, records), percentiles)
            lines += _section(metric, summary) if summary else []
    lines.append("=" * WIDTH)
    return "\n".join(lines)


def _coverage(records: Sequence[Record | None], failed: int) -> list[str]:
    """One line, where not every request has metrics."""
    missing = sum(record is None for record in records)
    if not missing:
        return []
    silent = missing - failed
    parts = [f"{failed} failed"] * bool(failed) + [f"{silent} sent none"] * (silent > 0)
    return [f"{'Requests without metrics:':<40} {missing} ({', '.join(parts)})"]


def _totals(records: Sequence[Record | None], metrics: Sequence[Metric]) -> list[str]:
    sums = [(metric, total(metric, records)) for metric in metrics if metric.total_title]
    return [
        f"{metric.total_title + ':':<40} {value:<10}" for metric, value in sums if value is not None
    ]


def _section(metric: Metric, summary: Summary) -> list[str]:
    rows = [("Mean", summary.mean), ("Median", summary.median)]
    rows += [(f"P{percentile_word(p)}", value) for p, value in summary.percentiles]
    header = f" {metric.title} "
    return [
        f"{header:-^{WIDTH}}",
        *(f"{f'{word} {metric.printed_label}:':<40} {value:<10.2f}" for word, value in rows),
    ]
