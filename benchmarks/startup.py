"""How long a command takes to say something, and a server to be up.

    python -m benchmarks.startup [--server]

Prints a Markdown table of the best of three; exits with 1 where a command that should be instant
takes 0.5 s or more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sendnn_bench.server_process import free_port, own_command, running

INSTANT_S = 0.5
REPEATS = 3
INSTANT = (
    ("--version",),
    ("--help",),
    ("serve", "--help"),
    ("sim-server", "--help"),
    ("timeline", "--help"),
    ("compare", "--help"),
    ("calibrate", "--help"),
    ("describe-metrics",),
    ("doctor", "--help"),
)


def best_s(arguments: Sequence[str]) -> float:
    """Best wall time of a command over a few repeats."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run(own_command(*arguments), check=True, stdout=subprocess.DEVNULL, timeout=60)
        times.append(time.perf_counter() - began)
    return min(times)


def server_start_s(target: str) -> float:
    """Seconds until a simulated server answers /health."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = own_command(
        *("sim-server", "sim-granite-8b", "--target", target, "--max-model-len", "4096"),
        *("--host", "127.0.0.1", "--port", str(port)),
    )
    with (
        TemporaryDirectory() as folder,
        running(command, url, Path(folder) / "server.log") as server,
    ):
        return server.wait_until_healthy(lambda _: None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--server", action="store_true", help="start servers as well")
    options = parser.parse_args(argv)
    print("| command | s |\n|---|---|")
    slow = 0
    for arguments in INSTANT:
        seconds = best_s(arguments)
        slow += seconds >= INSTANT_S
        print(f"| `sendnn-bench {' '.join(arguments)}` | {seconds:.2f} |", flush=True)
    if options.server:
        for target in ("spyre", "stock"):
            print(f"| server up, target {target} | {server_start_s(target):.1f} |", flush=True)
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
