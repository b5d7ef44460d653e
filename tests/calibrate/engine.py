"""A tiny deterministic engine: runs a load on a cost profile, with the records our server makes.

Its scheduler is simple and its own; costs and records are the real ones.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sendnn_bench.metrics import Record
from sendnn_bench.profile_spec import Profile
from sendnn_bench.results import Result
from sendnn_bench.save import columns
from server_plugin.sim.costs import StepShape, build
from server_plugin.sim.recorder import PartInStep, Recorder, RequestRecord, Step

CHUNK = 512
BLOCK = 64
UPSTREAM_LACKS = (
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
)


@dataclass
class Request:
    name: str
    prompt: int
    output: int
    arrival_ns: int = 0
    computed: int = 0
    made: int = 0


@dataclass(frozen=True)
class Surroundings:
    """What a real server adds to the steps, in ns."""

    entry_ns: int = 0
    transit_ns: int = 0
    gap_ns: int = 0
    gap_ns_per_request: int = 0


class Engine:
    """Closed loop of ``concurrency`` requests. ``mixed``: prefill and decode share steps."""

    def __init__(self, profile: Profile, around: Surroundings, mixed: bool = False) -> None:
        self.recorder = Recorder(BLOCK)
        self.now_ns = 1_000_000
        self._costs = build(profile)
        self._around = around
        self._mixed = mixed
        self._decode_next = False

    def run(self, requests: Sequence[Request], concurrency: int) -> list[Record]:
        waiting, running = deque(requests), list[Request]()
        done: dict[str, Record] = {}
        while waiting or running:
            while waiting and len(running) < concurrency:
                running.append(self._admit(waiting.popleft(), idle=not running))
            self._step(running)
            for request in [r for r in running if r.made >= r.output]:
                running.remove(request)
                record = self.recorder.finish(request.name, self.now_ns, "length")
                assert record is not None
                done[request.name] = record.to_wire(CHUNK)
        return [done[request.name] for request in requests]

    def _admit(self, request: Request, idle: bool) -> Request:
        request.arrival_ns = self.now_ns
        if idle:
            self.now_ns += self._around.entry_ns
        arrived = RequestRecord(
            request.name, request.arrival_ns, self.recorder.steps, request.prompt
        )
        self.recorder.arrive(arrived)
        return request

    def _step(self, running: list[Request]) -> None:
        prefilling = [r for r in running if r.computed < r.prompt]
        decoding = [r for r in running if r.computed >= r.prompt]
        chunk = prefilling[:1] if not (self._decode_next and decoding) else []
        self._decode_next = bool(chunk)
        batch = decoding if self._mixed or not chunk else []
        parts = [PartInStep(r.name, _chunk(r, self._mixed), r.computed, False) for r in chunk]
        parts += [PartInStep(r.name, 1, r.computed, True) for r in batch]
        tkv = chunk[0].prompt if chunk and not batch else max(r.computed + 1 for r in batch)
        self._charge(parts, tkv, chunk, batch)

    def _charge(
        self, parts: list[PartInStep], tkv: int, chunk: list[Request], batch: list[Request]
    ) -> None:
        index = self.recorder.steps
        chunks = tuple((p.tokens, p.context_tokens) for p in parts if not p.decode)
        cost_ns = self._costs.step_ns(StepShape(chunks, len(batch), tkv, index))
        tokens = {}
        for part, request in zip(parts, [*chunk, *batch], strict=True):
            request.computed += part.tokens
            if request.computed >= request.prompt:
                tokens[request.name] = 1
                request.made += 1
        step = Step(index, self.now_ns, self.now_ns + cost_ns, tuple(parts), tkv, 0)
        self.recorder.step(step, tokens)
        gap_ns = self._around.gap_ns + self._around.gap_ns_per_request * len(parts)
        self.now_ns += cost_ns + gap_ns


def _chunk(request: Request, mixed: bool) -> int:
    """Tokens of the next chunk, padded at the left of the prompt as sendnn-inference does."""
    size = CHUNK
    if request.computed == 0 and not mixed:
        blocks = -(-request.prompt // BLOCK)
        size -= -(-request.prompt // CHUNK) * CHUNK - blocks * BLOCK
    return min(size, request.prompt - request.computed)


def result(
    profile: Profile,
    prompts: Sequence[int],
    outputs: Sequence[int],
    concurrency: int,
    *,
    around: Surroundings = Surroundings(),
    mixed: bool = False,
    upstream: bool = False,
) -> Result:
    """A detailed result of a run, with the keys of our server or only those of upstream's."""
    requests = [
        Request(f"r{index}", prompt, output)
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]
    records = Engine(profile, around, mixed).run(requests, concurrency)
    data: dict[str, Any] = {
        "model_id": "tiny",
        "date": "20260101-000000",
        "start_times": [record["arrival_ns"] / 1e9 for record in records],
        "ttfts": [
            (record["token_times_ns"][0] - record["arrival_ns"] + around.transit_ns) / 1e9
            for record in records
        ],
        "itls": [
            [(b - a) / 1e9 for a, b in itertools.pairwise(times)]
            for times in (record["token_times_ns"] for record in records)
        ],
        "input_lens": list(prompts),
        "output_lens": list(outputs),
        "errors": [""] * len(records),
    }
    if upstream:
        records = [{k: v for k, v in r.items() if k not in UPSTREAM_LACKS} for r in records]
    return Result(Path("tiny.json"), data | columns(records))


def without(found: Result, *rows: int) -> Result:
    """The same result, where some requests failed and have no record."""
    data = {key: list(v) if isinstance(v, list) else v for key, v in found.data.items()}
    for row in rows:
        data["errors"][row] = "connection lost"
        for key, column in data.items():
            if key.startswith("spyre_") and isinstance(column, list):
                column[row] = None
    return replace(found, data=data)
