"""vLLM's engine core as the /sim calls see it, around a real `EngineSim`: a scheduler that runs
one request at a time, one token a step."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from server_plugin import settings
from server_plugin.engine import core as core_hooks
from server_plugin.sim.costs import ConstantCost
from server_plugin.sim.engine_sim import EngineSim
from server_plugin.sim.fields import SimFields
from server_plugin.sim.recorder import PartInStep

MS = 1_000_000


@dataclass
class FakeRequest:
    request_id: str
    tokens: int
    arrival_time: float = 0.0
    made: int = 0


@dataclass
class FakeScheduler:
    sim: EngineSim[Any]
    requests: dict[str, FakeRequest] = field(default_factory=dict)

    def has_requests(self) -> bool:
        return bool(self.requests)

    def sim_cold_start(self) -> None:
        if self.requests:
            raise RuntimeError("requests are left over from an earlier session")


class FakeCore:
    """The real hooks, driven as EngineCoreProc's busy loop drives them."""

    def __init__(self, prefill_ms: int = 100, decode_ms: int = 50) -> None:
        costs = ConstantCost(prefill_ns=prefill_ms * MS, decode_ns=decode_ms * MS)
        loaded = settings.load({settings.PREFIX + "METRICS_FILE": ""})
        self.scheduler = FakeScheduler(EngineSim(loaded, costs, 64, 512))
        self.records: dict[str, dict[str, Any]] = {}

    def submit(self, name: str, tokens: int, fields: SimFields) -> None:
        """A request comes in."""
        self.scheduler.sim.arrive(name, 10, fields, (FakeRequest(name, tokens), 0))
        self.work()

    def work(self) -> None:
        """What follows every message: steps, for as long as the gate lets them run."""
        core_hooks.pump(self)
        while self.scheduler.has_requests() and self.scheduler.sim.may_run:
            self._step(next(iter(self.scheduler.requests.values())))
            core_hooks.pump(self)

    def call(self, method: str, *args: Any) -> Any:
        answer = core_hooks.METHODS[method](self, *args)
        self.work()
        return answer

    # What the hooks call

    def sim_original_add_request(self, request: FakeRequest, _wave: int) -> None:
        self.scheduler.requests[request.request_id] = request

    def abort_requests(self, names: list[str]) -> None:
        for name in names:
            del self.scheduler.requests[name]
            self.scheduler.sim.finish(name, "abort")

    def _send_abort_outputs(self, requests: list[FakeRequest]) -> None:
        pass

    def _step(self, request: FakeRequest) -> None:
        sim, name = self.scheduler.sim, request.request_id
        tokens, context = (1, 10 + request.made) if request.made else (10, 0)
        part = PartInStep(name, tokens, context, decode=request.made > 0)
        sim.end_step(sim.begin_step([part], 1), tkv=context + tokens, new_tokens={name: 1})
        request.made += 1
        if request.made == request.tokens:
            del self.scheduler.requests[name]
            record = sim.finish(name, "length")
            assert record is not None
            self.records[name] = record


class FakeEngineClient:
    """`engine_client.engine_core.call_utility_async`, in one process."""

    def __init__(self, core: FakeCore) -> None:
        self.core = core
        self.engine_core = self

    async def call_utility_async(self, method: str, *args: Any) -> Any:
        answer = self.core.call(method, *args)
        return await asyncio.wrap_future(answer) if isinstance(answer, Future) else answer


def fake_vllm_config() -> Any:
    """What /sim/info tells of a server."""
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=4096),
        scheduler_config=SimpleNamespace(max_num_seqs=8, max_num_batched_tokens=512),
        cache_config=SimpleNamespace(block_size=64, num_gpu_blocks=136, enable_prefix_caching=True),
        parallel_config=SimpleNamespace(tensor_parallel_size=1),
    )
