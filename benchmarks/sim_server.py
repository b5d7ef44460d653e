"""The simulated server that a benchmark measures: the built-in model, without a metrics file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sendnn_bench import models
from sendnn_bench.launch_flags import METRICS_FILE
from sendnn_bench.server_process import ServerProcess, free_port, own_command, running

MODEL = models.BUILTIN[0]
START_LIMIT_S = 900.0
"""The machine may be busy."""


@contextmanager
def sim_server(folder: Path, *flags: str) -> Iterator[ServerProcess]:
    """One on 127.0.0.1 that answers, with its log in ``folder``; stopped in any event."""
    port = free_port()
    address = ("--host", "127.0.0.1", "--port", str(port))
    command = own_command("sim-server", MODEL, *flags, *address)
    log = folder / f"server-{port}.log"
    with running(command, f"http://127.0.0.1:{port}", log, {METRICS_FILE: ""}) as server:
        server.wait_until_healthy(lambda _: None, START_LIMIT_S)
        yield server
