"""The backends' request functions: vLLM's own, with the metrics collected on the way.

vLLM's function sends the request and reads the tokens. Ours hands it a tapped session, puts what
was read along on the output object (attribute ``spyre_record``), tells failures that vLLM takes
for success, and in a simulated run replaces the times by the virtual ones.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from sendnn_bench.bridge.http import Server, ask_info, unreachable
from sendnn_bench.bridge.session import SimSession, Ticket
from sendnn_bench.bridge.sse import TappedSession
from sendnn_bench.bridge.virtual_time import NS_PER_S
from sendnn_bench.errors import BenchError, ServerUnreachable
from sendnn_bench.metrics import Record
from sendnn_bench.protocol import (
    XARG_ARRIVAL_NS,
    XARG_OUTPUT_SOURCE,
    XARG_OUTPUT_TOKENS,
    XARG_SEQ,
    XARG_SESSION,
)
from sendnn_bench.reproducer import SentRequest

RequestFunc = Callable[..., Awaitable[Any]]
"""vLLM's protocol: called with request_func_input, session and pbar; returns its output."""

BACKEND = "spyre-chat"
RECORD_ATTRIBUTE = "spyre_record"
ASKED_ATTRIBUTE = "spyre_asked_tokens"


@dataclass(frozen=True)
class Measured:
    """A request of the main run that ended, as kept for a run that does not reach its end."""

    order: int
    request: Any
    output: Any


def record_of(output: Any) -> Record | None:
    """The metrics that came with an output of a request function."""
    record: Record | None = getattr(output, RECORD_ATTRIBUTE, None)
    return record


def asked_tokens_of(output: Any) -> int | None:
    """The output length that was asked for, in tokens; None where unknown."""
    asked: int | None = getattr(output, ASKED_ATTRIBUTE, None)
    return asked


def with_xargs(request: Any, xargs: dict[str, Any]) -> Any:
    """A request input with our fields in `vllm_xargs`; the user's own fields win."""
    body = dict(request.extra_body or {})
    body["vllm_xargs"] = {**xargs, **(body.get("vllm_xargs") or {})}
    return replace(request, extra_body=body)


def length_xargs(request: Any) -> dict[str, Any]:
    """The output length that the data set expects, as fields for the server."""
    if not request.output_len:
        return {}
    return {XARG_OUTPUT_TOKENS: request.output_len, XARG_OUTPUT_SOURCE: "dataset"}


def ticket_xargs(session: str, ticket: Ticket) -> dict[str, Any]:
    """A request's place in its session, as fields for the server."""
    return {
        XARG_SESSION: session,
        XARG_SEQ: ticket.seq,
        XARG_ARRIVAL_NS: ticket.arrival_ns,
    }


def with_session(body: Mapping[str, Any], session: str, ticket: Ticket) -> dict[str, Any]:
    """A body that was sent before, moved into another session."""
    fields = {**(body.get("vllm_xargs") or {}), **ticket_xargs(session, ticket)}
    return {**body, "vllm_xargs": fields}


