"""The engine process ends in mid-run: by an assertion of the scheduler, or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SPYRE_ARGS, SPYRE_ENV, Server, free_port, start_server
from tests.e2e.process import LONG, ServeProcess, serve_process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

BOUND_S = 120

FATAL_STEP = 400

PLANT = f"""
import vllm.v1.core.sched.scheduler as module

def register():
    original = module.Scheduler.update_from_output

    def update_from_output(self, *args, **kwargs):
        assert self.sim.recorder.steps < {FATAL_STEP}, "planted: a constraint is violated"
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
    paths = [str(directory), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


SHORT = ("--num-prompts", "20", "--max-concurrency", "4", "--random-output-len", "10")
"""A run of fewer steps than it takes to break the planted scheduler."""


@dataclass
class Scene:
    """What one server went through: a short run, then a long one that it did not survive."""

    directory: Path
    server: Server
    short: dict[str, Any]
    long: ServeProcess


def start(directory: Path, port: int, **environ: str) -> Server:
    log = directory / "server.log"
    env = {**SPYRE_ENV, **environ}
    return start_server(log, *SPYRE_ARGS, "--sim-runner", "lean", env=env, port=port)


def begin(directory: Path, port: int, **environ: str) -> Scene:
    """Start a server, do the short run, begin the long one."""
    server = start(directory, port, **environ)
    short = serve_process(server, directory, *SHORT, "--save-detailed")
    out = short.wait(BOUND_S * 3)
    assert short.returncode == 0, out
    result = json.loads((directory / "r.json").read_text())
    return Scene(directory, server, result, serve_process(server, directory, *LONG))


@pytest.fixture(scope="module")
def port() -> int:
    """One port for all servers here: what a client was told stays true when they restart."""
    return free_port()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Scene]:
    """An engine killed in mid-run. Its metrics file is on a full disk, which has to be no fault."""
    directory = tmp_path_factory.mktemp("killed")
    scene = begin(directory, port, SENDNN_INFERENCE_SIM_METRICS_FILE="/dev/full")
    try:
        scene.long.read_until("Maximum request concurrency")
        time.sleep(4)  # long enough for some requests to end, on any machine
        assert scene.long.returncode is None
        os.kill(engine_pid(scene.server), signal.SIGKILL)
        yield scene
    finally:
        scene.server.stop()


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, port: int, killed: Scene) -> Iterator[Scene]:
    """The next server at the same port, whose scheduler breaks in mid-run."""
    killed.server.stop()
    directory = tmp_path_factory.mktemp("broken")
    scene = begin(directory, port, **plant(directory / "planted"))
    try:
        yield scene
    finally:
        scene.server.stop()


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


def check_end(scene: Scene, code: int) -> str:
    """Client and server end in time, the client with what it measured; what it printed."""
    out = scene.long.wait(BOUND_S)
    assert scene.long.returncode == code, out
    assert "the simulated " in out, out
    assert str(scene.directory / "r.partial.json") in out, out
    partial = json.loads((scene.directory / "r.partial.json").read_text())
    assert partial["sendnn"]["partial"] is True
    assert len(partial["spyre_finish_ns"]) > 0
    scene.server.process.wait(BOUND_S)
    return out


@pytest.mark.fault(
    section="client",
    fault="engine process killed",
    what="the server ends; what was measured is in `*.partial.json`",
    exit_code=3,
)
def test_a_killed_engine(killed: Scene) -> None:
    # 3 where the server's connections end first, and where one of its routes answers with 500.
    check_end(killed, 3)
    assert "cannot be written (No space left on device)" in killed.server.log.read_text()
    assert not (killed.directory / "r.reproducer.json").exists()


@pytest.mark.fault(
    section="client",
    fault="server restarted between two runs",
    what="the same command gives the same result",
    exit_code=0,
)
def test_a_server_restarted_between_runs(killed: Scene, broken: Scene) -> None:
    """The same command, at the same address, gives the same result."""
    first, second = (dict(scene.short) for scene in (killed, broken))
    for result in (first, second):
        block = result.pop("sendnn")
        assert block["start"] == "cold"
        del result["date"]
    assert first == second


@pytest.mark.fault(
    section="client",
    fault="exception or assertion of the engine in a step",
    what=(
        "the run ends with the engine's message; `*.reproducer.json` holds its traceback,"
        " its state and every request as it was sent"
    ),
    exit_code=7,
)
def test_an_assertion_of_the_scheduler(broken: Scene) -> None:
    out = check_end(broken, 7)
    reproducer = broken.directory / "r.reproducer.json"
    assert str(reproducer) in out, out
    assert f"after step {FATAL_STEP}, at " in out
    assert "AssertionError: planted: a constraint is violated" in out
    assert "planted: a constraint is violated" in broken.server.log.read_text()

    data = json.loads(reproducer.read_text())
    failure, state = data["failure"], data["failure"]["state"]
    assert failure["step"] == FATAL_STEP
    assert "in update_from_output" in failure["traceback"]
    assert state["phase"] == "update"
    assert 1 <= len(state["batch"]) <= 8
    assert state["tkv"] > 0
    assert 0 < state["free_kv_blocks"] < state["kv_blocks"] == 136
    named = {request["request_id"]: request for request in state["requests"]}
    sent = {request["seq"]: request for request in data["requests"]}
    for part in state["batch"]:
        request = named[part["request_id"]]
        assert request["queue"] in ("running", "prefilling")
        assert part["context_tokens"] + part["tokens"] == request["computed_tokens"]
        assert sent[request["seq"]]["arrival_ns"] <= failure["now_ns"]
    assert data["server"]["settings"]["SENDNN_INFERENCE_SIM_DECODE_MS"] == 50


@pytest.mark.fault(
    section="client",
    fault="`serve --replay` of such a file",
    what="the same message after the same step, at the same nanosecond",
    exit_code=7,
)
def test_a_reproducer_is_replayed_to_the_same_step(
    broken: Scene, port: int, tmp_path: Path
) -> None:
    """On a new server with the same scheduler the same requests end in the same step."""
    out = broken.directory / "r.reproducer.json"
    broken.long.wait(BOUND_S)
    broken.server.stop()
    failure = json.loads(out.read_text())["failure"]
    server = start(tmp_path, port, **plant(tmp_path / "planted"))
    try:
        replay = serve_process(server, tmp_path, "--replay", str(out))
        text = replay.wait(BOUND_S * 2)
    finally:
        server.stop()
    assert replay.returncode == 7, text
    where = f"after step {failure['step']}, at {failure['now_ns']} ns of virtual time"
    assert f"reproduced: {where}, {failure['error']}" in text, text
