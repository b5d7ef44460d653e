"""Segments of one request: what it did or waited for, from its arrival to its end.

Pure functions on integer nanoseconds. The segments of a request tile its life: each begins where
the one before ended, the first at the arrival, the last ends at the finish. Timestamps are taken
as they are: a gap of one nanosecond is a segment, and none is made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from sendnn_bench.metrics import Record
from sendnn_bench.results import RequestRow

NS_PER_S = 1_000_000_000

EPOCH_RESOLUTION_NS = 1_000
"""Overlap below this is the rounding of epoch seconds in a double (238 ns a unit), not a fault."""


class Kind(IntEnum):
    """What a segment is. The numbers go into the page; `KIND_TITLES` names them."""

    QUEUE = 0
    PREFILL = 1
    WAIT_PREFILL = 2
    WAIT_DECODE = 3
    DECODE = 4
    PAUSE = 5
    WAIT_END = 6
    FIRST_TOKEN = 7
    TOKEN = 8


KIND_TITLES: dict[Kind, str] = {
    Kind.QUEUE: "Queue wait",
    Kind.PREFILL: "Prefill chunk",
    Kind.WAIT_PREFILL: "Waiting for the next prefill chunk",
    Kind.WAIT_DECODE: "Waiting for a decode step",
    Kind.DECODE: "Decode step",
    Kind.PAUSE: "Paused",
    Kind.WAIT_END: "After the last step",
    Kind.FIRST_TOKEN: "Until the first token",
    Kind.TOKEN: "Next token",
}


class Segment(NamedTuple):
    """One stretch of a request's life, in nanoseconds on the axis of the page."""

    kind: Kind
    start_ns: int
    end_ns: int


class Life(NamedTuple):
    """A request's whole life. ``clipped_ns`` is what overlapping timestamps would have drawn
    twice: 0 in sound data."""

    arrival_ns: int
    finish_ns: int
    segments: list[Segment]
    clipped_ns: int


def has_server_times(record: Record | None) -> bool:
    """True where a record can be placed on the server's time axis.

    The record of a failed request can be all zeros and empty lists: that places nothing.
    """
    if record is None:
        return False
    return record.get("arrival_ns") is not None or bool(record.get("chunk_prefill_start_times_s"))


def arrival_s(record: Record) -> float:
    """Arrival in seconds on the server's clock: stamped, or the queue wait before the first chunk.

    Raises:
        ValueError, TypeError: the record's values are no numbers.
    """
    if record.get("arrival_ns") is not None:
        return int(record["arrival_ns"]) / NS_PER_S
    return float(record["chunk_prefill_start_times_s"][0]) - float(record["queued_time_s"] or 0.0)


def server_life(record: Record, base_s: float) -> Life:
    """Life of a request as its server measured it, relative to ``base_s`` on the server's clock.

    The life ends at the record's ``finish_ns``, or with its last step where there is none.

    Raises:
        ValueError, TypeError, OverflowError: lists of unequal length, or values that are no
            finite numbers.
    """
    stamped_ns = record.get("arrival_ns")
    if stamped_ns is None:
        arrival_ns = _ns(arrival_s(record) - base_s)
    else:
        arrival_ns = int(stamped_ns) - _ns(base_s)
    chunks, decodes = server_steps(record, base_s)
    last_ns = max((step.end_ns for step in (*chunks, *decodes)), default=arrival_ns)
    finish = record.get("finish_ns")
    finish_ns = max(last_ns, arrival_ns) if finish is None else int(finish) - _ns(base_s)
    busy = chunks + decodes + _pauses(record, base_s, finish_ns)
    busy.sort(key=lambda segment: (segment.start_ns, segment.end_ns))
    return _tile(arrival_ns, max(finish_ns, arrival_ns), busy)


def server_steps(record: Record, base_s: float) -> tuple[list[Segment], list[Segment]]:
    """A request's prefill chunks and its decode steps, as recorded, relative to ``base_s``.

    Raises:
        ValueError, TypeError, OverflowError: as `server_life`.
    """
    return (
        _intervals(record, "chunk_prefill", Kind.PREFILL, base_s),
        _intervals(record, "decode", Kind.DECODE, base_s),
    )