class Backend:
    """Collects one run. ``simulated``: the server takes our fields; ``sim``: in virtual time.

    ``sent`` lists the requests of a run in virtual time as they were sent.
    ``died`` holds the error as soon as a request finds the server gone.
    """

    def __init__(
        self,
        server: Server,
        http: aiohttp.ClientSession,
        simulated: bool,
        sim: SimSession | None,
    ) -> None:
        self.measured: list[Measured] = []
        self.sent: list[SentRequest] = []
        self.main_run = False
        self.died: asyncio.Future[BenchError] = asyncio.get_running_loop().create_future()
        self.vllm_sessions: set[aiohttp.ClientSession] = set()
        self._server = server
        self._http = http
        self._simulated = simulated
        self._sim = sim
        self._order = 0

    def wrap(self, original: RequestFunc) -> RequestFunc:
        """The request function of a backend, collecting."""

        async def request_func(
            request_func_input: Any, session: aiohttp.ClientSession, pbar: Any = None
        ) -> Any:
            self.vllm_sessions.add(session)
            if request_func_input.api_url.endswith("profile"):
                return await original(
                    request_func_input=request_func_input, session=session, pbar=pbar
                )
            order, main = self._order, self.main_run and not _is_probe(request_func_input)
            self._order += 1
            send = self._send_real if self._sim is None else self._send_virtual
            output = await send(original, request_func_input, session, pbar)
            setattr(output, ASKED_ATTRIBUTE, request_func_input.output_len or None)
            if main:
                self.measured.append(Measured(order, request_func_input, output))
            return output

        return request_func

    async def _send_real(
        self, original: RequestFunc, request: Any, session: aiohttp.ClientSession, pbar: Any
    ) -> Any:
        xargs = length_xargs(request) if self._simulated else {}
        tap = TappedSession(session)
        output = await original(
            request_func_input=with_xargs(request, xargs) if xargs else request,
            session=tap,
            pbar=pbar,
        )
        conclude(output, tap)
        if tap.lost is not None:
            await self._check_alive()
        return output

    async def _send_virtual(
        self, original: RequestFunc, request: Any, _session: aiohttp.ClientSession, pbar: Any
    ) -> Any:
        sim = self._sim
        assert sim is not None
        ticket = sim.submit()
        xargs = {**ticket_xargs(sim.name, ticket), **length_xargs(request)}
        path = request.api_url.removeprefix(self._server.base_url)
        tap = TappedSession(self._http, lambda body: self._note_sent(ticket, path, body))
        output = await original(
            request_func_input=with_xargs(request, xargs), session=tap, pbar=pbar
        )
        conclude(output, tap)
        put_virtual_times(output, ticket)
        await sim.complete(ticket, failed=not output.success)
        return output

    def _note_sent(self, ticket: Ticket, path: str, body: Mapping[str, Any]) -> None:
        self.sent.append(SentRequest(ticket.seq, ticket.arrival_ns, path, body))

    async def _check_alive(self) -> None:
        """A lost connection may be one request's bad luck, or the server's end."""
        try:
            await ask_info(self._server)
        except ServerUnreachable as error:
            if not self.died.done():
                self.died.set_result(unreachable(self._server, error.__cause__ or error))


def _is_probe(request: Any) -> bool:
    """vLLM's probe requests (--probe-request-rate) run beside the main ones."""
    return (request.prompt, request.prompt_len, request.output_len) == ("Hi", 1, 1) and (
        request.request_id is None
    )


def conclude(output: Any, tap: TappedSession) -> None:
    """Put record and error on the output; failures get a message for people."""
    error = tap.http_error or tap.events.error
    if tap.lost is not None:
        error = error or f"connection lost: {tap.lost or type(tap.lost).__name__}"
    if error:
        output.success = False
        output.error = error
    setattr(output, RECORD_ATTRIBUTE, tap.events.record if output.success else None)


def put_virtual_times(output: Any, ticket: Ticket) -> None:
    """Replace the times of an output by the virtual ones, in seconds.

    A failed request keeps its start alone: when vLLM's reader saw its tokens says nothing.
    """
    record = record_of(output)
    times_ns = record.get("token_times_ns") if record else None
    if output.success and (record is None or not times_ns):
        output.success = False
        output.error = "the simulated server sent no token times for this request"
        setattr(output, RECORD_ATTRIBUTE, None)
    if not output.success:
        output.start_time = ticket.arrival_ns / NS_PER_S
        output.ttft, output.itl, output.latency = 0.0, [], 0.0
        return
    assert record is not None
    assert times_ns
    arrival_ns = record["arrival_ns"]
    output.start_time = arrival_ns / NS_PER_S
    output.ttft = (times_ns[0] - arrival_ns) / NS_PER_S
    output.itl = [(after - before) / NS_PER_S for before, after in itertools.pairwise(times_ns)]
    output.latency = (record["finish_ns"] - arrival_ns) / NS_PER_S
