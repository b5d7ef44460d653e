"""Calls of the session's routes against a real HTTP server that misbehaves on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sendnn_bench.bridge.control import Control
from sendnn_bench.bridge.http import Server
from sendnn_bench.errors import ResultError, ServerUnreachable
from sendnn_bench.protocol import Advance
from sendnn_bench.results import write_atomically

ANSWER = {"now_ns": 7, "reason": "finished", "finished": [0], "finished_ns": [7]}


def advance_against(handler: Callable[[web.Request], web.Response]) -> Advance:
    """Grant once at a server whose advance route is this handler."""

    async def scenario() -> Advance:
        async def route(request: web.Request) -> web.Response:
            return handler(request)

        app = web.Application()
        app.router.add_post("/sim/session/{name}/advance", route)
        async with TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as http:
            url = str(server.make_url("")).rstrip("/")
            return await Control(http, Server(url), watchdog_s=10).advance("s", 1, None, 1)

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def cut(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def test_a_cut_connection_is_asked_again_once() -> None:
    calls: list[str] = []

    def handler(request: web.Request) -> web.Response:
        calls.append(request.path)
        return cut(request) if len(calls) == 1 else web.json_response(ANSWER)

    assert advance_against(handler) == Advance(7, "finished", [0], [7])
    assert len(calls) == 2


def test_a_connection_that_is_cut_twice_is_a_lost_server() -> None:
    with pytest.raises(ServerUnreachable, match="mid-run"):
        advance_against(cut)


def test_a_server_that_breaks_is_a_lost_server() -> None:
    with pytest.raises(ServerUnreachable, match="HTTP 500"):
        advance_against(lambda _: web.Response(status=500, text="engine dead"))


def test_a_device_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no regular file"):
        write_atomically(Path("/dev/null"), "{}")
    with pytest.raises(ResultError, match="no regular file"):
        write_atomically(tmp_path, "{}")
