"""Deterministic results of the three kinds that the timeline draws.

`simulated` runs a small scheduler by hand, one step at a time, through the server's recorder:
while a prompt waits it prefills one chunk of one request, but never two chunks in a row while
others can decode; decoding past `tkv_limit` pauses the newest request. `upstream` is the same run
told by sendnn-inference on real hardware, `plain` by `vllm bench serve --save-detailed`.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server_plugin.sim.recorder import PartInStep, Recorder, RequestRecord, Step

CHUNK_TOKENS = 512
BLOCK_TOKENS = 64
MS = 1_000_000
EPOCH_S = 1_780_000_000.123456
"""A server's wall clock, nothing like its clients' perf_counter."""

OURS_ONLY = [
    "arrival_ns",
    "first_scheduled_ns",
    "token_times_ns",
    "finish_ns",
    "injected_output_tokens",
    "injected_output_source",
    "chunk_tokens",
    "chunk_context_tokens",
    "batch_sizes",
    "kv_blocks_in_use",
    "scheduler_steps_waited",
    "num_preemptions",
]


@dataclass
class _Live:
    record: RequestRecord
    output_tokens: int
    computed: int = 0
    paused: bool = False

    @property
    def prefilled(self) -> bool:
        return self.computed >= self.record.prompt_tokens

    @property
    def blocks(self) -> int:
        return math.ceil(self.computed / BLOCK_TOKENS)


@dataclass
class Scheduler:
    """One prefill chunk costs ``prefill_ns``, a decode step ``decode_ns`` and 1 ms a request,
    and each up to ``jitter_ns`` more."""

    max_batch: int = 4
    tkv_limit: int = 10**9
    prefill_ns: int = 100 * MS
    decode_ns: int = 50 * MS
    jitter_ns: int = 0
    now_ns: int = 0
    steps: itertools.count = field(default_factory=itertools.count)
    waiting: list[_Live] = field(default_factory=list)
    running: list[_Live] = field(default_factory=list)
    decoded_last: bool = True
    source: random.Random = field(default_factory=lambda: random.Random(2))

    def run(self, arrivals: list[tuple[int, int, int]]) -> list[RequestRecord]:
        """Serve (arrival in ns, prompt tokens, output tokens), sorted by arrival."""
        records = [
            RequestRecord(f"cmpl-{i}", at, 0, prompt, output, "dataset", i)
            for i, (at, prompt, output) in enumerate(arrivals)
        ]
        future = [_Live(r, a[2]) for r, a in zip(records, arrivals, strict=True)]
        while future or self.waiting or self.running:
            if not (self.waiting or self.running):
                self.now_ns = max(self.now_ns, future[0].record.arrival_ns)
            while future and future[0].record.arrival_ns <= self.now_ns:
                self.waiting.append(future.pop(0))
            self._step()
        return records

    def _step(self) -> None:
        while self.waiting and len(self.running) < self.max_batch:
            self.running.append(self.waiting.pop(0))
        filling = [live for live in self.running if not live.prefilled]
        decoding = self._decoding()
        if filling and (self.decoded_last or not decoding):
            self._prefill(filling[0])
        else:
            self._decode(decoding)
        for live in [live for live in self.running if self._done(live)]:
            self.running.remove(live)
            live.record.finish_ns = self.now_ns

    def _decoding(self) -> list[_Live]:
        """Requests that decode now; the newest pause while the batch is too large."""
        chosen: list[_Live] = []
        for live in (live for live in self.running if live.prefilled):
            longest = max(other.computed for other in [*chosen, live])
            fits = not chosen or longest * (len(chosen) + 1) <= self.tkv_limit
            if fits:
                chosen.append(live)
            if fits and live.paused:
                live.record.resume(self.now_ns)
            if not fits and not live.paused:
                live.record.pause(self.now_ns)
            live.paused = not fits
        return chosen

    def _prefill(self, live: _Live) -> None:
        tokens = min(CHUNK_TOKENS, live.record.prompt_tokens - live.computed)
        self._charge([(live, tokens)], self.prefill_ns, decode=False)
        if live.prefilled:
            live.record.token_times_ns.append(self.now_ns)
        self.decoded_last = False

    def _decode(self, batch: list[_Live]) -> None:
        self._charge([(live, 1) for live in batch], self.decode_ns + len(batch) * MS, decode=True)
        for live in batch:
            live.record.token_times_ns.append(self.now_ns)
        self.decoded_last = True

    def _charge(self, parts: list[tuple[_Live, int]], cost_ns: int, *, decode: bool) -> None:
        jitter_ns = self.source.randrange(self.jitter_ns) if self.jitter_ns else 0
        start_ns, self.now_ns = self.now_ns, self.now_ns + cost_ns + jitter_ns
        told = tuple(
            PartInStep(live.record.request_id, tokens, live.computed, decode)
            for live, tokens in parts
        )
        for live, tokens in parts:
            live.computed += tokens
        tkv = max(live.computed for live, _ in parts)
        blocks = sum(live.blocks for live in self.running)
        step = Step(next(self.steps), start_ns, self.now_ns, told, tkv, blocks)
        recorder = Recorder(BLOCK_TOKENS)
        for live, _ in parts:
            recorder.arrive(live.record)
        recorder.step(step, {})

    @staticmethod
    def _done(live: _Live) -> bool:
        return len(live.record.token_times_ns) >= live.output_tokens


def arrivals(count: int, output_tokens: int, gap_ms: float, seed: int = 0) -> list[tuple[int, ...]]:
    """Poisson arrivals with prompts of one to four chunks."""
    source = random.Random(seed)
    at_ms, made = 0.0, []
    for _ in range(count):
        at_ms += source.expovariate(1 / gap_ms)
        made.append((round(at_ms * MS), source.randrange(64, 4 * CHUNK_TOKENS), output_tokens))
    return made


def simulated(
    schedule: list[tuple[int, int, int]], failed: tuple[int, ...] = (), **scheduler: int
) -> dict[str, Any]:
    """Result JSON of our client against our simulated server; ``failed`` are row numbers."""
    records = Scheduler(**scheduler).run(schedule)
    data = _vllm_columns(records, offset_s=100.0)
    wires = [record.to_wire(CHUNK_TOKENS) for record in records]
    data |= {f"spyre_{key}": [wire[key] for wire in wires] for key in wires[0]}
    data["sendnn"] = {"mode": "virtual", "schema": 1}
    for row in failed:
        _fail(data, row)
    return data


def upstream(schedule: list[tuple[int, int, int]], failed: tuple[int, ...] = (), **scheduler: int):
    """The same run told by upstream's client on real hardware: epoch floats, gaps of some µs."""
    records = Scheduler(**scheduler).run(schedule)
    source = random.Random(1)
    data = _vllm_columns(records, offset_s=4321.0)
    # The client's clock is another one, and transport takes its unsteady time.
    data["start_times"] = [start - source.uniform(0.001, 0.004) for start in data["start_times"]]
    wires = [record.to_wire(CHUNK_TOKENS) for record in records]
    for wire in wires:
        for key in OURS_ONLY:
            del wire[key]
        for name in ("chunk_prefill", "decode", "pause"):
            starts = wire[f"{name}_start_times_s"]
            wire[f"{name}_start_times_s"] = [EPOCH_S + start for start in starts]
        for name in ("chunk_prefill", "decode"):  # a step ends 35 µs before the next can begin
            latencies = wire[f"{name}_latencies_s"]
            wire[f"{name}_latencies_s"] = [latency - 35e-6 for latency in latencies]
    data |= {f"spyre_{key}": [wire[key] for wire in wires] for key in wires[0]}
    for row in failed:
        _fail(data, row)
    return data


