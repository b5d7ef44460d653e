"""What of a timeline goes into the page: the head with the requests' numbers, and the columns."""

from __future__ import annotations

import math
from typing import Any

from sendnn_bench.report.timeline.counts import counts
from sendnn_bench.report.timeline.model import Axis, Request, Timeline
from sendnn_bench.report.timeline.payload import Column, column
from sendnn_bench.report.timeline.segments import KIND_TITLES, Kind, Life, Segment

_RECORD_NUMBERS = (
    "prefix_cache_hit_pct",
    "scheduler_steps_waited",
    "num_preemptions",
    "injected_output_tokens",
)


def head(timeline: Timeline, thresholds_ms: tuple[float, float] | None) -> dict[str, Any]:
    """Everything that is no long list of numbers. Durations in ms, null where unknown."""
    return {
        "axis": timeline.axis.value,
        "virtual": timeline.axis is Axis.VIRTUAL,
        "client": timeline.axis is Axis.CLIENT,
        "kinds": [KIND_TITLES[kind] for kind in sorted(KIND_TITLES)],
        "thresholds_ms": thresholds_ms,
        "batch_sizes_counted": timeline.batch_sizes_counted,
        "requests": [_request(request) for request in timeline.requests],
    }


def columns(timeline: Timeline) -> dict[str, Column]:
    """The long lists. Segments follow each other without gap: kind and duration suffice."""
    lives = [request.life for request in timeline.requests]
    known = [life for life in lives if life is not None]
    segments = [segment for life in known for segment in life.segments]
    series = counts(known)
    steps = timeline.steps
    return {
        "row_arrival": column([life.arrival_ns if life else 0 for life in lives]),
        "row_segments": column([len(life.segments) if life else 0 for life in lives]),
        "segment_kind": column([segment.kind for segment in segments]),
        "segment_ns": column([segment.end_ns - segment.start_ns for segment in segments]),
        "chunk_tokens": column(_chunk_tokens(timeline.requests)),
        "step_start": column([step.start_ns for step in steps]),
        "step_ns": column([step.end_ns - step.start_ns for step in steps]),
        "step_kind": column([step.kind for step in steps]),
        "step_batch": column([step.batch_size for step in steps]),
        "step_tkv": column([step.tkv_tokens for step in steps]),
        "step_kv": column([step.kv_blocks for step in steps]),
        "count_time": column([count.time_ns for count in series]),
        "count_waiting": column([count.waiting for count in series]),
        "count_running": column([count.running for count in series]),
        "count_paused": column([count.paused for count in series]),
    }


def e2el_s(request: Request) -> float | None:
    """The client's end-to-end latency, None where it failed or the file tells no number."""
    value = request.row.e2el_s
    return None if request.row.failed or not math.isfinite(value) else value


def _request(request: Request) -> dict[str, Any]:
    row = request.row
    record = row.record or {}
    name = record.get("request_id")
    return {
        "index": row.index,
        "name": name if isinstance(name, str) else "",
        "placed": request.life is not None,
        "error": row.error,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "ttft_ms": None if row.failed else _ms(row.ttft_s),
        "e2el_ms": _ms(e2el_s(request)),
        "queue_ms": _ms(request.queue_s),
        "was_missing_blocks": bool(record.get("was_missing_blocks")),
        **{key: _number(record.get(key)) for key in _RECORD_NUMBERS},
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None or not math.isfinite(seconds) else round(seconds * 1e3, 6)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _chunk_tokens(requests: list[Request]) -> list[int]:
    """Tokens of each prefill chunk, in the order of the segments; 0 where not recorded."""
    tokens: list[int] = []
    for request in requests:
        if request.life is not None:
            chunks = _chunks(request.life)
            known = (request.row.record or {}).get("chunk_tokens") or []
            padded = [*known[: len(chunks)], *[0] * (len(chunks) - len(known))]
            tokens.extend(int(value) for value in padded)
    return tokens


def _chunks(life: Life) -> list[Segment]:
    return [segment for segment in life.segments if segment.kind is Kind.PREFILL]
