"""Upstream's real server: sendnn-inference on the CPU with a small model and random weights."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from sendnn_bench import models
from tests.e2e.conftest import ENVIRONMENT, Server, free_port, start_process, wait_until_up

SHAPE = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
"""As small as it gets: what is tested is the wire, not the speed."""


def start_real_server(folder: Path) -> Server:
    """Start `vllm serve` with sendnn-inference alone, its bench metrics on."""
    model = folder / "model"
    shutil.copytree(models.resolve("sim-granite-8b"), model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | SHAPE))
    port = free_port()
    command = [sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--served-model-name", "sim-granite-8b", "--load-format", "dummy"]
    command += ["--max-model-len", "1024", "--max-num-seqs", "4"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = ENVIRONMENT | {
        "VLLM_PLUGINS": "sendnn_inference",
        "SENDNN_INFERENCE_DYNAMO_BACKEND": "eager",
        "SENDNN_INFERENCE_BENCH_METRICS_ENABLED": "1",
        "SENDNN_INFERENCE_PERF_METRIC_LOGGING_DIR": str(folder / "perf"),
        "HF_HUB_OFFLINE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "SENDNN_INFERENCE_UPDATE_THREAD_CONFIG": "0",
    }
    log = folder / "server.log"
    return wait_until_up(Server(start_process(command, environment, log), port, log))