def plain(schedule: list[tuple[int, int, int]], failed: tuple[int, ...] = (), **scheduler: int):
    """The same run as `vllm bench serve --save-detailed` keeps it."""
    data = _vllm_columns(Scheduler(**scheduler).run(schedule), offset_s=4321.0)
    for row in failed:
        _fail(data, row)
    return data


def _vllm_columns(records: list[RequestRecord], offset_s: float) -> dict[str, Any]:
    tokens = [record.token_times_ns for record in records]
    return {
        "date": "20260101-000000",
        "backend": "spyre-chat",
        "model_id": "ibm-granite/granite-3.3-8b-instruct",
        "duration": max(record.finish_ns or 0 for record in records) / 1e9,
        "completed": len(records),
        "start_times": [offset_s + record.arrival_ns / 1e9 for record in records],
        "ttfts": [(t[0] - r.arrival_ns) / 1e9 for t, r in zip(tokens, records, strict=True)],
        "itls": [[(b - a) / 1e9 for a, b in itertools.pairwise(times)] for times in tokens],
        "input_lens": [record.prompt_tokens for record in records],
        "output_lens": [len(times) for times in tokens],
        "errors": [""] * len(records),
    }


def _fail(data: dict[str, Any], row: int) -> None:
    """A failed row: no server record, columns at their empty values."""
    data["errors"][row] = "503 Service Unavailable: <b>too many</b> requests"
    data["ttfts"][row], data["itls"][row], data["output_lens"][row] = 0.0, [], 0
    data["completed"] -= 1
    for key, column in data.items():
        if key.startswith("spyre_"):
            column[row] = [] if isinstance(column[row], list) else None


def write(path: Path, data: dict[str, Any]) -> Path:
    """Save a result JSON."""
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
