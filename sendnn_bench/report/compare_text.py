"""A comparison as a table for a terminal, as Markdown, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, Any

from sendnn_bench.report.compare import Comparison, Row
from sendnn_bench.report.compare_bootstrap import Interval

PLAIN_WIDTH = 200
"""Columns of a table that goes to a file or pipe, so that nothing is cut."""

HEADERS = ("", "Metric", "A", "B", "B - A", "%", "95 % interval of B - A")
MARK = "!"


def print_table(
    comparisons: Sequence[Comparison], tolerance: float, out: IO[str], color: bool | None = None
) -> None:
    """Write tables, coloured only on a terminal (``color`` overrides what rich finds)."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(file=out, force_terminal=color, highlight=False)
    if not console.is_terminal:
        console = Console(file=out, width=PLAIN_WIDTH, color_system=None, highlight=False)
    for found in comparisons:
        console.print(escape("\n".join(head_lines(found))))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for index, header in enumerate(HEADERS):
            table.add_column(header, justify="left" if index < 2 else "right", no_wrap=True)
        for row in found.rows:
            beyond = row.beyond(tolerance)
            cells = [escape(cell) for cell in cells_of(row, tolerance)]
            table.add_row(*cells, style="bold red" if beyond else None)
        console.print(table)
        console.print(escape(verdict(found, tolerance)) + "\n")


def render_markdown(comparisons: Sequence[Comparison], tolerance: float) -> str:
    """Lists and tables in Markdown."""
    parts = []
    for found in comparisons:
        parts += [f"{line}  " for line in head_lines(found)]
        rows = [HEADERS, tuple("---" if i < 2 else "---:" for i in range(len(HEADERS)))]
        rows += [cells_of(row, tolerance) for row in found.rows]
        lines = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
        parts += ["", *lines, "", verdict(found, tolerance), ""]
    return "\n".join(parts)


def render_json(comparisons: Sequence[Comparison], tolerance: float) -> str:
    """Everything, for programs; relative differences as fractions."""
    found = [_as_object(comparison, tolerance) for comparison in comparisons]
    return json.dumps({"tolerance": tolerance, "comparisons": found}, indent=2) + "\n"


def head_lines(found: Comparison) -> list[str]:
    """What is compared, and what to know before reading on."""
    lines = [f"A: {found.base.path}", f"B: {found.other.path}"]
    if found.workload:
        lines.append("NOT COMPARABLE, the loads differ:")
        lines += [f"  - {reason}" for reason in found.workload]
    if found.setup:
        lines.append("Set-ups differ:")
        lines += [f"  - {reason}" for reason in found.setup]
    if not found.sampled:
        lines.append(
            "At least one file has no per-request data (--save-detailed), so that there are no "
            "intervals, and only the statistics that both runs were asked for."
        )
    return lines


def verdict(found: Comparison, tolerance: float) -> str:
    """One line under the table."""
    count = len(found.beyond(tolerance))
    shared = sum(row.difference is not None for row in found.rows)
    return (
        f"{count} of {shared} numbers differ by more than {100 * tolerance:g} %"
        + (f" (marked {MARK})." if count else ".")
        + (" Same requests in both runs: intervals are of pairs." if found.paired else "")
    )


def cells_of(row: Row, tolerance: float) -> tuple[str, ...]:
    """The columns of :data:`HEADERS`."""
    words = [row.statistic.capitalize(), row.title]
    title = " ".join(word for word in words if word) + (f" ({row.unit})" if row.unit else "")
    relative = "" if row.relative is None else f"{100 * row.relative:+.2f}"
    return (
        MARK if row.beyond(tolerance) else "",
        title,
        _number(row.base),
        _number(row.other),
        _number(row.difference, sign="+"),
        _zero(relative),
        _interval(row.interval),
    )


def _number(value: float | None, sign: str = "") -> str:
    if value is None:
        return "none"
    if value == int(value) and abs(value) < 1e15:
        return format(int(value), f"{sign},d") if value else "0"
    return format(value, f"{sign},.3f")


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return "0" if interval == (0.0, 0.0) else f"{interval[0]:+,.3f} to {interval[1]:+,.3f}"


def _zero(text: str) -> str:
    return "0" if text in ("+0.00", "-0.00") else text


def _as_object(found: Comparison, tolerance: float) -> dict[str, Any]:
    return {
        "base": str(found.base.path),
        "other": str(found.other.path),
        "comparable": not found.workload,
        "workload_differences": list(found.workload),
        "setup_differences": list(found.setup),
        "paired": found.paired,
        "sampled": found.sampled,
        "beyond_tolerance": len(found.beyond(tolerance)),
        "rows": [
            asdict(row)
            | {
                "difference": row.difference,
                "relative": row.relative,
                "beyond": row.beyond(tolerance),
            }
            for row in found.rows
        ],
    }
