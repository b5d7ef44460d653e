"""A client of the bare protocol, for tests that look at the server alone."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from sendnn_bench import protocol

LIMIT_S = 120
MS = 1_000_000


@dataclass(frozen=True)
class Ask:
    """One request: when it arrives, how long its prompt is, how many tokens it may generate."""

    arrival_ns: int
    prompt_tokens: int
    max_tokens: int
    inject: int | None = None
    ignore_eos: bool = True
    temperature: float | None = None
    token: int = 1000
    """Every prompt token is this one: equal numbers share their prefix in the cache."""


@dataclass
class Reply:
    """What came back over SSE."""

    status: int
    text: str
    record: dict[str, Any] = field(default_factory=dict)
    upstream: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None


class Session:
    """An open simulation session."""

    def __init__(self, http: aiohttp.ClientSession, url: str, name: str) -> None:
        self.http = http
        self.url = url
        self.name = name
        self.grants = 0
        """Grants that were answered."""
        self.path = f"{url}{protocol.SESSION_ROUTE}/{name}"

    async def advance(self, until_ns: int | None, submitted: int) -> dict[str, Any]:
        """The next grant; once more where a heartbeat said only that it goes on."""
        return await self.advance_as(self.grants + 1, until_ns, submitted)

    async def advance_as(self, grant: int, until_ns: int | None, submitted: int) -> dict[str, Any]:
        """The grant of this number."""
        body = {"grant": grant, "until_ns": until_ns, "submitted": submitted}
        async with self.http.post(self.path + "/advance", json=body) as response:
            answer = dict(await response.json())
        if answer.get("reason") != "until" or answer["now_ns"] >= (until_ns or math.inf):
            self.grants = grant
        return answer

    async def run_to_end(self, submitted: int) -> list[dict[str, Any]]:
        """Grant without limit until the engine is idle; all answers."""
        answers = []
        while True:
            answers.append(await self.advance(None, submitted))
            if answers[-1].get("reason") in ("idle", None):
                return answers

    async def ask(self, seq: int, ask: Ask) -> Reply:
        xargs: dict[str, Any] = {
            protocol.XARG_SESSION: self.name,
            protocol.XARG_SEQ: seq,
            protocol.XARG_ARRIVAL_NS: ask.arrival_ns,
        }
        if ask.inject is not None:
            xargs |= {protocol.XARG_OUTPUT_TOKENS: ask.inject, protocol.XARG_OUTPUT_SOURCE: "test"}
        return await post(self.http, self.url, ask, xargs)


async def post(
    http: aiohttp.ClientSession, url: str, ask: Ask, xargs: dict[str, Any] | None = None
) -> Reply:
    """Send a completion request and read its stream to the end."""
    body: dict[str, Any] = {
        "model": "sim-granite-8b",
        "prompt": [ask.token] * ask.prompt_tokens,
        "max_tokens": ask.max_tokens,
        "ignore_eos": ask.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    if xargs:
        body["vllm_xargs"] = xargs
    async with http.post(url + "/v1/completions", json=body) as response:
        text = await response.text()
        reply = Reply(response.status, text)
    events = [line[6:] for line in text.split("\n\n") if line.startswith("data: {")]
    for event in map(json.loads, events):
        for choice in event.get("choices", []):
            reply.finish_reason = choice["finish_reason"] or reply.finish_reason
        reply.usage = event.get("usage") or reply.usage
        reply.record = event.get(protocol.METRICS_KEY, reply.record)
        reply.upstream = event.get(protocol.METRICS_KEY + "_upstream", reply.upstream)
    return reply


@asynccontextmanager
async def session(url: str, warm: bool = False) -> AsyncIterator[Session]:
    """Open a session, and close it whatever happens."""
    # No limit on connections: a request held back here would never reach the engine.
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2),
        timeout=aiohttp.ClientTimeout(total=LIMIT_S),
    ) as http:
        body = {"protocol": protocol.PROTOCOL_VERSION, "warm": warm}
        async with http.post(url + protocol.SESSION_ROUTE, json=body) as response:
            opened = await response.json()
        assert response.status == 200, opened
        current = Session(http, url, opened["session"])
        try:
            yield current
        finally:
            (await http.delete(current.path)).close()


async def _run(url: str, asks: Sequence[Ask], warm: bool) -> list[Reply]:
    async with session(url, warm) as current:
        tasks = [asyncio.create_task(current.ask(seq, ask)) for seq, ask in enumerate(asks)]
        await current.run_to_end(len(asks))
        return await asyncio.gather(*tasks)


def run(url: str, asks: Sequence[Ask], warm: bool = False) -> list[Reply]:
    """Run requests in one session, all announced before time begins; replies in order."""
    return asyncio.run(asyncio.wait_for(_run(url, asks, warm), LIMIT_S))
