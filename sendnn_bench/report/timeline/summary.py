"""The part of the page that reads without JavaScript: the run, time by kind, the slowest ten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from sendnn_bench.report.timeline.content import e2el_s
from sendnn_bench.report.timeline.model import Request, Timeline
from sendnn_bench.report.timeline.segments import KIND_TITLES, NS_PER_S, Kind

SLOWEST = 10

_RUN_FACTS = (
    ("model_id", "Model"),
    ("date", "Date"),
    ("backend", "Backend"),
    ("request_rate", "Request rate (req/s)"),
    ("max_concurrency", "Maximum concurrency"),
    ("duration", "Benchmark duration (s)"),
)
"""Keys of the result JSON shown where they are known, and their titles."""


def run_table(timeline: Timeline) -> str:
    """Facts of the run as an HTML table."""
    data = timeline.result.data
    failed = sum(request.row.failed for request in timeline.requests)
    facts: list[tuple[str, Any]] = [
        (title, data[key]) for key, title in _RUN_FACTS if data.get(key) not in (None, "")
    ]
    facts += [
        ("Requests", len(timeline.requests)),
        ("Failed requests", failed),
        ("Engine steps", len(timeline.steps) or "not in this result"),
        ("Time axis", timeline.axis.value),
    ]
    body = "".join(f"<tr><th scope=row>{_text(k)}</th><td>{_text(v)}</td></tr>" for k, v in facts)
    return f"<table class=facts><caption>Run</caption>{body}</table>"


def kind_table(timeline: Timeline) -> str:
    """Number and total time of the segments of each kind."""
    counts, totals_ns = dict.fromkeys(Kind, 0), dict.fromkeys(Kind, 0)
    longest_ns = dict.fromkeys(Kind, 0)
    for request in timeline.requests:
        for kind, start_ns, end_ns in request.life.segments if request.life else ():
            counts[kind] += 1
            totals_ns[kind] += end_ns - start_ns
            longest_ns[kind] = max(longest_ns[kind], end_ns - start_ns)
    rows = [
        (
            KIND_TITLES[kind],
            counts[kind],
            f"{totals_ns[kind] / NS_PER_S:.3f}",
            _milli(totals_ns[kind] / counts[kind] / NS_PER_S),
            _milli(longest_ns[kind] / NS_PER_S),
        )
        for kind in Kind
        if counts[kind]
    ]
    header = ("Time of all requests", "segments", "total (s)", "mean (ms)", "longest (ms)")
    return _table("Where the time went", header, [[_text(cell) for cell in row] for row in rows])


def slowest_table(timeline: Timeline) -> str:
    """The requests with the longest end-to-end latency, each a link that selects it."""
    ranked = [(e2el_s(request), request) for request in timeline.requests]
    known = [(value, request) for value, request in ranked if value is not None]
    known.sort(key=lambda pair: (-pair[0], pair[1].row.index))
    header = ("Request", "E2EL (ms)", "TTFT (ms)", "queue wait (ms)", "input", "output")
    rows = [_slow_row(value, request) for value, request in known[:SLOWEST]]
    return _table(f"Slowest {min(SLOWEST, len(known))} requests", header, rows)


def notes(timeline: Timeline) -> str:
    """What a reader must know before reading the picture; empty where there is nothing."""
    lines = []
    if all(request.row.failed for request in timeline.requests):
        lines.append(
            "Not one request succeeded. The first error: " + timeline.requests[0].row.error
        )
    if timeline.unplaced:
        lines.append(
            f"{timeline.unplaced} request(s) have no times on the server's clock (they failed, or "
            "the answer carried no metrics). Their rows are marked at the left edge and have no "
            "bar: the client's clock is another one."
        )
    if timeline.clipped_ns:
        lines.append(
            f"Steps of one request overlap by {timeline.clipped_ns / NS_PER_S:.6f} s in all; the "
            "later one is drawn from where the earlier one ends."
        )
    return "".join(f"<p class=note>{_text(line)}</p>" for line in lines)


def _slow_row(value_s: float, request: Request) -> list[str]:
    row = request.row
    link = f'<a href="#request-{row.index}">#{row.index}</a>'
    queue = "–" if request.queue_s is None else _milli(request.queue_s)  # noqa: RUF001
    numbers = (_milli(value_s), _milli(row.ttft_s), queue, row.input_tokens, row.output_tokens)
    return [link, *(_text(number) for number in numbers)]


def _table(caption: str, header: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first cell of a row heads it."""
    head = "".join(f"<th scope=col>{_text(title)}</th>" for title in header)
    body = "".join(
        f"<tr><th scope=row>{first}</th>" + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    caption = _text(caption)
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>{body}</table>"


def _milli(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _text(value: Any) -> str:
    return escape(str(value), quote=True)
