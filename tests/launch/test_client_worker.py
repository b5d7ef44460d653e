"""What a client worker does with Ctrl-C, with a worker that only pretends; see tests/e2e too."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from sendnn_bench import client_worker
from sendnn_bench.client_worker import ClientWorker, _forked
from sendnn_bench.errors import BenchError, Interrupted

DEAF = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('{"code": 0}', flush=True)
sys.stdin.readline()
time.sleep(60)
"""


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_worker, "COMMAND", (sys.executable, "-c", DEAF))
    monkeypatch.setattr(client_worker, "SAVE_LIMIT_S", 0.2)


@pytest.mark.usefixtures("deaf")
def test_ctrl_c_is_told_where_the_run_does_not_end(tmp_path: Path):
    with ClientWorker(tmp_path / "log") as worker:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Interrupted, match=r"did not end within 0\.2 s and was stopped"):
            worker.run([], tmp_path / "run.log", 30)


@pytest.mark.usefixtures("deaf")
def test_a_run_beyond_its_limit_ends_the_worker(tmp_path: Path):
    with ClientWorker(tmp_path / "log") as worker:
        with pytest.raises(BenchError, match=r"within 0\.5 s"):
            worker.run([], tmp_path / "run.log", 0.5)
        with pytest.raises(BenchError, match="ended unexpectedly"):
            worker.run([], tmp_path / "run.log", 30)


def test_an_interrupt_before_the_child_is_there_reaches_it(tmp_path: Path, monkeypatch):
    def child(_argv: list[str], _log: Path) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            signal.pause()
        except KeyboardInterrupt:
            os._exit(130)

    monkeypatch.setattr(client_worker, "_run_child", child)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # To this thread: others of a test run would take it.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        assert _forked([], tmp_path / "log") == 130
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
