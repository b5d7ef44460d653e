"""`sendnn-bench sweep` as a process of its own, against the real simulated server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.e2e.conftest import ENVIRONMENT, Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

LIMIT_S = 240
LOADS = (
    *("--dataset-name", "random", "--random-output-len", "8", "--num-prompts", "12"),
    *("--vary", "request-rate=1,4", "--goodput", "ttft:150"),
)


def start(server: Server, directory: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sendnn_bench", "sweep", "--base-url", server.url]
    return subprocess.Popen(
        [*command, "--result-dir", str(directory), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def sweep(server: Server, directory: Path, *words: str) -> tuple[int, str, str]:
    process = start(server, directory, *words)
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def read_until(stream: IO[str] | None, text: str) -> None:
    """Read up to a line with this text."""
    assert stream is not None
    seen = ""
    for line in stream:
        seen += line
        if text in line:
            return
    raise AssertionError(f"{text!r} never came:\n{seen}")


def wait_for_output(logs: Path, prefix: str) -> None:
    """Wait until the run whose log's name begins so has printed something."""
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in logs.glob(f"{prefix}*.log")):
        assert time.monotonic() < deadline, f"{prefix} printed nothing"
        time.sleep(0.1)


def rows(directory: Path) -> list[dict[str, Any]]:
    return list(json.loads((directory / "sweep.json").read_text())["rows"])


def test_a_sweep_fails_in_part_goes_on_and_resumes(spyre_server: Server, tmp_path: Path) -> None:
    # A prompt of 5,000 tokens does not fit into the 4,096 of the server: those points fail.
    code, out, err = sweep(spyre_server, tmp_path, *LOADS, "--vary", "random-input-len=300,5000")
    assert code == 4, out + err
    found = rows(tmp_path)
    assert [row["status"] for row in found] == ["done", "failed", "done", "failed"]
    assert "all 12 requests failed" in found[1]["message"]
    # A prompt of one chunk costs 100 ms; at 4 requests a second some wait for others.
    slow, fast = found[0]["numbers"], found[2]["numbers"]
    assert slow["completed"] == fast["completed"] == 12
    assert slow["good_share"] > fast["good_share"]
    assert "Best goodput" in out
    page = (tmp_path / "sweep.html").read_text()
    assert "<title>Sweep of sim-granite-8b: 2 of 4 points</title>" in page

    code, _, err = sweep(spyre_server, tmp_path, *LOADS, "--vary", "random-input-len=300")
    assert code == 0, err
    assert "2 of 2 points are in" in err
    assert "[" not in err  # nothing ran
    assert rows(tmp_path) == [found[0], found[2]]


def test_ctrl_c_keeps_what_was_measured(spyre_server: Server, tmp_path: Path) -> None:
    words = (*LOADS[:4], "--vary", "num-prompts=10,3000", "--max-concurrency", "8")
    process = start(spyre_server, tmp_path, *words)
    read_until(process.stderr, "[2/2]")
    wait_for_output(tmp_path / "logs", "num-prompts=3000")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "1 of 2 points are done" in err
    assert [row["status"] for row in rows(tmp_path)] == ["done", "open"]
