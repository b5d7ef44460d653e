"""An exception that ends the engine is told to the client, with what the engine held.

vLLM's engine process ends with any exception of a step; its traceback is in the server's log. The
open grant is answered before that, so that a violated constraint comes back as a finding.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from vllm.logger import init_logger

from sendnn_bench.protocol import EngineFailure

logger = init_logger(__name__)

MOST_REQUESTS = 1000
"""Requests described in a report."""


@contextlib.contextmanager
def reported(core: Any) -> Iterator[None]:
    """Report an exception of the engine, then let it end the engine as it would have."""
    try:
        yield
    except Exception as error:
        _report(core, error)
        raise


def _report(core: Any, error: Exception) -> None:
    sim = core.scheduler.sim
    failure = EngineFailure(
        step=sim.recorder.steps,
        now_ns=sim.clock.now_ns,
        error=f"{type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
        state=_state_or_reason(core.scheduler),
    )
    logger.error("The engine ends: %s. It held: %s", failure.error, json.dumps(failure.state))
    sim.fail(asdict(failure))


def _state_or_reason(scheduler: Any) -> dict[str, Any]:
    """What the scheduler held; it may be too broken to say so, which must hide nothing else."""
    try:
        return state(scheduler)
    except Exception as error:
        return {"unreadable": f"{type(error).__name__}: {error}"}


def state(scheduler: Any) -> dict[str, Any]:
    """Batch, tkv, KV blocks and requests, as JSON.

    ``phase`` is the part of the step that raised; the batch is empty where `schedule` did. ``tkv``
    is that of the last step that ran, in tokens.
    """
    pool = scheduler.kv_cache_manager.block_pool
    step = scheduler.sim_step
    queues = scheduler.sim_queues()
    place = {request.request_id: name for name, queue in queues.items() for request in queue}
    return {
        "phase": scheduler.sim_phase,
        "batch": [] if step is None else [part._asdict() for part in step.parts],
        "tkv": scheduler.sim_last_tkv,
        "kv_blocks": int(pool.num_gpu_blocks),
        "free_kv_blocks": int(pool.get_num_free_blocks()),
        "queues": {name: len(queue) for name, queue in queues.items()},
        "requests": [
            _request(scheduler, request, place.get(name, ""))
            for name, request in list(scheduler.requests.items())[:MOST_REQUESTS]
        ],
    }


def _request(scheduler: Any, request: Any, queue: str) -> dict[str, Any]:
    record = scheduler.sim.recorder.records.get(request.request_id)
    return {
        "request_id": request.request_id,
        "seq": None if record is None else record.seq,
        "queue": queue,
        "prompt_tokens": request.num_prompt_tokens,
        "computed_tokens": request.num_computed_tokens,
        "output_tokens": request.num_output_tokens,
    }
