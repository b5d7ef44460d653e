"""What happened to each request, in integer nanoseconds of virtual time, and its wire form."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from server_plugin.sim.clock import NS_PER_S

TRANSFER_KEY = "__sendnn_bench__"
"""Key of a record in `kv_transfer_params`, on its way from the engine to the API server."""


class PartInStep(NamedTuple):
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


class _StepFacts(NamedTuple):
    """What all requests of a step record of it; one object for all of them."""

    start_ns: int
    duration_ns: int
    tkv: int
    batch_size: int
    kv_blocks: int


@dataclass(slots=True)
class _PhaseSteps:
    """Steps of one phase of a request. Columns are made when they are asked for."""

    steps: list[_StepFacts] = field(default_factory=list)

    @property
    def start_ns(self) -> list[int]:
        """When each step began."""
        return [step.start_ns for step in self.steps]

    @property
    def duration_ns(self) -> list[int]:
        """How long each step took."""
        return [step.duration_ns for step in self.steps]


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

    def pause(self, now_ns: int) -> None:
        """The scheduler took the request out of the decode batch."""
        self.pause_start_ns.append(now_ns)

    def resume(self, now_ns: int) -> None:
        """The scheduler took it back."""
        self.pause_duration_ns.append(now_ns - self.pause_start_ns[-1])

    @property
    def queued_ns(self) -> int:
        """Arrival to the start of the first prefill chunk; 0 where none ran."""
        steps = self.prefill.steps
        return steps[0].start_ns - self.arrival_ns if steps else 0

    @property
    def prefill_elapsed_ns(self) -> int:
        """Start of the first prefill chunk to the end of the last."""
        steps = self.prefill.steps
        if not steps:
            return 0
        return steps[-1].start_ns + steps[-1].duration_ns - steps[0].start_ns

    def to_wire(self, chunk_size_tokens: int, token_delay_ns: int = 0) -> dict[str, Any]:
        """The record under upstream's field names (seconds as floats) with ours beside them.

        Token and finish times are the client's: ``token_delay_ns`` after the end of the step.
        """
        prefill, decode = self.prefill, self.decode
        steps = prefill.steps + decode.steps
        executed = len(prefill.steps)
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
            "tkvs": [step.tkv for step in steps],
            "prefill_elapsed_s": elapsed_ns / NS_PER_S,
            "prefill_busy_s": busy_ns / NS_PER_S,
            "prefill_idle_s": (elapsed_ns - busy_ns) / NS_PER_S,
            "prefix_cache_hit_pct": max(0, expected - executed) / expected if expected else 0.0,
            "left_padding_blocks": self.left_padding_blocks,
            "pause_latencies_s": _seconds(self.pause_duration_ns),
            "pause_start_times_s": _seconds(self.pause_start_ns),
            "was_missing_blocks": self.was_missing_blocks,
            "arrival_ns": self.arrival_ns,
            "first_scheduled_ns": prefill.steps[0].start_ns if prefill.steps else None,
            "token_times_ns": [time_ns + token_delay_ns for time_ns in self.token_times_ns],
            "finish_ns": None if self.finish_ns is None else self.finish_ns + token_delay_ns,
            "injected_output_tokens": self.injected_output_tokens,
            "injected_output_source": self.injected_output_source,
            "chunk_tokens": self.chunk_tokens,
            "chunk_context_tokens": self.chunk_context_tokens,
            "batch_sizes": [step.batch_size for step in steps],
            "kv_blocks_in_use": [step.kv_blocks for step in steps],
            "scheduler_steps_waited": waited,
            "num_preemptions": self.preemptions,
        }


def left_padding_blocks(tkv: int, computed: int, block_size: int) -> int:
    """KV blocks of left padding of a request in a decode step, all in tokens.

    ceil(tkv / block size) - ceil(computed / block size), at least 0, where ``computed`` counts the
    step's own token; sendnn-inference 2.6.3, `v1/core/scheduler.py`, computes the same.
    """
    return max(0, -(-tkv // block_size) + (-computed // block_size))


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
        end_ns, block_size = step.end_ns, self._block_size
        facts = _StepFacts(
            start_ns=step.start_ns,
            duration_ns=end_ns - step.start_ns,
            tkv=step.tkv,
            batch_size=len(step.parts),
            kv_blocks=step.kv_blocks_in_use,
        )
        # Runs for each request of each step: most of what recording costs.
        for request_id, tokens, context_tokens, decode in step.parts:
            record = self.records.get(request_id)
            if record is None:
                continue
            if record.first_step is None:
                record.first_step = step.index
            if decode:
                record.decode.steps.append(facts)
                blocks = left_padding_blocks(step.tkv, context_tokens + tokens, block_size)
                record.left_padding_blocks.append(blocks)
            else:
                record.prefill.steps.append(facts)
                record.chunk_tokens.append(tokens)
                record.chunk_context_tokens.append(context_tokens)
            if made := new_tokens.get(request_id):
                record.token_times_ns.extend([end_ns] * made)

    def finish(self, request_id: str, now_ns: int, reason: str) -> RequestRecord | None:
        """The request ended; its record, complete, or None if it was never recorded."""
        record = self.records.pop(request_id, None)
        if record is not None:
            record.finish_ns = now_ns
            record.finish_reason = reason
        return record
