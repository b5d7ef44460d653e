"""The metric declarations as a text for people, a docs page, or JSON. Needs no server."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sendnn_bench.metrics import METRICS, Metric, Show
from sendnn_bench.results import write_atomically

WIDTH = 88

INTRODUCTION = (
    "Metrics that sendnn-bench reports beside those of `vllm bench serve`. The key is the name in "
    "the `spyre_metrics` record that a server streams; the column holds one entry per request in "
    "a result saved with --save-detailed, null where a request has none."
)


def render_text(metrics: Sequence[Metric] = METRICS) -> str:
    """One paragraph a metric, wrapped for a terminal."""
    parts = [textwrap.fill(INTRODUCTION, WIDTH)]
    for metric in metrics:
        facts = [f"{name}: {value}" for name, value in _facts(metric)]
        lines = [metric.description, *facts]
        body = [
            textwrap.fill(
                line,
                WIDTH,
                initial_indent="    ",
                subsequent_indent="    ",
                break_on_hyphens=False,
                break_long_words=False,
            )
            for line in lines
        ]
        parts.append("\n".join([metric.title, *body]))
    return "\n\n".join(parts) + "\n"


def render_markdown(metrics: Sequence[Metric] = METRICS) -> str:
    """The docs page."""
    parts = ["# Metrics", INTRODUCTION]
    for metric in metrics:
        facts = "\n".join(f"- {name}: {_code(name, value)}" for name, value in _facts(metric))
        parts += [f"## {metric.title}", metric.description, facts]
    parts.append("Made by `sendnn-bench describe-metrics --format md`.")
    return "\n\n".join(parts) + "\n"


def render_json(metrics: Sequence[Metric] = METRICS) -> str:
    """A list of objects, one a metric."""
    return json.dumps([_as_object(metric) for metric in metrics], indent=2) + "\n"


FORMATS: dict[str, Callable[[], str]] = {
    "text": render_text,
    "md": render_markdown,
    "json": render_json,
}


def write_description(path: Path) -> None:
    """Write the text form, for `serve --describe-metrics`.

    Raises:
        ResultError: the file cannot be written.
    """
    write_atomically(path, render_text())


def _facts(metric: Metric) -> list[tuple[str, str]]:
    rows = [
        ("key", metric.key),
        ("column", metric.column),
        ("unit", _unit(metric)),
        ("one value per", metric.per.value),
        ("shown", metric.show.value),
        ("sum over all requests", metric.total_key),
        ("computed by", metric.computed),
    ]
    return [(name, value) for name, value in rows if value]


def _unit(metric: Metric) -> str:
    stored, printed = metric.unit.stored, metric.unit.printed
    differs = printed not in ("", stored) and metric.show is Show.SECTION
    return f"{stored} (printed in {printed})" if differs else stored


def _code(name: str, value: str) -> str:
    return f"`{value}`" if name in _CODE_FACTS else value


_CODE_FACTS = ("key", "column", "computed by", "sum over all requests")


def _as_object(metric: Metric) -> dict[str, Any]:
    return {
        "key": metric.key,
        "column": metric.column,
        "title": metric.title,
        "unit": metric.unit.stored,
        "printed_unit": metric.unit.printed,
        "per": metric.per.value,
        "show": metric.show.name.lower(),
        "description": metric.description,
        "computed": metric.computed,
        "total_key": metric.total_key or None,
    }
