"""A simulated server in a hundred lines: real HTTP, the real protocol, a trivial engine.

The engine takes one request after the other in order of (arrival, seq): a prefill of 100 ms, then
50 ms for each further token. What a request's prompt holds decides its fate: see `FATES`.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sendnn_bench.protocol import PROTOCOL_VERSION

PREFILL_NS = 100_000_000
DECODE_NS = 50_000_000
MODEL = "sim-granite-8b"
FATES = ("REJECT", "ERROR-EVENT", "SILENT")


@dataclass(order=True)
class Job:
    arrival_ns: int
    seq: int
    tokens: int = field(compare=False)
    done: asyncio.Event = field(compare=False)
    record: dict[str, Any] = field(compare=False, default_factory=dict)


class FakeServer:
    """``clock`` None: a real server that streams upstream's fields (or nothing: ``metrics``)."""

    def __init__(
        self,
        *,
        clock: str | None = "virtual",
        metrics: bool = True,
        die_after: int | None = None,
        fail_after: int | None = None,
        on_finish: Callable[[int], None] | None = None,
        stuck: bool = False,
        start_ns: int = 0,
        heartbeats: int = 0,
        settle_delay_s: float = 0,
    ) -> None:
        self.clock, self.metrics, self.die_after = clock, metrics, die_after
        self.fail_after = fail_after
        self.on_finish, self.stuck = on_finish, stuck
        self.bodies: list[dict[str, Any]] = []
        self.sessions: list[str] = []
        self.start_ns = start_ns
        self.settle_delay_s = settle_delay_s
        self.heartbeats = self.heartbeats_due = heartbeats
        self.finished = 0
        self.paced_steps = 0
        self.session: str | None = None
        self._reset(0)
        self._loop = asyncio.new_event_loop()
        self._transports: set[Any] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    # Life

    def __enter__(self) -> FakeServer:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def argv(self) -> list[str]:
        return ["--base-url", f"http://127.0.0.1:{self.port}"]

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        if self.clock is not None:
            app.router.add_get("/sim/info", self._info)
            app.router.add_get("/sim/status", self._status)
            app.router.add_post("/sim/session", self._open)
            app.router.add_post("/sim/session/{id}/advance", self._advance)
            app.router.add_post("/sim/session/{id}/settle", self._settle)
            app.router.add_delete("/sim/session/{id}", self._close)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        self.port = self._site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self._started.set()

    async def _die(self) -> None:
        await self._site.stop()
        for transport in self._transports:
            transport.abort()

    # The protocol

    def _reset(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.steps = self.answered = 0
        self.staged: list[Job] = []
        self.resolved: set[int] = set()
        self.ended: list[int] = []
        self.rejected = False
        self.grant: tuple[int | None, int, asyncio.Future[dict[str, Any]]] | None = None

    async def _info(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "protocol": PROTOCOL_VERSION,
                "clock": self.clock,
                "target": "fake",
                "model": MODEL,
                "cost_model": {"kind": "constant", "prefill_ms": 100, "decode_ms": 50},
                "versions": {"fake": "1"},
                "settings": {},
                "limits": {},
                "a_field_of_the_future": 1,
            }
        )

    async def _status(self, _: web.Request) -> web.Response:
        if self.clock == "paced":
            self.paced_steps += 100
            late = self.paced_steps // 10
            pace = {"speed": 10, "steps": self.paced_steps, "late_steps": late}
            return web.json_response({"pace": {**pace, "late_total_ms": late * 3.0}})
        return web.Response(text="the gate is stuck" if self.stuck else "well")

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL, "root": MODEL}]})

    async def _open(self, request: web.Request) -> web.Response:
        if self.session is not None:
            return web.json_response({"error": {"message": "the session is taken"}}, status=409)
        body = await request.json()
        assert body.keys() == {"protocol", "warm"}
        warm = body["warm"]
        self.session = f"session-{len(self.sessions)}"
        self.sessions.append(self.session)
        self._reset(self.start_ns if warm else 0)
        return web.json_response(
            {"session": self.session, "start": "warm" if warm else "cold", "now_ns": self.now_ns}
        )

    async def _advance(self, request: web.Request) -> web.Response:
        self._transports.add(request.transport)
        body = await request.json()
        assert request.match_info["id"] == self.session
        assert body["grant"] == self.answered + 1
        if self.heartbeats_due:
            self.heartbeats_due -= 1
            heartbeat_ns = self.now_ns + 1 if body["until_ns"] is None else self.now_ns
            return web.json_response({"now_ns": heartbeat_ns, "reason": "until", "finished": []})
        assert self.grant is None
        future = self._loop.create_future()
        self.grant = (body["until_ns"], body["submitted"], future)
        self.heartbeats_due = self.heartbeats
        self._pump()
        return web.json_response(await future)

    async def _settle(self, request: web.Request) -> web.Response:
        seq = (await request.json())["seq"]
        if seq not in self.resolved:
            self.resolved.add(seq)
            self.ended.append(seq)
            self.rejected = True
            self._pump()
        await asyncio.sleep(self.settle_delay_s)
        return web.json_response({})

    async def _close(self, _: web.Request) -> web.Response:
        counters = {
            "now_ns": self.now_ns,
            "steps": self.steps,
            "requests": len(self.resolved),
            "foreign_requests": 0,
        }
        self.session = None
        return web.json_response(counters)

    def _pump(self) -> None:
        while not self.stuck and self.grant is not None:
            until_ns, submitted, _ = self.grant
            if not self.resolved.issuperset(range(submitted)):
                return
            if self.rejected or self.ended:
                self._answer("rejected" if self.rejected else "finished")
            elif until_ns is not None and self.now_ns >= until_ns:
                self._answer("until")
            elif self.staged and (until_ns is None or self.staged[0].arrival_ns < until_ns):
                self._run(heapq.heappop(self.staged))
            elif until_ns is not None:
                self.now_ns = until_ns
            else:
                self._answer("idle")

    def _answer(self, reason: str) -> None:
        assert self.grant is not None
        future = self.grant[2]
        answer = {"now_ns": self.now_ns, "reason": reason, "finished": sorted(self.ended)}
        if self.fail_after is not None and self.finished >= self.fail_after:
            answer |= {"reason": "failed", "finished": [], "failure": self._failure()}
        self.grant, self.ended, self.rejected = None, [], False
        self.answered += 1
        if self.die_after is not None and self.finished >= self.die_after:
            self._loop.create_task(self._die())
        else:
            future.set_result(answer)

    def _failure(self) -> dict[str, Any]:
        state = {"batch": [], "free_kv_blocks": 3}
        error = "AssertionError: planted"
        trace = f"Traceback ...\n{error}"
        return {
            "step": self.steps,
            "now_ns": self.now_ns,
            "error": error,
            "traceback": trace,
            "state": state,
        }

    def _run(self, job: Job) -> None:
        start_ns = max(self.now_ns, job.arrival_ns)
        times_ns = [start_ns + PREFILL_NS + step * DECODE_NS for step in range(job.tokens)]
        self.now_ns = times_ns[-1]
        self.steps += job.tokens
        self.finished += 1
        job.record.update(
            queued_time_s=(start_ns - job.arrival_ns) / 1e9,
            num_chunked_prefills=1,
            chunk_prefill_start_times_s=[start_ns / 1e9],
            chunk_prefill_latencies_s=[0.1],
            decode_start_times_s=[time_ns / 1e9 for time_ns in times_ns[:-1]],
            decode_latencies_s=[0.05] * (job.tokens - 1),
            pause_latencies_s=[],
            was_missing_blocks=False,
            arrival_ns=job.arrival_ns,
            token_times_ns=times_ns,
            finish_ns=times_ns[-1],
        )
        job.done.set()
        self.ended.append(job.seq)
        if self.on_finish:
            self.on_finish(self.finished)

    # The OpenAI routes

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, lambda text: {"text": text})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, lambda text: {"delta": {"content": text}})

    async def _generate(
        self, request: web.Request, choice: Callable[[str], dict[str, Any]]
    ) -> web.StreamResponse:
        self._transports.add(request.transport)
        body = await request.json()
        self.bodies.append(body)
        prompt = body.get("prompt") or json.dumps(body["messages"])
        if body["model"] != MODEL:
            return _error(404, f"The model `{body['model']}` does not exist.")
        if "REJECT" in prompt:
            return _error(400, "the prompt is too long")
        job = await self._job(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for index in range(1 if "ERROR-EVENT" in prompt else job.tokens):
            await _event(response, {"choices": [choice(f"w{index} ")]})
        if "ERROR-EVENT" in prompt:
            await _event(response, {"error": {"message": "the engine broke", "code": 500}})
        else:
            usage = {"completion_tokens": job.tokens, "prompt_tokens": 7}
            record = {"spyre_metrics": job.record} if self._streams(prompt) else {}
            await _event(response, {"choices": [], "usage": usage, **record})
        await response.write(b"data: [DONE]\n\n")
        return response

    def _streams(self, prompt: str) -> bool:
        return self.metrics and "SILENT" not in prompt

    async def _job(self, body: dict[str, Any]) -> Job:
        xargs = body.get("vllm_xargs", {})
        most = body.get("max_tokens") or body["max_completion_tokens"]
        tokens = min(most, xargs.get("sendnn_sim_output_tokens", most))
        job = Job(
            xargs.get("sendnn_sim_arrival_ns", 0),
            xargs.get("sendnn_sim_seq", 0),
            tokens,
            asyncio.Event(),
        )
        if self.clock == "virtual":
            assert xargs["sendnn_sim_session"] == self.session
            self.resolved.add(job.seq)
            heapq.heappush(self.staged, job)
            self._pump()
            await job.done.wait()
        else:
            self.finished += 1
            if self.die_after is not None and self.finished > self.die_after:
                await self._die()
            if self.on_finish:
                self.on_finish(self.finished)
            job.record.update(queued_time_s=0.25, num_chunked_prefills=2, decode_latencies_s=[0.01])
        return job


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)


async def _event(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(data).encode() + b"\n\n")
