"""`sendnn-bench serve` as a process of its own, for what must be seen from outside.

Each is forked from one process that has imported vLLM, which spares the half minute of an import.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

from tests.e2e.conftest import Server

LONG = ("--num-prompts", "3000", "--max-concurrency", "8", "--random-output-len", "50")
"""A run that takes minutes: something will happen to it before it ends."""

START_LIMIT_S = 120.0
POLL_S = 0.05

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.e2e.client_preload"])


class ServeProcess:
    """A run that has begun; its stdout and stderr go to one file."""

    def __init__(self, argv: list[str], output: Path) -> None:
        self._output = output
        output.write_bytes(b"")
        self._process = _CONTEXT.Process(target=_run, args=(argv, str(output)), daemon=True)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that ended it."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, limit_s: float) -> str:
        """Wait for its end; what it printed."""
        self._process.join(limit_s)
        text = self._output.read_text()
        assert self.returncode is not None, f"still runs after {limit_s:g} s:\n{text}"
        return text

    def read_until(self, text: str, limit_s: float = START_LIMIT_S) -> None:
        """Wait until it has printed this text."""
        deadline = time.monotonic() + limit_s
        while text not in (seen := self._output.read_text()):
            assert self.returncode is None, f"ended without {text!r}:\n{seen}"
            assert time.monotonic() < deadline, f"no {text!r} in {limit_s:g} s:\n{seen}"
            time.sleep(POLL_S)


def serve_process(server: Server, directory: Path, *argv: str) -> ServeProcess:
    """Begin a run whose result is to be ``r.json`` in the directory."""
    flags = ["--model", "sim-granite-8b", "--base-url", server.url]
    flags += ["--dataset-name", "random", "--disable-tqdm"]
    flags += ["--save-result", "--result-dir", str(directory), "--result-filename", "r.json"]
    return ServeProcess([*flags, *argv], directory / "serve.out")


def _run(argv: list[str], output: str) -> None:
    """In the forked process."""
    target = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(target, 1)
    os.dup2(target, 2)
    # Until the run itself handles it, Ctrl-C ends the process as it would end a shell's.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["sendnn-bench", "serve", *argv]
    from sendnn_bench.cli import main

    main()
