"""`sendnn-bench demo`: one simulated server, two benchmarks, nothing left running."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sendnn_bench import models, results
from sendnn_bench.launch_flags import METRICS_FILE
from sendnn_bench.server_process import free_port, own_command, running

MODEL = models.BUILTIN[0]

SERVER_FLAGS = ("--max-model-len", "32768", "--max-num-seqs", "32")
SPYRE_FLAGS = ("--tensor-parallel-size", "4")
"""With these sendnn-inference knows the deployment, and its KV blocks and tkv limit apply."""

WORKLOAD = {
    "--dataset-name": "random",
    "--random-input-len": "512",
    "--random-output-len": "128",
    "--random-range-ratio": "0.5",
}
PROGRESS_EVERY_S = 5.0


@dataclass(frozen=True)
class Part:
    """One benchmark of the demo."""

    title: str
    file: str
    flags: tuple[str, ...]


PARTS = (
    Part("open loop: 2 requests per second", "demo-rate-2.json", ("--request-rate", "2")),
    Part("closed loop: 8 at a time", "demo-concurrency-8.json", ("--max-concurrency", "8")),
)


def run_demo(*, directory: Path, requests: int) -> int:
    """Start a server, run every part, stop it. Returns the first exit code that is not 0.

    Raises:
        ServerUnreachable: the server ended or did not come up in time.
        ResultError: a part left no readable result.
    """
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    log = directory / "demo-server.log"
    say(f"Starting a simulated server of {MODEL} on {base_url} (log: {log})")
    environ = {METRICS_FILE: str(directory / "demo-sim-metrics.jsonl")}
    with running(server_command(port), base_url, log, environ) as server:
        took_s = server.wait_until_healthy(progress())
        say(f"Server is up after {took_s:.0f} s.")
        for part in PARTS:
            code = run_part(part, base_url, directory, requests)
            if code:
                say(f"Part `{part.title}` failed with exit code {code}.")
                return code
        say("Stopping the server.")
    say(f"Done. Results and the server's log are in {directory}/.")
    return 0


def run_part(part: Part, base_url: str, directory: Path, requests: int) -> int:
    """Run one benchmark and say how much faster than real time it was; returns its exit code."""
    say(f"\n=== {requests} requests, {part.title} ===")
    start = time.monotonic()
    command = client_command(part, base_url, directory, requests)
    say("$ sendnn-bench " + " ".join(command[3:]))
    code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if code == 0:
        wall_s = time.monotonic() - start
        virtual_s = float(results.load(directory / part.file).data["duration"])
        say(
            f"{virtual_s:.1f} virtual seconds ran in {wall_s:.1f} wall seconds, "
            "the client's start included."
        )
    return code


def server_command(port: int) -> list[str]:
    """The server of the demo: spyre's deployment where sendnn-inference is installed."""
    spyre = SPYRE_FLAGS if find_spec("sendnn_inference") is not None else ()
    flags = ("--host", "127.0.0.1", "--port", str(port), *SERVER_FLAGS, *spyre)
    return own_command("sim-server", MODEL, *flags)


def client_command(part: Part, base_url: str, directory: Path, requests: int) -> list[str]:
    """One benchmark as a user would type it."""
    return own_command(
        "serve",
        *("--base-url", base_url, "--model", MODEL),
        *(word for pair in WORKLOAD.items() for word in pair),
        *("--num-prompts", str(requests), *part.flags),
        *(() if sys.stdout.isatty() else ("--disable-tqdm",)),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(directory), "--result-filename", part.file),
    )


def progress(tell: Callable[[str], None] | None = None) -> Callable[[float], None]:
    """Tells every few seconds that the server is still on its way; on stdout by default."""
    last_s = 0.0

    def on_wait(waited_s: float) -> None:
        nonlocal last_s
        if waited_s - last_s >= PROGRESS_EVERY_S:
            last_s = waited_s
            (tell or say)(f"  waiting for the server, {waited_s:.0f} s (two processes import vLLM)")

    return on_wait


def say(text: str) -> None:
    """Print at once, so that the children's output comes where it belongs."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
