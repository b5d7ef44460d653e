"""The `SenDNN Metrics` section, in the format of the table that `vllm bench serve` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    totals = [(metric, total(metric, records)) for metric in metrics if metric.total_title]
    found = [
        (metric, summarise(samples(metric, records), percentiles))
        for metric in metrics
        if metric.show is Show.SECTION
    ]
    return section(
        coverage(records, failed),
        [(metric, value) for metric, value in totals if value is not None],
        [(metric, summary) for metric, summary in found if summary is not None],
    )


def section(
    head: Sequence[str],
    totals: Sequence[tuple[Metric, int | float]],
    summaries: Sequence[tuple[Metric, Summary]],
) -> str:
    """The section out of what has been computed."""
    lines = [f"{' SenDNN Metrics ':=^{WIDTH}}", *head]
    lines += [f"{f'{metric.total_title}:':<40} {value:<10}" for metric, value in totals]
    for metric, summary in summaries:
        lines += block(f" {metric.title} ", metric.printed_label, summary)
    lines.append("=" * WIDTH)
    return "\n".join(lines)


def block(title: str, label: str, summary: Summary) -> list[str]:
    """The lines of one metric, as vLLM prints them."""
    rows = [("Mean", summary.mean), ("Median", summary.median)]
    rows += [(f"P{percentile_word(p)}", value) for p, value in summary.percentiles]
    return [
        f"{title:-^{WIDTH}}",
        *(f"{f'{word} {label}:':<40} {value:<10.2f}" for word, value in rows),
    ]


def render_host(host: Mapping[str, Mapping[str, float]]) -> str:
    """The engine's real time per step by phase, as a section; empty where nothing was measured."""
    if not host:
        return ""
    lines = [f"{' Engine Host Time (real, per step) ':=^{WIDTH}}"]
    for phase, times in host.items():
        lines.append(f"{f'Mean {phase} (ms):':<40} {times['mean_us'] / 1e3:<10.3f}")
        lines.append(f"{f'P99 {phase} (ms):':<40} {times['p99_us'] / 1e3:<10.3f}")
    lines.append("=" * WIDTH)
    return "\n".join(lines)


def coverage(records: Sequence[Record | None], failed: int) -> list[str]:
    """One line, where not every request has metrics."""
    missing = sum(record is None for record in records)
    if not missing:
        return []
    silent = missing - failed
    parts = [f"{failed} failed"] * bool(failed) + [f"{silent} sent none"] * (silent > 0)
    return [f"{'Requests without metrics:':<40} {missing} ({', '.join(parts)})"]
