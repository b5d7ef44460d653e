"""Talk to the server outside the benchmark itself: who is there, and what went wrong."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, fields
from typing import Any

import aiohttp

from sendnn_bench.errors import ServerUnreachable, SimError, UsageError
from sendnn_bench.protocol import INFO_ROUTE, PROTOCOL_VERSION, ServerInfo

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 15.0
RETRY_S = 0.5
MAX_MESSAGE_CHARS = 2_000


@dataclass(frozen=True)
class Server:
    """Where the server is and how to reach it; ``insecure`` skips TLS certificate checks."""

    base_url: str
    headers: tuple[tuple[str, str], ...] = ()
    insecure: bool = False

    def connector(self) -> aiohttp.TCPConnector:
        """A connection pool without a limit.

        vLLM's pool is limited to --max-concurrency; a request held back there would never reach
        the engine, which waits for it. Idle connections are dropped sooner than the server does
        (5 s), so that none dies under a request.
        """
        return aiohttp.TCPConnector(
            limit=0,
            limit_per_host=0,
            keepalive_timeout=2,
            ssl=not self.insecure,
        )


def message_of(body: str) -> str:
    """The message in an error body: vLLM's and FastAPI's JSON shapes, or the text itself."""
    try:
        data: Any = json.loads(body)
    except ValueError:
        data = body
    for key in ("error", "message", "detail"):
        if isinstance(data, dict) and key in data:
            data = data[key]
    text = data if isinstance(data, str) else json.dumps(data)
    return text.strip()[:MAX_MESSAGE_CHARS]


async def ask_info(server: Server, keep_trying_s: float = 0.0) -> ServerInfo | None:
    """Ask who is simulating; None where the server is not a simulated one.

    Raises:
        ServerUnreachable: nobody answers, for ``keep_trying_s`` or at once where that is 0.
        UsageError: the server wants a key.
        SimError: it is a simulated server that speaks another version of the protocol.
    """
    deadline = time.monotonic() + keep_trying_s
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    async with aiohttp.ClientSession(
        connector=server.connector(), timeout=timeout, trust_env=True
    ) as session:
        while True:
            try:
                return await _ask_once(session, server)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                if time.monotonic() >= deadline:
                    raise unreachable(server, error) from error
            await asyncio.sleep(RETRY_S)


async def served_models(server: Server) -> list[str]:
    """Names of the models that the server serves; empty where it does not say."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(
                connector=server.connector(), timeout=timeout, trust_env=True
            ) as session,
            session.get(server.base_url + "/v1/models", headers=dict(server.headers)) as response,
        ):
            data = json.loads(await response.text())
        return [str(model["id"]) for model in data["data"]]
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, LookupError, TypeError):
        return []


def unreachable(server: Server, error: BaseException) -> ServerUnreachable:
    """The error for a server that does not answer."""
    reason = str(error) or type(error).__name__
    return ServerUnreachable(
        f"no server answers at {server.base_url} ({reason}). Start one, or name another with "
        "--base-url or --host and --port."
    )


async def _ask_once(session: aiohttp.ClientSession, server: Server) -> ServerInfo | None:
    url = server.base_url + INFO_ROUTE
    async with session.get(url, headers=dict(server.headers)) as response:
        body = await response.text(errors="replace")
        if response.status in (401, 403):
            raise UsageError(
                f"the server refuses us (HTTP {response.status}: {message_of(body)}). Set "
                "OPENAI_API_KEY, or add --header Authorization='Bearer KEY'."
            )
        if response.status != 200:
            return None
    try:
        data = json.loads(body)
    except ValueError:
        return None
    return parse_info(data)


def parse_info(data: Any) -> ServerInfo | None:
    """Read the answer of /sim/info; None where it is somebody else's.

    Raises:
        SimError: another version of the protocol, or fields are missing.
    """
    if not isinstance(data, dict) or "protocol" not in data:
        return None
    if data["protocol"] != PROTOCOL_VERSION:
        raise SimError(
            f"the server speaks version {data['protocol']} of the simulation protocol, this client "
            f"version {PROTOCOL_VERSION}. Install the same sendnn-bench on both sides."
        )
    known = {item.name for item in fields(ServerInfo)}
    try:
        return ServerInfo(**{key: value for key, value in data.items() if key in known})
    except TypeError as error:
        raise SimError(f"the server's answer to {INFO_ROUTE} is incomplete: {error}.") from error
