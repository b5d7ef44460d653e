"""`sendnn-bench demo`: one simulated server, two benchmarks, nothing left running."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sendnn_bench import models, own_server, results
from sendnn_bench.errors import Interrupted
from sendnn_bench.serve_command import load_client, run_serve

MODEL = models.BUILTIN[0]

SERVER_FLAGS = ("--max-model-len", "32768", "--max-num-seqs", "32")
SPYRE_FLAGS = ("--tensor-parallel-size", "4")
"""With these sendnn-inference knows the deployment, and its KV blocks and tkv limit apply."""

WORKLOAD = {
    "--dataset-name": "random",
    "--random-input-len": "512",
    "--random-output-len": "128",
    "--random-range-ratio": "0.5",
    "--temperature": "0",
}
"""Greedy, since what a mocked model samples says nothing, and random sampling costs real time."""


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


def run_demo(*, directory: Path, requests: int) -> None:
    """Start a server, run every part, stop it.

    Raises:
        BenchError: any error of the tree; the results of earlier parts stay.
    """
    log = directory / "demo-server.log"
    try:
        with (
            own_server.ended_by_sigterm(),
            own_server.starting(MODEL, server_flags(), log) as server,
        ):
            say(f"Starting a simulated server of {MODEL} on {server.base_url} (log: {log})")
            say("It imports vLLM, and so does the client meanwhile: about half a minute.")
            load_client(client_words(PARTS[0], server.base_url, directory, requests))
            own_server.wait_until_up(server)
            say("Server is up.")
            for part in PARTS:
                run_part(part, server.base_url, directory, requests)
            say("Stopping the server.")
    except KeyboardInterrupt as error:
        raise Interrupted("the demo was interrupted; results of whole parts stay.") from error
    say(f"Done. Results and the server's log are in {directory}/.")


def run_part(part: Part, base_url: str, directory: Path, requests: int) -> None:
    """Run one benchmark and say how much faster than real time it was.

    Raises:
        BenchError: the benchmark failed, or left no readable result.
    """
    say(f"\n=== {requests} requests, {part.title} ===")
    start = time.monotonic()
    words = client_words(part, base_url, directory, requests)
    say("$ sendnn-bench serve " + " ".join(words))
    run_serve(words)
    wall_s = time.monotonic() - start
    virtual_s = float(results.load(directory / part.file).data["duration"])
    say(f"{virtual_s:.1f} virtual seconds ran in {wall_s:.1f} wall seconds.")


def server_flags() -> tuple[str, ...]:
    """The server of the demo: spyre's deployment where sendnn-inference is installed."""
    spyre = SPYRE_FLAGS if find_spec("sendnn_inference") is not None else ()
    return (*SERVER_FLAGS, *spyre)


def client_words(part: Part, base_url: str, directory: Path, requests: int) -> list[str]:
    """One benchmark as a user would type it, after `sendnn-bench serve`."""
    return [
        *("--base-url", base_url, "--model", MODEL),
        *(word for pair in WORKLOAD.items() for word in pair),
        *("--num-prompts", str(requests), *part.flags),
        *(() if sys.stdout.isatty() else ("--disable-tqdm",)),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(directory), "--result-filename", part.file),
    ]


def say(text: str) -> None:
    """Print at once, so that what the server says at its end comes after."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
