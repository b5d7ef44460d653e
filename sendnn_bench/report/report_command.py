"""`sendnn-bench report`: print a saved result again. Needs neither vLLM nor a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sendnn_bench.errors import UsageError
from sendnn_bench.metrics import Summary, percentile_word
from sendnn_bench.report import console
from sendnn_bench.report.overview import Overview, overview
from sendnn_bench.report.vllm_table import render_vllm
from sendnn_bench.results import load


def report(path: Path, percentiles: str | None, as_json: bool) -> str:
    """The report of a result file, ending in a newline.

    Raises:
        ResultError: the file cannot be read or is damaged.
        UsageError: ``percentiles`` are not numbers from 0 to 100.
    """
    view = overview(load(path), None if percentiles is None else parse_percentiles(percentiles))
    return render_json(view) if as_json else render_text(view)


def parse_percentiles(text: str) -> tuple[float, ...]:
    """`50,90,99.9` as numbers.

    Raises:
        UsageError: something else.
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (-1.0,)
    if not all(0 <= value <= 100 for value in values):
        raise UsageError(
            f"--percentiles {text!r} is not a list of numbers from 0 to 100, such as 50,90,99."
        )
    return values


def render_text(view: Overview) -> str:
    """vLLM's table, ours, what to know."""
    parts = [render_vllm(view)]
    if view.ours:
        parts.append(console.section(view.coverage, view.totals, view.ours))
    parts += [text for text in [console.render_host(view.host)] if text]
    parts += [f"Note: {text}" for text in notes(view)]
    return "\n".join(parts) + "\n"


def notes(view: Overview) -> list[str]:
    """Findings, and percentiles that could not be told."""
    if not view.missing:
        return list(view.findings)
    text = (
        f"not in {view.result.path}, and not to be computed without per-request data "
        f"(--save-detailed): {', '.join(view.missing)}."
    )
    return [*view.findings, text]


def render_json(view: Overview) -> str:
    """The report for programs; every metric in its printed unit."""
    data = view.result.data
    metrics = [_as_object(metric.key, metric.title, "ms", summary) for metric, summary in view.vllm]
    metrics += [
        _as_object(metric.key, metric.title, metric.unit.printed, summary)
        for metric, summary in view.ours
    ]
    report = {
        "result": str(view.result.path),
        "mode": view.result.block.get("mode"),
        "run": _run(data),
        "metrics": metrics,
        "totals": {metric.total_key: value for metric, value in view.totals},
        "engine_host_us": view.host,
        "findings": list(view.findings),
        "missing": list(view.missing),
    }
    return json.dumps(report, indent=2) + "\n"


def _run(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the result says about the run as a whole: vLLM's keys up to those of the metrics."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if key.startswith(("mean_", "spyre_")):
            break
        if not isinstance(value, (list, dict)):
            found[key] = value
    return found


def _as_object(key: str, title: str, unit: str, summary: Summary) -> dict[str, Any]:
    return {
        "key": key,
        "title": title,
        "unit": unit,
        "mean": summary.mean,
        "median": summary.median,
        "percentiles": {percentile_word(p): value for p, value in summary.percentiles},
    }
