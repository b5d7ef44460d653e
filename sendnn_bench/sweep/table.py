"""A sweep as a plain table, for a terminal; the page shows the same cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sendnn_bench.sweep.analysis import Analysis
from sendnn_bench.sweep.grid import label
from sendnn_bench.sweep.slo import describe
from sendnn_bench.sweep.summary import Row, Summary, setting_names

MESSAGE_LENGTH = 60


@dataclass(frozen=True)
class Cell:
    """A column of the table: its head, the key of its number, its digits and factor."""

    head: str
    key: str
    digits: int = 1
    factor: float = 1.0


CELLS = (
    Cell("failed", "failed", 0),
    Cell("req/s", "request_throughput", 2),
    Cell("tok/s", "output_throughput"),
    Cell("tok/s/user", "user_throughput", 2),
    Cell("TTFT med ms", "median_ttft_ms"),
    Cell("TTFT P99 ms", "p99_ttft_ms"),
    Cell("TPOT med ms", "median_tpot_ms"),
    Cell("TPOT P99 ms", "p99_tpot_ms"),
    Cell("wait med ms", "spyre_median_queued_time_ms"),
    Cell("goodput req/s", "request_goodput", 2),
    Cell("in time %", "good_share", 1, 100.0),
)

Rows = list[list[str]]


def cells(summary: Summary, analysis: Analysis) -> tuple[list[str], Rows]:
    """Heads and rows. A column without data is left out, and `failed` where nothing failed."""
    names = setting_names(summary.rows)
    shown = [cell for cell in CELLS if _worth_showing(cell, summary.rows)]
    pareto, knees = set(analysis.pareto), analysis.knees()
    heads = [*names, *(cell.head for cell in shown), ""]
    rows = []
    for index, row in enumerate(summary.rows):
        settings = dict((*row.server, *row.load))
        marks = ["pareto"] * (index in pareto) + ["knee"] * (row in knees)
        numbers = [_text(cell, row.numbers.get(cell.key)) for cell in shown]
        rows.append(
            [*(settings.get(name, "") for name in names), *numbers, _state(row) or " ".join(marks)]
        )
    return heads, rows


def notes(summary: Summary, analysis: Analysis) -> list[str]:
    """Sentences below the table."""
    found = [
        f"Best goodput{f' with {label(row.server)}' if row.server else ''}: "
        f"{row.numbers['request_goodput']:.2f} req/s at {label(row.load) or 'this load'} "
        f"({100 * (row.numbers['good_share'] or 0):.1f} % of requests in time)."
        for row in analysis.best
    ]
    if found:
        found.insert(0, f"In time means: {describe(summary.slo)}.")
    return [*found, *_findings(summary.rows)]


def _findings(rows: Sequence[Row]) -> list[str]:
    """Each kind of finding once, with the first point that has it; kinds differ in their words."""
    kinds: dict[str, list[tuple[Row, str]]] = {}
    for row in rows:
        for text in row.findings:
            kinds.setdefault(re.sub(r"[\d.,]+", "#", text), []).append((row, text))
    told = []
    for (first, text), *others in kinds.values():
        more = f", and at {len(others)} other points the like" if others else ""
        told.append(f"At {first.label}{more}: {text}")
    return told


def render(summary: Summary, analysis: Analysis) -> str:
    """The table and its notes."""
    heads, rows = cells(summary, analysis)
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    settings = len(setting_names(summary.rows))
    lines = [_line(row, widths, settings) for row in [heads, *rows]]
    return "\n".join([*lines, *(["", *notes(summary, analysis)])]).rstrip() + "\n"


def _line(row: Sequence[str], widths: Sequence[int], settings: int) -> str:
    last = len(row) - 1
    parts = []
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        left: Callable[[int], str] = text.ljust if index in (*range(settings), last) else text.rjust
        parts.append(left(width))
    return "  ".join(parts).rstrip()


def _worth_showing(cell: Cell, rows: Sequence[Row]) -> bool:
    values = [row.numbers.get(cell.key) for row in rows]
    return any(values) if cell.key == "failed" else any(value is not None for value in values)


def _text(cell: Cell, value: float | None) -> str:
    return "" if value is None else f"{value * cell.factor:.{cell.digits}f}"


def _state(row: Row) -> str:
    if row.status == "done":
        return ""
    if row.status == "open":
        return "not run"
    return f"failed ({row.exit_code}): {row.reason[:MESSAGE_LENGTH]}"
