"""Lays models out in a process of its own, whose vLLM platform is the stock target's.

Takes two file names: a JSON list of cases to read, a JSON list of answers to write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

from sendnn_bench.errors import UsageError
from server_plugin.engine import kv_memory
from server_plugin.engine.stock_platform import PIPELINE_KEY


def lay_out(case: dict[str, Any]) -> dict[str, Any]:
    """Weights of the tightest rank, and the blocks that ``kv_bytes`` (or what is left) hold."""
    memory_bytes, kv_bytes = case.pop("memory_bytes"), case.pop("kv_bytes", None)
    config = EngineArgs(**{"max_model_len": 8192, **case}).create_engine_config()
    stages = config.additional_config.get(PIPELINE_KEY, 1)
    rank = kv_memory.tightest_rank(config, stages, memory_bytes)
    current_platform.update_block_size_for_backend(config)
    specs = rank.kv_cache_spec(config)
    left = kv_bytes or kv_memory.available_bytes(rank, memory_bytes)
    with set_current_vllm_config(config):
        (layout,) = get_kv_cache_configs(config, [specs], [left])
    return {
        "weights_bytes": rank.weights_bytes,
        "stage": rank.stage,
        "layers": len(specs),
        "left_bytes": left,
        "blocks": layout.num_blocks,
        "block_size": config.cache_config.block_size,
        "kinds": sorted({type(spec).__name__ for spec in specs.values()}),
        "world_size": config.parallel_config.world_size,
        "batches": config.max_concurrent_batches,
    }


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """The layout, or the message of what stops it."""
    try:
        return lay_out(case)
    except UsageError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    asked, answered = map(Path, sys.argv[1:])
    answers = [answer(case) for case in json.loads(asked.read_text())]
    answered.write_text(json.dumps(answers))
