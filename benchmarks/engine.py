"""How fast the simulated engine runs, and where the real time of a step goes.

    python -m benchmarks.engine [--output-tokens 200]

One server per target and runner, one session per load. Requests are sent over HTTP by a bare
client of the protocol, so that the load generator of vLLM is left out. Prints a Markdown table:
virtual seconds per wall second, engine steps per second, and the mean of each phase in µs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sendnn_bench.server_process import free_port, own_command, running
from tests.e2e.wire import Ask, run

PHASES = ("schedule", "prepare", "mock", "sample", "update", "between")
BATCHES = (1, 8, 32)
PROMPTS = (512, 4096)


@dataclass(frozen=True)
class Setup:
    """A server to measure. ``temperature`` of 0 is greedy sampling."""

    name: str
    target: str
    runner: str
    temperature: float = 0.0


SETUPS = (
    Setup("spyre, full, greedy", "spyre", "full"),
    Setup("spyre, full, random sampling", "spyre", "full", temperature=1.0),
    Setup("spyre, lean", "spyre", "lean"),
    Setup("stock", "stock", "lean"),
)


@contextmanager
def server(setup: Setup, folder: Path) -> Iterator[str]:
    """A simulated server on 127.0.0.1; yields its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = own_command(
        *("sim-server", "sim-granite-8b", "--target", setup.target),
        *("--sim-runner", setup.runner),
        *("--max-model-len", "8192", "--max-num-seqs", str(max(BATCHES))),
        *("--host", "127.0.0.1", "--port", str(port)),
    )
    environ = {"SENDNN_INFERENCE_SIM_METRICS_FILE": ""}
    with running(command, url, folder / f"{port}.log", environ) as process:
        process.wait_until_healthy(lambda _: None)
        yield url


def measure(url: str, setup: Setup, batch: int, prompt: int, output: int) -> tuple[str, ...]:
    """One load: ``batch`` requests at once; a row of the table."""
    asks = [
        Ask(0, prompt, output, temperature=setup.temperature, token=1000 + n) for n in range(batch)
    ]
    began = time.perf_counter()
    replies = run(url, asks)
    wall_s = time.perf_counter() - began
    virtual_s = max(reply.record["finish_ns"] for reply in replies) / 1e9
    with urllib.request.urlopen(f"{url}/sim/status", timeout=30) as response:
        status = json.load(response)
    phases = [status["host"].get(phase, {}).get("mean_us") for phase in PHASES]
    return (
        setup.name,
        str(batch),
        str(prompt),
        f"{virtual_s / wall_s:.1f}",
        f"{status['steps'] / wall_s:.0f}",
        *("-" if mean is None else f"{mean:.0f}" for mean in phases),
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    head = ("server", "batch", "prompt", "virtual s per s", "steps/s", *PHASES)
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--output-tokens", type=int, default=200)
    options = parser.parse_args(argv)
    rows = []
    with TemporaryDirectory() as folder:
        for setup in SETUPS:
            with server(setup, Path(folder)) as url:
                measure(url, setup, 1, 64, 10)  # the first requests of a server are slower
                for batch in BATCHES:
                    for prompt in PROMPTS:
                        rows.append(measure(url, setup, batch, prompt, options.output_tokens))
                        print(rows[-1], file=sys.stderr, flush=True)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
