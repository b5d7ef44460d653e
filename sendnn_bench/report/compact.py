"""One compact table of vLLM's metrics and ours, with all percentiles beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from sendnn_bench.metrics import Summary, percentile_word
from sendnn_bench.report.compare_text import PLAIN_WIDTH
from sendnn_bench.report.overview import Overview

Row = tuple[str, ...]


def print_compact(view: Overview, out: IO[str], color: bool | None = None) -> None:
    """Write the table, coloured only on a terminal (``color`` overrides what rich finds)."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=out, force_terminal=color, highlight=False)
    if not console.is_terminal:
        console = Console(file=out, width=PLAIN_WIDTH, color_system=None, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, header in enumerate(header_of(view)):
        table.add_column(header, justify="left" if index < 2 else "right", no_wrap=True)
    for name, unit, *numbers in rows_of(view):
        table.add_row(escape(name), unit, *numbers)
    console.print(table)
    for text in (*view.coverage, *_totals(view)):
        console.print(escape(text))


def header_of(view: Overview) -> Row:
    """Column titles."""
    return ("Metric", "", "Mean", "Median", *(f"P{percentile_word(p)}" for p in view.percentiles))


def rows_of(view: Overview) -> Iterator[Row]:
    """A row of cells for each metric; empty where a percentile is not known."""
    for metric, summary in view.vllm:
        yield (metric.title, "ms", *_cells(view, summary))
    for ours, summary in view.ours:
        yield (ours.title, ours.unit.printed, *_cells(view, summary))


def _cells(view: Overview, summary: Summary) -> Iterator[str]:
    known = dict(summary.percentiles)
    for value in (summary.mean, summary.median, *map(known.get, view.percentiles)):
        yield "" if value is None else f"{value:.2f}"


def _totals(view: Overview) -> Iterator[str]:
    for metric, value in view.totals:
        yield f"{f'{metric.total_title}:':<40} {value}"
