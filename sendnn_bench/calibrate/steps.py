"""The engine's steps, recovered from what each request of a result says of its own steps.

Requests that took part in the same step tell the same start time, so equal start times are one
step, and their number is its batch size. Times of different results are never compared.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sendnn_bench.calibrate.chunks import chunk_size_of, chunks_of
from sendnn_bench.errors import ResultError
from sendnn_bench.metrics import Record
from sendnn_bench.results import RequestRow, Result

NEEDED = (
    "chunk_prefill_start_times_s",
    "chunk_prefill_latencies_s",
    "decode_start_times_s",
    "decode_latencies_s",
    "tkvs",
)


@dataclass(frozen=True)
class MeasuredStep:
    """One engine step. ``chunks`` holds (chunk tokens, context tokens); times in s."""

    start_s: float
    duration_s: float
    chunks: tuple[tuple[int, int], ...]
    decode_batch: int
    tkv: int

    @property
    def batch(self) -> int:
        """Requests in the step."""
        return len(self.chunks) + self.decode_batch


@dataclass(frozen=True)
class MeasuredRun:
    """Steps of one result in order of time, and the request times around them.

    ``gaps`` holds (requests in the step, seconds until the next step) where the engine had work;
    ``transit_s`` what each client's TTFT has beyond the server's; ``entry_s`` the queue wait of
    requests that found the engine idle.
    """

    steps: tuple[MeasuredStep, ...]
    chunk_size_tokens: int | None
    whole_chunks: bool
    gaps: tuple[tuple[int, float], ...]
    transit_s: tuple[float, ...]
    entry_s: tuple[float, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    """What one request tells of one step; ``batch`` is None where it does not say."""

    start_s: float
    duration_s: float
    chunk: tuple[int, int] | None
    tkv: int
    batch: int | None


def recover(result: Result, chunk_size_tokens: int | None = None) -> MeasuredRun:
    """The steps of a detailed result, ours or upstream's.

    Args:
        chunk_size_tokens: prefill chunk size, where the result cannot tell it.

    Raises:
        ResultError: no per-request data, no step times, lists of unequal length, or a chunk size
            that is neither told nor to be derived.
    """
    rows = [row for row in result.rows() if not row.failed and row.record]
    records = [row.record for row in rows if row.record is not None]
    _check(result, records)
    known = all("chunk_tokens" in record for record in records)
    size = chunk_size_tokens or chunk_size_of(records, result)
    parts = [list(_parts(record, None if known else size, result)) for record in records]
    steps, left_out = _group(itertools.chain.from_iterable(parts))
    return MeasuredRun(
        steps=tuple(steps),
        chunk_size_tokens=size,
        whole_chunks=not known,
        gaps=tuple(_gaps(steps, parts)),
        transit_s=tuple(_transit(rows)),
        entry_s=tuple(_entry(records)),
        notes=tuple(_notes(result, len(records), left_out)),
    )


def _check(result: Result, records: Sequence[Record]) -> None:
    missing = [key for key in NEEDED if not any(key in record for record in records)]
    if missing:
        raise ResultError(
            f"{result.path} has no {', '.join(missing)}, from which steps are recovered. Run the "
            "benchmark with --save-detailed against a server that streams SenDNN metrics."
        )


def _parts(record: Record, derive_size: int | None, result: Result) -> Iterator[_Part]:
    starts, durations, tkvs = _columns(record, result)
    prefills = len(record.get("chunk_prefill_start_times_s") or [])
    if derive_size is None:
        chunks = list(zip(record["chunk_tokens"], record["chunk_context_tokens"], strict=False))
    else:
        chunks = chunks_of(record, prefills, derive_size)
    batches = record.get("batch_sizes") or [None] * len(starts)
    for index, (start, duration, tkv, batch) in enumerate(
        zip(starts, durations, tkvs, batches, strict=True)
    ):
        yield _Part(start, duration, chunks[index] if index < prefills else None, tkv, batch)


def _columns(record: Record, result: Result) -> tuple[list[float], list[float], list[int]]:
    """Starts, durations and tkvs, prefill chunks first."""
    lists = {key: record.get(key) or [] for key in NEEDED}
    starts = lists["chunk_prefill_start_times_s"] + lists["decode_start_times_s"]
    durations = lists["chunk_prefill_latencies_s"] + lists["decode_latencies_s"]
    if not len(starts) == len(durations) == len(lists["tkvs"]):
        raise ResultError(
            f"{result.path}: a request has {len(starts)} step starts, {len(durations)} latencies "
            f"and {len(lists['tkvs'])} tkvs. The file is damaged or was edited by hand."
        )
    return starts, durations, lists["tkvs"]


def _group(parts: Iterable[_Part]) -> tuple[list[MeasuredStep], dict[str, int]]:
    """Steps in order of time, and how many were left out for which reason."""
    by_start: dict[float, list[_Part]] = defaultdict(list)
    for part in parts:
        by_start[part.start_s].append(part)
    left_out: dict[str, int] = defaultdict(int)
    steps = []
    for start_s, group in sorted(by_start.items()):
        first = group[0]
        if first.duration_s <= 0:
            left_out["took no time"] += 1
        elif first.batch not in (None, len(group)):
            left_out["held requests without a record"] += 1
        else:
            chunks = tuple(part.chunk for part in group if part.chunk is not None)
            decode_batch = len(group) - len(chunks)
            steps.append(MeasuredStep(start_s, first.duration_s, chunks, decode_batch, first.tkv))
    return steps, left_out


def _gaps(
    steps: Sequence[MeasuredStep], parts: Sequence[Sequence[_Part]]
) -> Iterator[tuple[int, float]]:
    """Times between steps that some request spans, so that the engine was not idle.

    A gap as long as a typical step holds a step of a request without a record: left out.
    """
    if not steps:
        return
    typical_s = sorted(step.duration_s for step in steps)[len(steps) // 2]
    ends = sorted((group[0].start_s, group[-1].start_s) for group in parts if group)
    open_until, position = float("-inf"), 0
    for step, following in itertools.pairwise(steps):
        while position < len(ends) and ends[position][0] <= step.start_s:
            open_until = max(open_until, ends[position][1])
            position += 1
        gap_s = following.start_s - step.start_s - step.duration_s
        if open_until >= following.start_s and -1e-6 < gap_s < typical_s:
            yield step.batch, max(0.0, gap_s)


def _transit(rows: Sequence[RequestRow]) -> Iterator[float]:
    """Client's TTFT less queue wait and prefill on the server: differences of durations only."""
    for row in rows:
        record = row.record or {}
        queued, elapsed = record.get("queued_time_s"), record.get("prefill_elapsed_s")
        if queued is not None and elapsed and row.ttft_s > 0:
            yield row.ttft_s - queued - elapsed


def _entry(records: Sequence[Record]) -> Iterator[float]:
    """Queue waits of requests that arrived when no other one was in the engine."""
    spans = sorted(_span(record) for record in records if record.get("chunk_prefill_latencies_s"))
    busy_until = float("-inf")
    for start_s, end_s, queued_s in spans:
        if start_s - queued_s > busy_until:
            yield queued_s
        busy_until = max(busy_until, end_s)


def _span(record: Record) -> tuple[float, float, float]:
    """First step's start, last step's end, queue wait."""
    starts = record["chunk_prefill_start_times_s"] + (record.get("decode_start_times_s") or [])
    durations = record["chunk_prefill_latencies_s"] + (record.get("decode_latencies_s") or [])
    return starts[0], starts[-1] + durations[-1], record.get("queued_time_s") or 0.0


def _notes(result: Result, recorded: int, left_out: dict[str, int]) -> Iterator[str]:
    silent = len(result.data["start_times"]) - recorded
    if silent:
        yield (
            f"{silent} requests failed or have no metrics; where they shared steps with others, "
            "batch sizes are too low"
        )
    for reason, count in left_out.items():
        yield f"{count} steps left out: {reason}"
