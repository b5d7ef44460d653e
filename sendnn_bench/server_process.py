"""A simulated server as a child process: start, wait until it answers, stop; every wait bounded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sendnn_bench.errors import ServerUnreachable

START_LIMIT_S = 300.0
STOP_LIMIT_S = 20.0
POLL_S = 0.25
LOG_TAIL_LINES = 15

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy of the environment is not for this machine's own server."""


@dataclass(frozen=True)
class ServerProcess:
    """A started server; it leads a process group of its own, so Ctrl-C reaches only the parent."""

    process: subprocess.Popen[bytes]
    base_url: str
    log: Path

    def wait_until_healthy(
        self, on_wait: Callable[[float], None], limit_s: float = START_LIMIT_S
    ) -> float:
        """Poll /health; `on_wait` gets the seconds so far. Returns the seconds that it took.

        Raises:
            ServerUnreachable: the server ended, or does not answer within `limit_s`.
        """
        start = time.monotonic()
        while (waited_s := time.monotonic() - start) < limit_s:
            if _answers(self.base_url + "/health"):
                return waited_s
            if self.process.poll() is not None:
                raise self._failed(f"ended with exit code {self.process.returncode}")
            on_wait(waited_s)
            time.sleep(POLL_S)
        raise self._failed(f"did not answer {self.base_url}/health within {limit_s:g} s")

    def _failed(self, what: str) -> ServerUnreachable:
        tail = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return ServerUnreachable(f"the server {what}. The end of {self.log}:\n" + "\n".join(tail))

    def stop(self, limit_s: float = STOP_LIMIT_S) -> None:
        """Ask the server to end, then end what is left of its process group."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._kill_group()
                self.process.wait(limit_s)
        self._kill_group()

    def _kill_group(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


@contextmanager
def running(
    command: Sequence[str], base_url: str, log: Path, extra_environ: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Start `command` with its output in `log`, and stop it in any event."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(extra_environ or {})},
        )
    server = ServerProcess(process=process, base_url=base_url, log=log)
    try:
        yield server
    finally:
        server.stop()


def own_command(*arguments: str) -> list[str]:
    """`sendnn-bench ARGUMENTS` of this very package, whichever script is first on PATH."""
    return [sys.executable, "-m", "sendnn_bench", *arguments]


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with _DIRECT.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
