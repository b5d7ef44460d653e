"""Read along in a response: our record and the server's errors, while vLLM reads the tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from sendnn_bench.bridge.http import message_of
from sendnn_bench.metrics import Record
from sendnn_bench.protocol import METRICS_KEY

_RECORD_MARK = f'"{METRICS_KEY}"'.encode()
_ERROR_MARK = b'"error"'
_SEPARATOR = b"\n\n"


class EventReader:
    """Cuts a byte stream into whole server-sent events and keeps what is ours.

    ``record`` is the request's metrics or None, ``error`` the message of an error event or empty.
    Whole events go on to vLLM, which would otherwise try to parse a long one anew at every piece.
    """

    def __init__(self) -> None:
        self.record: Record | None = None
        self.error = ""
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Take a piece of the stream; returns the whole events that are complete by now."""
        searched = max(0, len(self._rest) - 1)
        self._rest += chunk
        end = self._rest.rfind(_SEPARATOR, searched)
        if end < 0:
            return b""
        whole = bytes(self._rest[: end + len(_SEPARATOR)])
        del self._rest[: end + len(_SEPARATOR)]
        self._read(whole)
        return whole

    def end(self) -> bytes:
        """The stream ended; returns what was left of it."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._read(rest)
        return rest

    def _read(self, events: bytes) -> None:
        if _RECORD_MARK not in events and _ERROR_MARK not in events:
            return
        for event in events.split(_SEPARATOR):
            if _RECORD_MARK in event or _ERROR_MARK in event:
                self._read_event(event)

    def _read_event(self, event: bytes) -> None:
        try:
            data = json.loads(event.strip().removeprefix(b"data:"))
        except ValueError:
            return  # vLLM's reader, which sees the same bytes, says so
        if not isinstance(data, dict):
            return
        record = data.get(METRICS_KEY)
        if isinstance(record, dict):
            self.record = record
        if data.get("error") and not data.get("choices"):
            self.error = message_of(json.dumps({"error": data["error"]}))


class _TappedContent:
    def __init__(self, content: aiohttp.StreamReader, events: EventReader) -> None:
        self._content = content
        self._events = events

    async def iter_any(self) -> AsyncIterator[bytes]:
        async for chunk in self._content.iter_any():
            if whole := self._events.feed(chunk):
                yield whole
        if rest := self._events.end():
            yield rest


class _TappedResponse:
    def __init__(self, response: aiohttp.ClientResponse, events: EventReader) -> None:
        self._response = response
        self.content = _TappedContent(response.content, events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)


class TappedSession:
    """What vLLM's request functions get in place of the aiohttp session, for one request.

    ``http_error`` is set where the status was not 200 (with the message in the body, of which
    vLLM only keeps the status' name), ``lost`` where the connection failed.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        on_post: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._on_post = on_post
        self.events = EventReader()
        self.http_error = ""
        self.lost: BaseException | None = None

    @asynccontextmanager
    async def post(self, *args: Any, **kwargs: Any) -> AsyncIterator[_TappedResponse]:
        """As `aiohttp.ClientSession.post`; ``on_post`` gets a JSON body that is sent."""
        if isinstance(kwargs.get("json"), dict):
            self._on_post(kwargs["json"])
        try:
            async with self._session.post(*args, **kwargs) as response:
                if response.status != 200:
                    message = message_of(await response.text(errors="replace"))
                    self.http_error = f"HTTP {response.status}: {message or response.reason}"
                yield _TappedResponse(response, self.events)
        except (aiohttp.ClientError, OSError) as error:
            self.lost = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)
