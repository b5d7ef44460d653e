"""Send the requests of a reproducer again, each at its virtual arrival. Needs no vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from sendnn_bench.bridge.backend import with_session
from sendnn_bench.bridge.control import Control
from sendnn_bench.bridge.http import Server
from sendnn_bench.bridge.session import SimSession
from sendnn_bench.bridge.virtual_time import NS_PER_S
from sendnn_bench.errors import EngineFailed
from sendnn_bench.reproducer import SentRequest

CLOSE_LIMIT_S = 10.0


async def replay_requests(
    server: Server, requests: Sequence[SentRequest], watchdog_s: float
) -> EngineFailed | None:
    """Run them in a cold session; the engine's failure, or None where all ran to their end.

    Raises:
        ServerUnreachable, SessionBusy, SimStalled, SimError: see `Control`.
    """
    async with aiohttp.ClientSession(
        connector=server.connector(), timeout=aiohttp.ClientTimeout(total=None), trust_env=True
    ) as http:
        sim = SimSession(Control(http, server, watchdog_s), warm=False, watchdog_s=watchdog_s)
        await sim.open()
        in_order = sorted(requests, key=lambda request: request.seq)
        senders = [asyncio.create_task(_send(sim, http, server, item)) for item in in_order]
        try:
            return await _drive(sim, senders)
        finally:
            for task in senders:
                task.cancel()
            await asyncio.gather(*senders, return_exceptions=True)


async def _drive(sim: SimSession, senders: list[asyncio.Task[None]]) -> EngineFailed | None:
    grants = asyncio.create_task(sim.run())
    everything = asyncio.create_task(_all(senders))
    try:
        await asyncio.wait({grants, everything}, return_when=asyncio.FIRST_COMPLETED)
        if not everything.done():
            await grants
        await everything
    except EngineFailed as failure:
        return failure
    finally:
        for task in (grants, everything):
            task.cancel()
        await asyncio.gather(grants, everything, return_exceptions=True)
    await asyncio.wait_for(sim.close(), CLOSE_LIMIT_S)
    return None


async def _all(tasks: Sequence[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


async def _send(
    sim: SimSession, http: aiohttp.ClientSession, server: Server, request: SentRequest
) -> None:
    """One request, from its arrival to its virtual end."""
    delay_ns = request.arrival_ns - sim.clock.now_ns
    if delay_ns > 0:
        await sim.clock.sleep(delay_ns / NS_PER_S)
    ticket = sim.submit()
    body = with_session(request.body, sim.name, ticket)
    failed = True
    try:
        async with http.post(
            server.base_url + request.path, json=body, headers=dict(server.headers)
        ) as response:
            await response.read()
            failed = response.status != 200
    except (aiohttp.ClientError, OSError):
        pass  # where the server is gone, the pending grant tells
    await sim.complete(ticket, failed)
