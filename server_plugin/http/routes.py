"""The /sim routes: what our client asks of a simulated server. See `sendnn_bench.protocol`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from argparse import Namespace
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field
from vllm.logger import init_logger

from sendnn_bench.command_words import without
from sendnn_bench.protocol import (
    INFO_ROUTE,
    PROTOCOL_VERSION,
    SESSION_ROUTE,
    STATUS_ROUTE,
    ServerInfo,
)
from server_plugin import hooks
from server_plugin import settings as sim_settings
from server_plugin.engine.scheduler import cost_model
from server_plugin.http.sessions import SESSIONS
from server_plugin.sim.fields import MAX_COUNT, MAX_NS

logger = init_logger(__name__)

AuthenticationMiddleware = hooks.find(hooks.AUTHENTICATION)

HEARTBEAT_S = 5.0
"""A grant that takes longer is answered with the clock as it stands, and goes on."""

DISCONNECT_POLL_S = 0.5


SECRET_FLAGS = {"--api-key", "--hf-token"}
"""Not told to clients."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class OpenSession(_Strict):
    """Body of ``POST /sim/session``."""

    protocol: int
    warm: bool = False


class AdvanceRequest(_Strict):
    """Body of ``POST /sim/session/{id}/advance``."""

    grant: Annotated[int, Field(ge=1, le=MAX_COUNT)]
    until_ns: Annotated[int, Field(ge=0, le=MAX_NS)] | None
    submitted: Annotated[int, Field(ge=0, le=MAX_COUNT)]


class SettleRequest(_Strict):
    """Body of ``POST /sim/session/{id}/settle``."""

    seq: Annotated[int, Field(ge=0, le=MAX_COUNT)]


@dataclass
class _Grant:
    number: int
    answer: asyncio.Task[dict[str, Any]]


class Controller:
    """Talks to the engine for the routes; one per API server."""

    def __init__(self, engine: Any, vllm_config: Any, tokens: list[str], model: str) -> None:
        self._engine = engine
        self._config = vllm_config
        self._auth = AuthenticationMiddleware(None, tokens) if tokens else None
        self._model = model
        self._settings = sim_settings.load(os.environ)
        # Once, as the engine does: the file may change under a running server.
        self._cost_model = cost_model(self._settings).describe()
        self._grant: _Grant | None = None
        self._expiry = asyncio.create_task(self._expire())

    def authorise(self, request: Request) -> None:
        """vLLM guards only its /v1 routes; ours ask for the same key."""
        if self._auth is not None and not self._auth.verify_token(request.headers):
            raise HTTPException(401, "Unauthorized")

    def info(self) -> ServerInfo:
        """Who simulates what."""
        config = self._config
        return ServerInfo(
            protocol=PROTOCOL_VERSION,
            clock=self._settings.clock,
            target=sim_settings.resolve_target(self._settings),
            model=self._model,
            cost_model=self._cost_model,
            versions=hooks.versions(),
            settings=sim_settings.describe(self._settings),
            limits={
                "max_model_len_tokens": config.model_config.max_model_len,
                "max_num_seqs": config.scheduler_config.max_num_seqs,
                "chunk_size_tokens": config.scheduler_config.max_num_batched_tokens,
                "kv_block_size_tokens": config.cache_config.block_size,
                "num_kv_blocks": config.cache_config.num_gpu_blocks,
                "max_batch_tkv": os.environ.get("VLLM_DT_MAX_BATCH_TKV_LIMIT"),
                "tensor_parallel_size": config.parallel_config.tensor_parallel_size,
                "prefix_caching": config.cache_config.enable_prefix_caching,
            },
            flags=without(sys.argv[1:], SECRET_FLAGS),
        )

    async def open(self, warm: bool) -> dict[str, Any]:
        """Open the one session."""
        name = SESSIONS.new_name()
        opened = await self._call("sim_begin", name, warm)
        SESSIONS.opened(name)
        return opened

    async def advance(self, asked: AdvanceRequest, request: Request) -> dict[str, Any]:
        """Wait for the grant's answer, at most `HEARTBEAT_S`.

        After a heartbeat, or a lost connection, the client asks again under the same number and
        gets the same answer.
        """
        grant = self._granted(asked)
        deadline = asyncio.get_running_loop().time() + HEARTBEAT_S
        while not grant.done():
            await asyncio.wait([grant], timeout=DISCONNECT_POLL_S)
            if not grant.done() and asyncio.get_running_loop().time() >= deadline:
                status = await self._call("sim_status")
                return {"now_ns": status["now_ns"], "reason": "until", "finished": []}
            if await request.is_disconnected():
                raise HTTPException(499, "client closed the connection")
        if grant.cancelled():
            raise HTTPException(410, "this simulation session was ended while a grant was open")
        return grant.result()

    def _granted(self, asked: AdvanceRequest) -> asyncio.Task[dict[str, Any]]:
        """The answer to come of this grant, which is executed once, however often it is asked for.

        Raises:
            HTTPException: 409 where it is neither the last grant nor the one after it.
        """
        last = self._grant
        if last is not None and asked.grant == last.number:
            return last.answer
        number = 1 if last is None else last.number + 1
        if asked.grant != number or (last is not None and not last.answer.done()):
            state = "none" if last is None else f"{last.number}"
            raise HTTPException(
                409, f"grant {asked.grant} is out of turn; the last was {state}. One at a time."
            )
        call = self._call("sim_advance", asked.until_ns, asked.submitted)
        self._grant = _Grant(number, asyncio.create_task(call))
        return self._grant.answer

    async def settle(self, seq: int) -> dict[str, Any]:
        """A request ended before the engine saw it."""
        return await self._call("sim_settle", seq)

    async def close(self) -> dict[str, Any]:
        """End the session and forget its open grant."""
        SESSIONS.closed()
        if self._grant is not None:
            self._grant.answer.cancel()
            self._grant = None
        return await self._call("sim_end")

    async def status(self) -> dict[str, Any]:
        """Clock, steps and gate."""
        return await self._call("sim_status")

    async def _call(self, method: str, *args: Any) -> dict[str, Any]:
        answer: dict[str, Any] = await self._engine.engine_core.call_utility_async(method, *args)
        if "error" in answer:
            raise HTTPException(409 if answer["busy"] else 400, answer["error"])
        return answer

    async def _expire(self) -> None:
        """End a session whose client went silent."""
        while True:
            await asyncio.sleep(min(1.0, self._settings.session_expiry_s / 4))
            if SESSIONS.current is None or SESSIONS.silent_s() < self._settings.session_expiry_s:
                continue
            logger.warning(
                "The client of simulation session %s was silent for %.1f s; ending it.",
                SESSIONS.current,
                SESSIONS.silent_s(),
            )
            try:
                await self.close()
            except Exception:  # without this task no session would ever expire again
                logger.exception("The session could not be ended.")


