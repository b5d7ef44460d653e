"""`sendnn-bench serve` as a process of its own, for what must be seen from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.conftest import ENVIRONMENT, Server

LONG = ("--num-prompts", "3000", "--max-concurrency", "8", "--random-output-len", "50")
"""A run that takes minutes: something will happen to it before it ends."""


def serve_process(server: Server, directory: Path, *argv: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sendnn_bench", "serve", "--model", "sim-granite-8b"]
    command += ["--base-url", server.url, "--dataset-name", "random", "--disable-tqdm"]
    command += ["--save-result", "--result-dir", str(directory), "--result-filename", "r.json"]
    return subprocess.Popen(
        command + list(argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read the process's output up to a line with this text."""
    seen = ""
    assert process.stdout is not None
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came:\n{seen}")
