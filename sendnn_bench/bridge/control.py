"""The simulation session's routes, as calls. See `sendnn_bench.protocol` for their meaning."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import fields
from typing import Any, TypeVar

import aiohttp

from sendnn_bench.bridge.http import MAX_MESSAGE_CHARS, Server, message_of
from sendnn_bench.errors import ServerUnreachable, SessionBusy, SimError, SimStalled
from sendnn_bench.protocol import (
    PROTOCOL_VERSION,
    SESSION_ROUTE,
    STATUS_ROUTE,
    Advance,
    Pace,
    SessionClosed,
    SessionOpened,
)

T = TypeVar("T")

RETRY_S = 0.2

STATUS_TIMEOUT_S = 5.0


class Control:
    """Calls to one server. ``watchdog_s`` bounds the wait for any answer, in real seconds.

    Every call raises:
        ServerUnreachable: the connection fails.
        SessionBusy: the server's one session is somebody else's.
        SimStalled: no answer in time.
        SimError: the server refuses; its message is passed on.
    """

    def __init__(self, http: aiohttp.ClientSession, server: Server, watchdog_s: float) -> None:
        self._http = http
        self._server = server
        self._timeout = aiohttp.ClientTimeout(total=None, sock_read=watchdog_s, sock_connect=10)
        self._watchdog_s = watchdog_s

    async def open(self, warm: bool) -> SessionOpened:
        """Open the session, on a cold engine unless ``warm``."""
        body = {"protocol": PROTOCOL_VERSION, "warm": warm}
        return _read(SessionOpened, await self._call("POST", "", body))

    async def advance(
        self, session: str, number: int, until_ns: int | None, submitted: int
    ) -> Advance:
        """The grant of this number; answers when the server has got that far.

        Asks once more where the connection was lost: the server keeps the answer for that.
        """
        grant = {"grant": number, "until_ns": until_ns, "submitted": submitted}
        path = f"/{session}/advance"
        try:
            return _read(Advance, await self._call("POST", path, grant))
        except ServerUnreachable:
            await asyncio.sleep(RETRY_S)
            return _read(Advance, await self._call("POST", path, grant))

    async def settle(self, session: str, seq: int) -> None:
        """A request ended without reaching the engine.

        Raises nothing: where the server is gone, the pending grant tells.
        """
        with contextlib.suppress(ServerUnreachable, SimError):
            await self._call("POST", f"/{session}/settle", {"seq": seq})

    async def status(self) -> str:
        """The server's own account of its state, for the dump of a stall; a reason where none."""
        try:
            return (await self._status())[:MAX_MESSAGE_CHARS]
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return f"unknown ({str(error) or type(error).__name__})"

    async def pace(self) -> Pace | None:
        """How a paced server has kept its pace so far; None where it does not tell."""
        try:
            return _read(Pace, json.loads(await self._status())["pace"])
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError, LookupError, SimError):
            return None

    async def _status(self) -> str:
        url = self._server.base_url + STATUS_ROUTE
        timeout = aiohttp.ClientTimeout(total=STATUS_TIMEOUT_S)
        headers = dict(self._server.headers)
        async with self._http.get(url, headers=headers, timeout=timeout) as response:
            return await response.text()

    async def close(self, session: str) -> SessionClosed:
        """End the session."""
        return _read(SessionClosed, await self._call("DELETE", f"/{session}", None))

    async def _call(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        url = self._server.base_url + SESSION_ROUTE + path
        try:
            async with self._http.request(
                method, url, json=body, headers=dict(self._server.headers), timeout=self._timeout
            ) as response:
                text = await response.text()
        except TimeoutError as error:
            raise SimStalled(
                f"the simulated server has not answered {method} {SESSION_ROUTE}{path} for "
                f"{self._watchdog_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ServerUnreachable(
                f"the connection to the simulated server at {self._server.base_url} failed in "
                f"mid-run ({str(error) or type(error).__name__}). Look into the server's log."
            ) from error
        if response.status == 409 and not path:
            raise SessionBusy(message_of(text))
        if response.status >= 500:
            raise ServerUnreachable(
                f"the simulated server at {self._server.base_url} broke in mid-run (HTTP "
                f"{response.status}: {message_of(text)}). Look into its log."
            )
        if response.status >= 300:
            raise SimError(
                f"the simulated server refused (HTTP {response.status}): {message_of(text)}"
            )
        return json.loads(text) if text else {}


def _read(kind: type[T], data: Any) -> T:
    """A dataclass from JSON; fields that this version does not know are dropped."""
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{key: value for key, value in data.items() if key in known})
    except (AttributeError, TypeError) as error:
        raise SimError(f"the simulated server's answer is not understood: {error}") from error
