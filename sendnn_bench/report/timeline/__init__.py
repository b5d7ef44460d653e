"""timeline.html: a picture of every request of a detailed result.

``segments`` (a request's life) -> ``model`` (all lives, steps) -> ``content`` and ``summary``
(what is shown) -> ``page`` (HTML). Plotly is imported only when a page is written.
"""

from __future__ import annotations

from pathlib import Path

from sendnn_bench.errors import UsageError
from sendnn_bench.report.timeline.model import build
from sendnn_bench.report.timeline.page import render
from sendnn_bench.report.timeline.thresholds import parse_decode_thresholds
from sendnn_bench.results import Result, load, write_atomically

__all__ = ["default_path", "parse_decode_thresholds", "timeline_of_file", "write_timeline"]


def default_path(result_json: Path) -> Path:
    """``run.timeline.html`` beside ``run.json``."""
    name = result_json.stem if result_json.suffix == ".json" else result_json.name
    return result_json.with_name(f"{name}.timeline.html")


def write_timeline(
    result: Result, out: Path, decode_thresholds_ms: tuple[float, float] | None = None
) -> Path:
    """Write the page of a detailed result, and answer where it is.

    Raises:
        ResultError: the result has no usable per-request data, or the page cannot be written.
        UsageError: ``out`` is the result file itself.
    """
    if out.exists() and result.path.exists() and out.samefile(result.path):
        raise UsageError(f"{out} is the result file itself; name another file for the page.")
    write_atomically(out, render(build(result), decode_thresholds_ms))
    return out


def timeline_of_file(result_json: Path, out: Path | None, decode_thresholds: str | None) -> Path:
    """What the `timeline` command does; ``decode_thresholds`` is ``LOW,HIGH`` in ms.

    Raises:
        UsageError: bad thresholds.
        ResultError: see `write_timeline`.
    """
    thresholds_ms = (
        None if decode_thresholds is None else parse_decode_thresholds(decode_thresholds)
    )
    return write_timeline(load(result_json), out or default_path(result_json), thresholds_ms)
