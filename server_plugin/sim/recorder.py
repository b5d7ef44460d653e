"""What happened to each request, in integer nanoseconds of virtual time, and its wire form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from server_plugin.sim.clock import NS_PER_S

TRANSFER_KEY = "__sendnn_bench__"
"""Key of a record in `kv_transfer_params`, on its way from the engine to the API server."""


@dataclass(frozen=True, slots=True)
class PartInStep:
    """One request's part in an engine step.

    ``context_tokens`` are computed before the step, ``tokens`` in it; ``decode`` is False for a
    prefill chunk, a recomputed one after preemption included.
    """

    request_id: str
    tokens: int
    context_tokens: int
    decode: bool


@dataclass(frozen=True, slots=True)
class Step:
    """An engine step that took time. Times in ns, ``tkv`` in tokens (padded batch length)."""

    index: int
    start_ns: int
    end_ns: int
    parts: tuple[PartInStep, ...]
    tkv: int
    kv_blocks_in_use: int


@dataclass
class _PhaseSteps:
    """Steps of one phase of a request, as parallel lists."""

    start_ns: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    tkv: list[int] = field(default_factory=list)
    batch_size: list[int] = field(default_factory=list)
    kv_blocks: list[int] = field(default_factory=list)

    def add(self, step: Step) -> None:
        self.start_ns.append(step.start_ns)
        self.duration_ns.append(step.end_ns - step.start_ns)
        self.tkv.append(step.tkv)
        self.batch_size.append(len(step.parts))
        self.kv_blocks.append(step.kv_blocks_in_use)


@dataclass
class RequestRecord:
    """Everything recorded of one request, from its arrival on."""

    request_id: str
    arrival_ns: int
    arrival_step: int
    prompt_tokens: int
    injected_output_tokens: int | None = None
    injected_output_source: str = "max_tokens"
    seq: int | None = None
    prefill: _PhaseSteps = field(default_factory=_PhaseSteps)
    decode: _PhaseSteps = field(default_factory=_PhaseSteps)
    chunk_tokens: list[int] = field(default_factory=list)
    chunk_context_tokens: list[int] = field(default_factory=list)
    left_padding_blocks: list[int] = field(default_factory=list)
    token_times_ns: list[int] = field(default_factory=list)
    pause_start_ns: list[int] = field(default_factory=list)
    pause_duration_ns: list[int] = field(default_factory=list)
    was_missing_blocks: bool = False
    preemptions: int = 0
    first_step: int | None = None
    finish_ns: int | None = None
    finish_reason: str = ""

    def add_step(self, step: Step, part: PartInStep, block_size: int) -> None:
        """The request took part in a step."""
        if self.first_step is None:
            self.first_step = step.index
        if part.decode:
            self.decode.add(step)
            self.left_padding_blocks.append(left_padding_blocks(step.tkv, part, block_size))
        else:
            self.prefill.add(step)
            self.chunk_tokens.append(part.tokens)
            self.chunk_context_tokens.append(part.context_tokens)

    def pause(self, now_ns: int) -> None:
        """The scheduler took the request out of the decode batch."""
        self.pause_start_ns.append(now_ns)

    def resume(self, now_ns: int) -> None:
        """The scheduler took it back."""
        self.pause_duration_ns.append(now_ns - self.pause_start_ns[-1])

    @property
    def queued_ns(self) -> int:
        """Arrival to the start of the first prefill chunk; 0 where none ran."""
        starts = self.prefill.start_ns
        return starts[0] - self.arrival_ns if starts else 0

    @property
    def prefill_elapsed_ns(self) -> int:
        """Start of the first prefill chunk to the end of the last."""
        phase = self.prefill
        if not phase.start_ns:
            return 0
        return phase.start_ns[-1] + phase.duration_ns[-1] - phase.start_ns[0]

    def to_wire(self, chunk_size_tokens: int, token_delay_ns: int = 0) -> dict[str, Any]:
        """The record under upstream's field names (seconds as floats) with ours beside them.

        Token and finish times are the client's: ``token_delay_ns`` after the end of the step.
        """
        prefill, decode = self.prefill, self.decode
        executed = len(prefill.start_ns)
        expected = math.ceil(self.prompt_tokens / chunk_size_tokens)
        busy_ns = sum(prefill.duration_ns)
        elapsed_ns = self.prefill_elapsed_ns
        waited = None if self.first_step is None else self.first_step - self.arrival_step
        return {
            "queued_time_s": self.queued_ns / NS_PER_S,
            "num_chunked_prefills": executed,
            "chunk_prefill_latencies_s": _seconds(prefill.duration_ns),
            "chunk_prefill_start_times_s": _seconds(prefill.start_ns),
            "decode_latencies_s": _seconds(decode.duration_ns),
            "decode_start_times_s": _seconds(decode.start_ns),
            "tkvs": prefill.tkv + decode.tkv,
            "prefill_elapsed_s": elapsed_ns / NS_PER_S,
            "prefill_busy_s": busy_ns / NS_PER_S,
            "prefill_idle_s": (elapsed_ns - busy_ns) / NS_PER_S,
            "prefix_cache_hit_pct": max(0, expected - executed) / expected if expected else 0.0,
            "left_padding_blocks": self.left_padding_blocks,
            "pause_latencies_s": _seconds(self.pause_duration_ns),
            "pause_start_times_s": _seconds(self.pause_start_ns),
            "was_missing_blocks": self.was_missing_blocks,
            "arrival_ns": self.arrival_ns,
            "first_scheduled_ns": prefill.start_ns[0] if prefill.start_ns else None,
            "token_times_ns": [time_ns + token_delay_ns for time_ns in self.token_times_ns],
            "finish_ns": None if self.finish_ns is None else self.finish_ns + token_delay_ns,
            "injected_output_tokens": self.injected_output_tokens,
            "injected_output_source": self.injected_output_source,
            "chunk_tokens": self.chunk_tokens,
            "chunk_context_tokens": self.chunk_context_tokens,
            "batch_sizes": prefill.batch_size + decode.batch_size,
            "kv_blocks_in_use": prefill.kv_blocks + decode.kv_blocks,
            "scheduler_steps_waited": waited,
            "num_preemptions": self.preemptions,
        }


def left_padding_blocks(tkv: int, part: PartInStep, block_size: int) -> int:
    """KV blocks of left padding of a request in a decode step.

    ceil(tkv / block size) - ceil(computed tokens after the step / block size), at least 0;
    sendnn-inference 2.6.3, `v1/core/scheduler.py`, computes the same.
    """
    computed = part.context_tokens + part.tokens
    return max(0, math.ceil(tkv / block_size) - math.ceil(computed / block_size))


def _seconds(values_ns: Iterable[int]) -> list[float]:
    return [value / NS_PER_S for value in values_ns]


class Recorder:
    """Records of all requests in flight, and the number of steps so far."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.steps = 0
        self.records: dict[str, RequestRecord] = {}

    def reset(self) -> None:
        """Forget everything, for a new session."""
        self.steps = 0
        self.records.clear()

    def arrive(self, record: RequestRecord) -> None:
        """A request came in."""
        self.records[record.request_id] = record

    def step(self, step: Step, new_tokens: dict[str, int]) -> None:
        """A step ended; ``new_tokens`` are the output tokens each request got in it."""
        self.steps = step.index + 1
        for part in step.parts:
            record = self.records.get(part.request_id)
            if record is None:
                continue
            record.add_step(step, part, self._block_size)
            record.token_times_ns.extend([step.end_ns] * new_tokens.get(part.request_id, 0))

    def finish(self, request_id: str, now_ns: int, reason: str) -> RequestRecord | None:
        """The request ended; its record, complete, or None if it was never recorded."""
        record = self.records.pop(request_id, None)
        if record is not None:
            record.finish_ns = now_ns
            record.finish_reason = reason
        return record
