"""Real servers for the end-to-end tests. A start takes over a minute: one per target is shared."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sendnn_bench import models

ENVIRONMENT = dict(os.environ)
"""As it was before the client, run in this process, set up vLLM for itself."""

START_LIMIT_S = 300
STOP_LIMIT_S = 30


@dataclass
class Server:
    """A running `sendnn-bench sim-server` on 127.0.0.1."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End the server and what it started; its engine may have outlived it."""
        self.process.terminate()
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Start a server as the leader of a process group of its own."""
    with open(log, "wb") as out:
        return subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


LAUNCHER = (sys.executable, "-m", "sendnn_bench", "sim-server", "sim-granite-8b")

PLAIN_VLLM = (
    *(str(Path(sys.executable).with_name("vllm")), "serve", models.resolve("sim-granite-8b")),
    *("--served-model-name", "sim-granite-8b"),
)
"""What the launcher starts, without it: simulation is switched on by exported variables alone."""


def start_server(
    log: Path,
    *args: str,
    env: dict[str, str] | None = None,
    command: Sequence[str] = LAUNCHER,
    port: int | None = None,
) -> Server:
    """Start a simulated server; see `wait_until_up`."""
    port = port or free_port()
    command = [*command, *args, "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        **ENVIRONMENT,
        "SENDNN_INFERENCE_SIM_METRICS_FILE": str(log.with_suffix(".jsonl")),
    }
    process = start_process(command, {**environment, **(env or {})}, log)
    return wait_until_up(Server(process, port, log))


def wait_until_up(server: Server) -> Server:
    """Wait until the server answers /health.

    Raises RuntimeError with the end of its log when it ends or does not answer in time.
    """
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            tail = server.log.read_text()[-4000:]
            raise RuntimeError(f"server ended with {server.process.returncode}:\n{tail}")
        try:
            urllib.request.urlopen(server.url + "/health", timeout=2).close()
        except OSError:
            time.sleep(0.5)
        else:
            return server
    server.stop()
    raise RuntimeError(f"server not up after {START_LIMIT_S} s:\n{server.log.read_text()[-4000:]}")


SPYRE_ARGS = (
    *("--max-model-len", "4096"),
    *("--max-num-seqs", "8"),
    *("--num-gpu-blocks-override", "136"),
)
SPYRE_ENV = {
    "SENDNN_INFERENCE_SIM_TARGET": "spyre",
    "SENDNN_INFERENCE_SIM_PREFILL_MS": "100",
    "SENDNN_INFERENCE_SIM_DECODE_MS": "50",
    "SENDNN_INFERENCE_SIM_SESSION_EXPIRY_S": "5",
    "VLLM_DT_MAX_BATCH_TKV_LIMIT": "8192",
}
"""The real Spyre scheduler, small enough that requests pause and run out of KV blocks.

Chunks of 512 tokens cost 100 ms, decode steps 50 ms; 8 sequences, 4,096 tokens of context, 136 KV
blocks of 64 tokens, batch x tkv at most 8,192.
"""


@pytest.fixture(scope="session")
def spyre_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Upstream's full runner; its own metrics are streamed beside ours."""
    log = tmp_path_factory.mktemp("spyre") / "server.log"
    server = start_server(log, *SPYRE_ARGS, env={**SPYRE_ENV, "SENDNN_INFERENCE_SIM_PARITY": "1"})
    yield server
    server.stop()
