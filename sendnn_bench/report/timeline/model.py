"""What the page draws: every request's life on one time axis, the engine's steps, the counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import NamedTuple

from sendnn_bench.errors import ResultError
from sendnn_bench.metrics import Record
from sendnn_bench.report.timeline.segments import (
    NS_PER_S,
    Kind,
    Life,
    arrival_s,
    client_life,
    has_server_times,
    server_life,
    server_steps,
)
from sendnn_bench.results import RequestRow, Result

ONE_CLOCK_TOLERANCE_NS = 1_000
"""Spread of (client start - server arrival) up to which both are readings of one clock."""


class Axis(Enum):
    """Whose clock the time axis is."""

    VIRTUAL = "virtual time since the session began"
    SERVER = "time since the first arrival, by the server's clock"
    CLIENT = "time since the first request, by the client's clock"


class Step(NamedTuple):
    """One engine step, as the requests in it tell. 0 stands for unknown in the last two.

    ``kind`` is 0 for prefill, 1 for decode, 2 for both in one step.
    """

    start_ns: int
    end_ns: int
    kind: int
    batch_size: int
    tkv_tokens: int
    kv_blocks: int


@dataclass(frozen=True)
class Request:
    """One request. ``life`` is None where its place on the axis is not known."""

    row: RequestRow
    life: Life | None

    @property
    def queue_s(self) -> float | None:
        """Queue wait as the server measured it."""
        if self.row.failed or not has_server_times(self.row.record):
            return None
        value = (self.row.record or {}).get("queued_time_s")
        return None if value is None else float(value)


@dataclass(frozen=True)
class Timeline:
    """All that the page shows, in the result's order of requests."""

    result: Result
    axis: Axis
    requests: list[Request]
    steps: list[Step]
    batch_sizes_counted: bool
    """True where no batch size was recorded: it is then the number of rows that share a step."""

    @property
    def unplaced(self) -> int:
        """Requests without a place on the axis."""
        return sum(request.life is None for request in self.requests)

    @property
    def clipped_ns(self) -> int:
        """Time that overlapping timestamps would have drawn twice."""
        return sum(request.life.clipped_ns for request in self.requests if request.life)


def build(result: Result) -> Timeline:
    """The timeline of a result.

    Raises:
        ResultError: no per-request data, no requests, or values that make no sense.
    """
    try:
        rows = result.rows()
    except (TypeError, ValueError, OverflowError) as error:
        raise ResultError(f"{result.path}: a per-request column is damaged: {error}.") from error
    if not rows:
        raise ResultError(f"{result.path} holds no requests: there is nothing to draw.")
    try:
        return _build(result, rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise ResultError(f"{result.path}: timestamps are damaged: {error}.") from error


def _build(result: Result, rows: list[RequestRow]) -> Timeline:
    axis = _axis(result, rows)
    if axis is Axis.CLIENT:
        base_s = min(row.start_s for row in rows)
        requests = [Request(row, client_life(row, base_s)) for row in rows]
        return Timeline(result, axis, requests, [], False)
    records = [row.record for row in rows if row.record and has_server_times(row.record)]
    base_s = 0.0 if axis is Axis.VIRTUAL else min(arrival_s(record) for record in records)
    shift_s = _one_clock_shift_s(rows) if axis is Axis.VIRTUAL else None
    requests = [Request(row, _on_server_axis(row, base_s, shift_s)) for row in rows]
    steps = _steps(records, base_s)
    counted = not any(record.get("batch_sizes") for record in records)
    return Timeline(result, axis, requests, steps, counted)


def _axis(result: Result, rows: list[RequestRow]) -> Axis:
    if not any(has_server_times(row.record) for row in rows):
        return Axis.CLIENT
    stamped = any((row.record or {}).get("arrival_ns") is not None for row in rows)
    return Axis.VIRTUAL if result.simulated or stamped else Axis.SERVER


def _on_server_axis(row: RequestRow, base_s: float, shift_s: float | None) -> Life | None:
    if row.record is not None and has_server_times(row.record):
        try:
            return server_life(row.record, base_s)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"request {row.index}: {error}") from error
    return None if shift_s is None else client_life(row, shift_s)


def _one_clock_shift_s(rows: Iterable[RequestRow]) -> float | None:
    """Client start less server arrival, where all rows agree: then both read one virtual clock.

    Clocks of two machines differ by an unsteady transport time and give None: a request that has
    no server times is then not placed at all.
    """
    shifts_s = [
        row.start_s - arrival_s(row.record)
        for row in rows
        if row.record and row.record.get("arrival_ns") is not None
    ]
    if not shifts_s or (max(shifts_s) - min(shifts_s)) * NS_PER_S > ONE_CLOCK_TOLERANCE_NS:
        return None
    return median(shifts_s)


@dataclass
class _StepFacts:
    """A step while it is being collected from the rows that took part in it."""

    batch_size: int
    tkv_tokens: int
    kv_blocks: int
    prefilling: int = 0
    decoding: int = 0


def _steps(records: Iterable[Record], base_s: float) -> list[Step]:
    """Engine steps: rows with equal step times took part in the same step."""
    facts: dict[tuple[int, int], _StepFacts] = {}
    for record in records:
        _collect_steps(record, base_s, facts)
    steps = []
    for (start_ns, end_ns), fact in sorted(facts.items()):
        kind = 2 if fact.prefilling and fact.decoding else int(fact.decoding > 0)
        batch_size = fact.batch_size or fact.prefilling + fact.decoding
        steps.append(Step(start_ns, end_ns, kind, batch_size, fact.tkv_tokens, fact.kv_blocks))
    return steps


def _collect_steps(record: Record, base_s: float, facts: dict[tuple[int, int], _StepFacts]) -> None:
    chunks, decodes = server_steps(record, base_s)
    batch_sizes, tkvs, blocks = (
        record.get(key) or [] for key in ("batch_sizes", "tkvs", "kv_blocks_in_use")
    )
    # Per-step columns hold prefill chunks first, then decode steps.
    for position, step in enumerate(chunks + decodes):
        key = (step.start_ns, step.end_ns)
        fact = facts.get(key)
        if fact is None:  # A step's numbers are the same in every row: the first tells them.
            numbers = (values[position : position + 1] for values in (batch_sizes, tkvs, blocks))
            fact = facts[key] = _StepFacts(*(int(found[0]) if found else 0 for found in numbers))
        if step.kind is Kind.PREFILL:
            fact.prefilling += 1
        else:
            fact.decoding += 1
