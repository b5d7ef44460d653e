"""Many `serve` runs from one process that has imported vLLM once.

Importing vLLM takes 20 to 30 s, which a run of its own process pays each time. The worker imports
it, then forks one child per run: every run begins in the same state, and none can leave anything
behind for the next. Words go in as JSON lines on stdin, exit codes come out as JSON lines.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from sendnn_bench.errors import BenchError, Interrupted

COMMAND = (sys.executable, "-m", "sendnn_bench.client_worker")
START_LIMIT_S = 300.0
STOP_LIMIT_S = 10.0
SAVE_LIMIT_S = 60.0
"""For a run that is interrupted and saves what it has."""
KILLED = 128
"""Added to the number of the signal that ended a run, as a shell does."""


class ClientWorker:
    """Context manager of one worker process; its own messages go to ``log``."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def __enter__(self) -> ClientWorker:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            process.wait(STOP_LIMIT_S)

    def run(self, argv: Sequence[str], log: Path, limit_s: float) -> int:
        """Run `sendnn-bench serve ARGV` with its output in ``log``; returns its exit code.

        Ctrl-C here is handed on, so that the run saves what it has measured.

        Raises:
            BenchError: the worker died, or the run took more than ``limit_s``.
            Interrupted: Ctrl-C; the run has ended and saved what it had, or was stopped.
        """
        process = self._running()
        assert process.stdin is not None
        if not self._ready:
            self._answer(START_LIMIT_S)
            self._ready = True
        order = json.dumps({"argv": [*argv], "log": str(log.resolve())})
        try:
            process.stdin.write(order.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise self._dead() from error
        try:
            return self._answer(limit_s)
        except KeyboardInterrupt as error:
            raise Interrupted(self._interrupt()) from error
        except BaseException:
            # Its answer would be taken for that of the next run.
            _kill_group(process.pid)
            raise

    def _interrupt(self) -> str:
        """Hand Ctrl-C on; what became of the run."""
        process = self._running()
        os.killpg(process.pid, signal.SIGINT)
        try:
            return f"interrupted; the run ended with exit code {self._answer(SAVE_LIMIT_S)}."
        except BenchError as error:
            _kill_group(process.pid)
            return f"interrupted; {error}"

    def _answer(self, limit_s: float) -> int:
        """The next exit code, waited for no longer than ``limit_s``."""
        process = self._running()
        stream: Any = process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise BenchError(f"a run did not end within {limit_s:g} s and was stopped.")
        line = stream.readline()
        if not line:
            raise self._dead()
        return int(json.loads(line)["code"])

    def _dead(self) -> BenchError:
        return BenchError(f"the client process ended unexpectedly; see {self._log}.")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("use the worker in a with statement")
        return self._process


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def work(orders: BinaryIO, answers: BinaryIO) -> None:
    """Import what every run needs, then run until ``orders`` ends."""
    # For the child of the moment, which gets it too. Before any thread is started.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from sendnn_bench.serve_run import prepare_vllm

    prepare_vllm(verbose=False)
    import sendnn_bench.bridge.arguments
    import sendnn_bench.bridge.bench  # noqa: F401

    _write(answers, 0)  # ready
    for line in orders:
        order = json.loads(line)
        _write(answers, _forked(order["argv"], Path(order["log"])))


def _write(answers: BinaryIO, code: int) -> None:
    answers.write(json.dumps({"code": code}).encode() + b"\n")
    answers.flush()


def _forked(argv: list[str], log: Path) -> int:
    """Run one command in a child of its own; returns its exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run_child(argv, log)
    if _take_interrupt():  # it came before the child was there
        os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    _take_interrupt()
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else KILLED + os.WTERMSIG(status)


def _take_interrupt() -> bool:
    """Whether Ctrl-C came; it does no longer wait then."""
    return signal.sigtimedwait({signal.SIGINT}, 0) is not None


def _run_child(argv: list[str], log: Path) -> None:
    """Never returns: what the parent has open is not the child's to close."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        log.parent.mkdir(parents=True, exist_ok=True)
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.argv = ["sendnn-bench", "serve", *argv]
        from sendnn_bench.cli import main

        main()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = code or 1
        os._exit(code)


if __name__ == "__main__":
    # Runs and imports print; the answers have a stream of their own.
    _answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work(sys.stdin.buffer, _answers)
