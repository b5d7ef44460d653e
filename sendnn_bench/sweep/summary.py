"""What a sweep found: one row a point, as JSON (versioned), as CSV, in memory.

Nothing in it tells of the machine or of real time: the same sweep gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sendnn_bench.errors import ResultError
from sendnn_bench.results import load, write_atomically
from sendnn_bench.sweep.grid import Point, Setting, point_label
from sendnn_bench.sweep.measures import COLUMNS, Numbers, columns_with_data, measure
from sendnn_bench.sweep.slo import Slo

SCHEMA = 1
"""Version of the summary's form."""

SUMMARY = "sweep.json"
TABLE = "sweep.csv"
PAGE = "sweep.html"

Status = Literal["done", "failed", "open"]


@dataclass(frozen=True)
class Row:
    """One point: what varied, how it ended, its numbers."""

    server: tuple[Setting, ...]
    load: tuple[Setting, ...]
    server_flags: tuple[str, ...] = ()
    client_flags: tuple[str, ...] = ()
    status: Status = "open"
    exit_code: int | None = None
    message: str = ""
    file: str | None = None
    """Name of the result in the sweep's directory."""
    numbers: Numbers = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What varied, as one text."""
        return point_label(self.server, self.load)

    @property
    def reason(self) -> str:
        """The first line of the message of a run that failed."""
        return (self.message.splitlines() or [""])[0]


@dataclass(frozen=True)
class Summary:
    """A sweep as far as it got. ``slo`` are limits in ms by metric."""

    model: str
    slo: Slo
    rows: tuple[Row, ...]

    @property
    def done(self) -> list[Row]:
        """Rows with numbers."""
        return [row for row in self.rows if row.status == "done"]


def open_row(point: Point) -> Row:
    """The row of a point that has not run."""
    return Row(point.server, point.load, point.server_flags, point.client_flags)


def done_row(row: Row, directory: Path, file: str, slo: Slo) -> Row:
    """The row with the numbers of its result.

    Raises:
        ResultError: the result cannot be read or has no per-request data.
    """
    result = load(directory / file)
    notes = result.block.get("findings")
    return replace(
        row,
        status="done",
        exit_code=0,
        message="",
        file=file,
        numbers=measure(result, slo),
        findings=tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )


def write(summary: Summary, directory: Path) -> None:
    """Write the summary and the table, each as a whole.

    Raises:
        ResultError: they cannot be written.
    """
    data = {"schema": SCHEMA, "made_by": "sendnn-bench sweep", **asdict(summary)}
    write_atomically(directory / SUMMARY, json.dumps(data, indent=1) + "\n")
    write_atomically(directory / TABLE, as_csv(summary))


def read(directory: Path, slo: Slo) -> Summary:
    """The summary of a directory, its numbers read from the results once more.

    ``slo`` are other objectives than the sweep's; empty for the same.

    Raises:
        ResultError: there is no summary of this form, or a result is missing.
    """
    path = directory / SUMMARY
    data = load(path).data
    if data.get("schema") != SCHEMA:
        raise ResultError(
            f"{path} has the schema {data.get('schema')!r}; this version reads {SCHEMA}."
        )
    try:
        limits = slo or {str(name): float(limit) for name, limit in data["slo"].items()}
        rows = [_row(item) for item in data["rows"]]
        model = str(data["model"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultError(f"{path} is damaged ({error!r}); run the sweep again.") from error
    found = [
        done_row(row, directory, row.file, limits) if row.status == "done" and row.file else row
        for row in rows
    ]
    return Summary(model, limits, tuple(found))


def _row(item: dict[str, Any]) -> Row:
    status = item["status"]
    if status not in ("done", "failed", "open"):
        raise ValueError(status)
    file = item["file"]
    if file is not None and Path(file).name != file:
        raise ValueError(file)
    return Row(
        server=_settings(item["server"]),
        load=_settings(item["load"]),
        server_flags=tuple(map(str, item["server_flags"])),
        client_flags=tuple(map(str, item["client_flags"])),
        status=status,
        exit_code=item["exit_code"],
        message=str(item["message"]),
        file=file,
    )


def _settings(pairs: Sequence[Sequence[Any]]) -> tuple[Setting, ...]:
    return tuple((str(name), str(value)) for name, value in pairs)


def setting_names(rows: Sequence[Row]) -> list[str]:
    """Names of what varies, the server's first."""
    return list(dict.fromkeys(name for row in rows for name, _ in (*row.server, *row.load)))


def as_csv(summary: Summary) -> str:
    """A line a point; a number that is not known is empty."""
    names = setting_names(summary.rows)
    columns = columns_with_data([row.numbers for row in summary.rows]) or list(COLUMNS)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "status", "exit_code", *(column.key for column in columns), "file"])
    for row in summary.rows:
        values = dict((*row.server, *row.load))
        writer.writerow(
            [
                *(values.get(name, "") for name in names),
                row.status,
                row.exit_code,
                *(row.numbers.get(column.key) for column in columns),
                row.file,
            ]
        )
    return out.getvalue()