def client_life(row: RequestRow, base_s: float) -> Life:
    """Life of a request as its client saw it, relative to ``base_s`` on the client's clock.

    Raises:
        ValueError, OverflowError: values that are no finite numbers.
    """
    elapsed_s = row.start_s - base_s
    start_ns = cursor_ns = _ns(elapsed_s)
    segments = []
    waits = [(Kind.FIRST_TOKEN, row.ttft_s)] if row.ttft_s > 0 else []
    waits += [(Kind.TOKEN, gap_s) for gap_s in row.itl_s]
    for kind, wait_s in waits:
        elapsed_s += wait_s
        end_ns = max(cursor_ns, _ns(elapsed_s))
        segments.append(Segment(kind, cursor_ns, end_ns))
        cursor_ns = end_ns
    return Life(start_ns, cursor_ns, segments, 0)


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _intervals(record: Record, name: str, kind: Kind, base_s: float) -> list[Segment]:
    """Steps of one kind; the subtraction comes first because epoch seconds are coarse floats."""
    starts = record.get(f"{name}_start_times_s") or []
    latencies = record.get(f"{name}_latencies_s") or []
    if len(starts) != len(latencies):
        raise ValueError(f"{len(starts)} {name} start times, but {len(latencies)} latencies")
    return [
        Segment(kind, round((start - base_s) * NS_PER_S), round((start - base_s + s) * NS_PER_S))
        for start, s in zip(starts, latencies, strict=True)
    ]


def _pauses(record: Record, base_s: float, finish_ns: int) -> list[Segment]:
    """Pauses; one that was still open at the end lasts until the finish."""
    starts = record.get("pause_start_times_s") or []
    latencies = record.get("pause_latencies_s") or []
    pauses = [
        Segment(Kind.PAUSE, _ns(start - base_s), _ns(start - base_s + latency))
        for start, latency in zip(starts, latencies, strict=False)
    ]
    pauses += [
        Segment(Kind.PAUSE, _ns(start - base_s), finish_ns) for start in starts[len(latencies) :]
    ]
    return pauses


def _tile(arrival_ns: int, finish_ns: int, busy: Sequence[Segment]) -> Life:
    """Fill the gaps between sorted steps and pauses; clip what overlaps or leaves the life."""
    segments: list[Segment] = []
    cursor_ns, clipped_ns, stepped = arrival_ns, 0, False
    gap_kinds = _gap_kinds(busy)
    for part, gap_kind in zip(busy, gap_kinds, strict=True):
        start_ns = min(max(part.start_ns, cursor_ns), finish_ns)
        end_ns = min(max(part.end_ns, start_ns), finish_ns)
        cut_ns = max(0, part.end_ns - part.start_ns) - (end_ns - start_ns)
        clipped_ns += cut_ns if cut_ns > EPOCH_RESOLUTION_NS else 0
        if start_ns > cursor_ns:
            segments.append(Segment(gap_kind if stepped else Kind.QUEUE, cursor_ns, start_ns))
        segments.append(Segment(part.kind, start_ns, end_ns))
        stepped = stepped or part.kind is not Kind.PAUSE
        cursor_ns = end_ns
    if finish_ns > cursor_ns:
        last = Kind.WAIT_END if stepped else Kind.QUEUE
        segments.append(Segment(last, cursor_ns, finish_ns))
    return Life(arrival_ns, finish_ns, segments, clipped_ns)


def _gap_kinds(busy: Sequence[Segment]) -> list[Kind]:
    """What a request waits for in the gap before each part: its next own step."""
    kinds: list[Kind] = []
    waiting_for = Kind.WAIT_END
    for part in reversed(busy):
        if part.kind is Kind.PREFILL:
            waiting_for = Kind.WAIT_PREFILL
        elif part.kind is Kind.DECODE:
            waiting_for = Kind.WAIT_DECODE
        kinds.append(waiting_for)
    kinds.reverse()
    return kinds
