"""Fixtures of the client's tests: run `sendnn-bench serve` in this process."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sendnn_bench.serve_command import run_serve
from tests.client.fake_server import FakeServer

BASIC = ["--model", "sim-granite-8b", "--disable-tqdm", "--metric-percentiles", "50,99,100"]
RANDOM = ["--dataset-name", "random", "--input-len", "12", "--output-len", "5"]

Serve = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("VLLM_PLUGINS", ""), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SENDNN_BENCH_WATCHDOG_S", "20")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A simulated server in virtual time."""
    with FakeServer() as fake:
        yield fake


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Run the command with a detailed result; returns the result as loaded."""

    def run(fake: FakeServer, *argv: str, name: str = "result.json") -> dict[str, Any]:
        path = tmp_path / name
        saving = ["--save-result", "--save-detailed", "--result-dir", str(tmp_path)]
        run_serve([*fake.argv, *BASIC, *argv, *saving, "--result-filename", name])
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    return run


@pytest.fixture
def custom(tmp_path: Path) -> Callable[..., list[str]]:
    """Flags of a data set with these prompts, 4 output tokens each."""

    def flags(*prompts: str) -> list[str]:
        path = tmp_path / "prompts.jsonl"
        lines = [json.dumps({"prompt": prompt, "output_tokens": 4}) for prompt in prompts]
        path.write_text("\n".join(lines) + "\n")
        data = ["--dataset-name", "custom", "--dataset-path", str(path), "--disable-shuffle"]
        return [*data, "--custom-output-len", "-1", "--num-prompts", str(len(prompts))]

    return flags


@pytest.fixture
def unused_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