def _authorised(request: Request) -> None:
    _controller(request).authorise(request)


router = APIRouter(dependencies=[Depends(_authorised)])


def _controller(request: Request) -> Controller:
    controller: Controller = request.app.state.sendnn_sim
    return controller


@contextlib.contextmanager
def _session(name: str) -> Any:
    """The client of a session is being answered.

    Raises:
        HTTPException: 410 where that session is not open (any more).
    """
    if name != SESSIONS.current:
        raise HTTPException(410, "this simulation session is not open; it may have expired")
    SESSIONS.waiting += 1
    try:
        yield
    finally:
        SESSIONS.waiting -= 1
        SESSIONS.heard()


@router.get(INFO_ROUTE)
async def info(request: Request) -> dict[str, Any]:
    """Who simulates what, and how."""
    return asdict(_controller(request).info())


@router.get(STATUS_ROUTE)
async def status(request: Request) -> dict[str, Any]:
    """Clock, steps, gate and requests in flight."""
    return await _controller(request).status()


@router.post(SESSION_ROUTE)
async def open_session(body: OpenSession, request: Request) -> dict[str, Any]:
    """Open the one session."""
    controller = _controller(request)
    if body.protocol != PROTOCOL_VERSION:
        raise HTTPException(
            400,
            f"this server speaks version {PROTOCOL_VERSION} of the simulation protocol, the client "
            f"version {body.protocol}. Install the same sendnn-bench on both sides.",
        )
    return await controller.open(body.warm)


@router.post(SESSION_ROUTE + "/{name}/advance")
async def advance(name: str, body: AdvanceRequest, request: Request) -> dict[str, Any]:
    """Grant time and wait for the answer."""
    controller = _controller(request)
    with _session(name):
        return await controller.advance(body, request)


@router.post(SESSION_ROUTE + "/{name}/settle")
async def settle(name: str, body: SettleRequest, request: Request) -> dict[str, Any]:
    """A request ended before the engine saw it."""
    controller = _controller(request)
    with _session(name):
        return await controller.settle(body.seq)


@router.delete(SESSION_ROUTE + "/{name}")
async def close_session(name: str, request: Request) -> dict[str, Any]:
    """End the session."""
    controller = _controller(request)
    with _session(name):
        return await controller.close()


class SimEndpoints:
    """The plugin as vLLM's `EndpointPlugin` protocol wants it."""

    name = sim_settings.PLUGIN
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes, where simulation is switched on."""
        if sim_settings.enabled(os.environ):
            app.include_router(router)

    async def init_state(self, engine_client: Any, state: Any, args: Namespace) -> None:
        """Connect the routes to the engine."""
        if not sim_settings.enabled(os.environ):
            return
        keys = args.api_key if isinstance(args.api_key, list) else [args.api_key]
        tokens = [key for key in (*keys, os.environ.get("VLLM_API_KEY")) if key]
        names = args.served_model_name or [args.model]
        state.sendnn_sim = Controller(engine_client, engine_client.vllm_config, tokens, names[0])
