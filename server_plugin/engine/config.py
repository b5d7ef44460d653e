"""What a simulation changes in vLLM's configuration, whatever the target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sendnn_bench.errors import UsageError
from server_plugin import settings as sim_settings

NEVER = 1_000_000
"""Tokens between two chunks of a stream: the first token comes at once, the rest at the end."""


def adjust(vllm_config: Any) -> None:
    """One process for all ranks; no chunk per token where its real time means nothing.

    A stream interval that the user set is kept.
    """
    # The mock computes nothing that could be shared out.
    vllm_config.parallel_config.distributed_executor_backend = "uni"
    scheduler = vllm_config.scheduler_config
    if sim_settings.load(os.environ).clock == "virtual" and scheduler.stream_interval == 1:
        scheduler.stream_interval = NEVER


def refuse(vllm_config: Any, more: Mapping[str, bool]) -> None:
    """Stop the start where a simulation would be wrong; ``more`` are the target's own reasons.

    Raises:
        UsageError: names the first reason that applies.
    """
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    replicas, servers = parallel.data_parallel_size, parallel._api_process_count
    reasons = {
        f"{model.model} is a pooling model; only text generation is simulated": (
            model.runner_type != "generate"
        ),
        f"{model.model} is multimodal; only text generation is simulated": (
            model.is_multimodal_model
        ),
        f"--data-parallel-size {replicas}: one engine, one clock; start one server per replica": (
            replicas > 1
        ),
        f"--api-server-count {servers}: the simulation session lives in one API server": (
            servers > 1
        ),
        **more,
    }
    for reason, applies in reasons.items():
        if applies:
            raise UsageError(f"cannot simulate this deployment: {reason}.")
