"""The gate inside vLLM's EngineCore: hooks on its busy loop, and the calls of the /sim routes.

Every function here takes the engine (`core`) that it is called for; the state lives in
`core.scheduler.sim`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from vllm.logger import init_logger

from sendnn_bench.errors import BenchError, SessionBusy
from sendnn_bench.protocol import Advance
from server_plugin.engine.failure import reported
from server_plugin.sim import fields as sim_fields
from server_plugin.sim.module_time import to_module_s

logger = init_logger(__name__)

Method = Callable[..., Any]


# Wrappers of EngineCore's own methods; each takes the original first.


def has_work(original: Method, core: Any) -> bool:
    """No work while the gate is closed, so that the busy loop blocks where the grant comes in."""
    return bool(original(core)) and core.scheduler.sim.may_run


def handle_client_request(original: Method, core: Any, *args: Any) -> None:
    """A message (request, abort, grant) may open the gate or answer a grant."""
    with reported(core):
        original(core, *args)
        pump(core)


def process_engine_step(original: Method, core: Any) -> bool:
    """After a step the gate decides whether another may follow."""
    if not core.scheduler.sim.may_run:
        return False
    with reported(core):
        executed = bool(original(core))
        pump(core)
    return executed


def add_request(original: Method, core: Any, request: Any, request_wave: int = 0) -> None:
    """Session requests are staged for the gate; others go straight on."""
    sim = core.scheduler.sim
    name = request.request_id
    try:
        fields = sim_fields.parse(request.sampling_params.extra_args)
    except ValueError as error:
        refuse(core, request, str(error))
        return
    item, stamp_s = (request, request_wave), request.arrival_time
    if sim.arrive(name, request.num_prompt_tokens, fields, item, stamp_s):
        if sim.virtual:
            logger.warning_once(
                "A request came without a simulation session. It is served at once, as on a free "
                "clock: only `sendnn-bench serve` runs on virtual time. Start the server with "
                "--sim-clock paced for other clients."
            )
        original(core, request, request_wave)
    elif not sim.known(name):
        refuse(core, request, "its session is gone, or its sequence number is taken")


def refuse(core: Any, request: Any, reason: str) -> None:
    """End a request that must not run; an exception here would end the engine."""
    logger.warning("Refused request %s: %s.", request.request_id, reason)
    core._send_abort_outputs_to_client([request.request_id], request.client_index)


def abort_requests(original: Method, core: Any, request_ids: list[str]) -> None:
    """Aborted requests may still be staged."""
    wanted = set(request_ids)
    drop_staged(core, lambda item: item[0].request_id in wanted)
    original(core, request_ids)


def drop_staged(core: Any, condition: Callable[[Any], bool]) -> list[Any]:
    """End requests that were not admitted yet; returns them."""
    sim = core.scheduler.sim
    dropped = [request for request, _ in sim.drop_staged(condition)]
    for request in dropped:
        sim.abandon(request.request_id)
    return dropped


def pump(core: Any) -> None:
    """Admit what is due until the gate answers, waits, or lets a step run."""
    sim = core.scheduler.sim
    while admitted := sim.turn(idle=not core.scheduler.has_requests()):
        for request, request_wave in admitted:
            request.arrival_time = to_module_s(sim.admit(request.request_id))
            core.sim_original_add_request(request, request_wave)


# New methods, called over ZMQ by name. Expected failures are answers, not exceptions: vLLM would
# log a traceback for each.


def _answers_errors(method: Method) -> Method:
    @functools.wraps(method)
    def call(core: Any, *args: Any) -> Any:
        try:
            return method(core, *args)
        except BenchError as error:
            return {"error": str(error), "busy": isinstance(error, SessionBusy)}

    return call


@_answers_errors
def sim_begin(core: Any, session: str, warm: bool) -> dict[str, Any]:
    """Open a session; cold unless ``warm``."""
    sim = core.scheduler.sim
    sim.begin(session, cold=not warm)
    try:
        if not warm:
            core.scheduler.sim_cold_start()
    except Exception:
        sim.end()  # nobody knows its name: it would hold the server for ever
        raise
    return {"session": session, "start": "warm" if warm else "cold", "now_ns": sim.clock.now_ns}


@_answers_errors
def sim_advance(core: Any, until_ns: int | None, submitted: int) -> Any:
    """Grant time; the reply goes out when the future completes."""
    reply: Future[dict[str, Any]] = Future()

    def answer(advance: Advance) -> None:
        reply.set_result(asdict(advance))

    core.scheduler.sim.grant(until_ns, submitted, answer)
    return reply


@_answers_errors
def sim_settle(core: Any, seq: int) -> dict[str, Any]:
    """A request ended before the engine saw it."""
    core.scheduler.sim.settle(seq)
    return {}


@_answers_errors
def sim_end(core: Any) -> dict[str, Any]:
    """Abort what is left of the session, tell its clients, and close it."""
    sim = core.scheduler.sim
    left = sim.session_requests()
    if left:
        logger.warning("Session ended with %d requests unfinished; aborting them.", len(left))
        staged = drop_staged(core, lambda _: True)
        running = [
            core.scheduler.requests[name] for name in left if name in core.scheduler.requests
        ]
        core.abort_requests([request.request_id for request in running])
        core._send_abort_outputs(staged + running)
    return asdict(sim.end())


def sim_status(core: Any) -> dict[str, Any]:
    """Clock, steps and gate, for heartbeats and dumps."""
    return dict(core.scheduler.sim.describe())


WRAPPERS: dict[str, Method] = {
    "has_work": has_work,
    "_handle_client_request": handle_client_request,
    "_process_engine_step": process_engine_step,
    "add_request": add_request,
    "abort_requests": abort_requests,
}
METHODS: dict[str, Method] = {
    method.__name__: method for method in (sim_begin, sim_advance, sim_settle, sim_end, sim_status)
}
