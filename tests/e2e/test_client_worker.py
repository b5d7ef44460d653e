"""Many runs from one process: as good as runs of their own, and none touches the next."""

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sendnn_bench.client_worker import ClientWorker
from sendnn_bench.errors import BenchError, Interrupted
from tests.e2e.conftest import Server
from tests.e2e.process import LONG

# Server and worker import vLLM at the same time.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LIMIT_S = 120.0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientWorker]:
    with ClientWorker(tmp_path_factory.mktemp("worker") / "worker.log") as worker:
        yield worker


def words(server: Server, directory: Path, name: str, *more: str) -> list[str]:
    flags = ["--base-url", server.url, "--model", "sim-granite-8b", "--dataset-name", "random"]
    flags += ["--save-result", "--save-detailed", "--result-dir", str(directory)]
    return [*flags, "--result-filename", name, "--num-prompts", "5", "--disable-tqdm", *more]


def interrupt_after_steps(server: Server, count: int) -> None:
    """Ctrl-C for this process, once the server has run so many steps of a session."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with urllib.request.urlopen(server.url + "/sim/status", timeout=5) as answer:
            status = json.load(answer)
        if status["session"] is not None and status["steps"] >= count:
            os.kill(os.getpid(), signal.SIGINT)
            return
        time.sleep(0.05)


def test_runs_in_a_row_are_the_same_run(worker, spyre_server, tmp_path):
    for name in ("a.json", "b.json"):
        log = tmp_path / f"{name}.log"
        assert worker.run(words(spyre_server, tmp_path, name), log, LIMIT_S) == 0, log.read_text()
        assert "Serving Benchmark Result" in log.read_text()
    a, b = (json.loads((tmp_path / name).read_text()) for name in ("a.json", "b.json"))
    assert a["itls"] == b["itls"]
    assert a["ttfts"] == b["ttfts"]
    assert a["duration"] == b["duration"] > 0


def test_a_run_that_fails_gives_its_exit_code_and_the_next_one_works(
    worker, spyre_server, tmp_path
):
    log = tmp_path / "log"
    nobody = ["--base-url", "http://127.0.0.1:1", "--model", "x", "--dataset-name", "random"]
    assert worker.run([*nobody, "--ready-check-timeout-sec", "0"], log, LIMIT_S) == 3
    assert "127.0.0.1:1" in log.read_text()
    assert worker.run(words(spyre_server, tmp_path, "c.json"), log, LIMIT_S) == 0


def test_ctrl_c_ends_the_run_and_keeps_what_was_measured(worker, spyre_server, tmp_path):
    log = tmp_path / "log"
    threading.Thread(target=interrupt_after_steps, args=(spyre_server, 600)).start()
    with pytest.raises(Interrupted, match="130"):
        worker.run(words(spyre_server, tmp_path, "d.json", *LONG), log, LIMIT_S)
    assert (tmp_path / "d.partial.json").exists(), log.read_text()
    assert worker.run(words(spyre_server, tmp_path, "e.json"), log, LIMIT_S) == 0


def test_a_run_that_takes_too_long_is_stopped(spyre_server, tmp_path):
    with (
        ClientWorker(tmp_path / "worker.log") as short,
        pytest.raises(BenchError, match=r"within 0\.5 s"),
    ):
        short.run(words(spyre_server, tmp_path, "f.json", *LONG), tmp_path / "log", 0.5)
