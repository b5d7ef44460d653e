"""vLLM's own statistics in the API server (/metrics, log line, request metrics) in virtual time.

The engine stamps its outputs on the virtual clock; here the other end of each interval, the
arrival, is put on it too.
"""

from __future__ import annotations

import functools
from typing import Any

import vllm.v1.metrics.loggers as stat_loggers
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor

from server_plugin.sim import fields as sim_fields
from server_plugin.sim.module_time import EPOCH_S, ModuleTime, to_module_s


class _LastSeen:
    """Latest virtual time that the engine told, in module seconds."""

    def __init__(self) -> None:
        self.now_s = EPOCH_S

    def read(self) -> float:
        return self.now_s


def install() -> None:
    """Wrap what stamps arrivals and what reads the time of an iteration."""
    seen = _LastSeen()
    _wrap_arrivals(seen)
    _wrap_iterations(seen)
    stat_loggers.time = ModuleTime(seen.read)


def _wrap_arrivals(seen: _LastSeen) -> None:
    original = InputProcessor.process_inputs

    @functools.wraps(original)
    def process_inputs(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = original(self, *args, **kwargs)
        request.arrival_time = arrival_s(request.sampling_params, seen.now_s)
        return request

    InputProcessor.process_inputs = process_inputs


def arrival_s(params: Any, now_s: float) -> float:
    """Arrival in module seconds: the client's word within a session, else ``now_s``."""
    fields = sim_fields.parse(params.extra_args) if params is not None else sim_fields.SimFields()
    return now_s if fields.session is None else to_module_s(fields.arrival_ns)


def _wrap_iterations(seen: _LastSeen) -> None:
    original = OutputProcessor.process_outputs

    @functools.wraps(original)
    def process_outputs(
        self: Any,
        outputs: Any,
        timestamp_s: float | None = None,
        stats: Any = None,
        **later: Any,
    ) -> Any:
        if timestamp_s:
            seen.now_s = timestamp_s
            if stats is not None:
                stats.iteration_timestamp = timestamp_s
        return original(self, outputs, timestamp_s, stats, **later)

    OutputProcessor.process_outputs = process_outputs
