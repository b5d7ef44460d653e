"""The engine process ends in mid-run: by an assertion of the scheduler, or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import SPYRE_ARGS, SPYRE_ENV, Server, start_server
from tests.e2e.process import LONG, read_until, serve_process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

BOUND_S = 60

PLANT = """
import vllm.v1.core.sched.scheduler as module

def register():
    original = module.Scheduler.update_from_output
    steps = 0

    def update_from_output(self, *args, **kwargs):
        nonlocal steps
        steps += 1
        assert steps < 400, "planted: a constraint is violated"
        return original(self, *args, **kwargs)

    module.Scheduler.update_from_output = update_from_output
"""


def plant(directory: Path) -> dict[str, str]:
    """An installed vLLM plugin that breaks the scheduler's 400th step; its environment."""
    package = directory / "planted-1.0.dist-info"
    package.mkdir(parents=True)
    (directory / "planted.py").write_text(PLANT)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nplanted = planted:register\n"
    )
    return {"PYTHONPATH": str(directory)}


def start(directory: Path, **environ: str) -> Server:
    log = directory / "server.log"
    return start_server(log, *SPYRE_ARGS, "--sim-runner", "lean", env={**SPYRE_ENV, **environ})


def engine_pid(server: Server) -> int:
    """The server's one child that holds the engine."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    (pid,) = (
        int(pid)
        for pid, parent, name in rows
        if int(parent) == server.process.pid and "EngineCore" in name
    )
    return pid


def check_end(process: subprocess.Popen[str], server: Server, directory: Path) -> None:
    """Client and server end in time, the client with what it measured."""
    began = time.monotonic()
    out, _ = process.communicate(timeout=BOUND_S)
    # 3 where the server's connections end first, 6 where one of its routes still answers with 500.
    assert process.returncode == 3, out
    assert "the simulated server" in out.splitlines()[-2], out
    assert str(directory / "r.partial.json") in out.splitlines()[-1], out
    partial = json.loads((directory / "r.partial.json").read_text())
    assert partial["sendnn"]["partial"] is True
    assert len(partial["spyre_finish_ns"]) > 0
    server.process.wait(BOUND_S)
    assert time.monotonic() - began < BOUND_S


def test_an_assertion_of_the_scheduler(tmp_path: Path) -> None:
    server = start(tmp_path, **plant(tmp_path / "planted"))
    try:
        check_end(serve_process(server, tmp_path, *LONG), server, tmp_path)
    finally:
        server.stop()
    assert "planted: a constraint is violated" in server.log.read_text()


def test_a_killed_engine(tmp_path: Path) -> None:
    """Its metrics file is on a full disk, which has to be no fault at all."""
    server = start(tmp_path, SENDNN_INFERENCE_SIM_METRICS_FILE="/dev/full")
    try:
        process = serve_process(server, tmp_path, *LONG)
        read_until(process, "Maximum request concurrency")
        time.sleep(4)  # long enough for some requests to end, on any machine
        assert process.poll() is None
        os.kill(engine_pid(server), signal.SIGKILL)
        check_end(process, server, tmp_path)
    finally:
        server.stop()
    assert "cannot be written (No space left on device)" in server.log.read_text()
