"""What a simulation changes in vLLM's configuration, whatever the target."""

from __future__ import annotations

import os
from typing import Any

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
