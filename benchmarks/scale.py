"""Whether many requests cost more each than few, and how much memory a run takes.

    python -m benchmarks.scale [--requests 1000,3000,10000] [--target spyre] [--runner lean]
                               [--request-rate 2]

Runs `sendnn-bench serve` on 512 + 128 tokens at a concurrency of 32, or in an open loop at a rate,
against one simulated server.
Prints a Markdown table; exits with 1 where the largest run costs over 20 % more per request than
the smallest. The cost is the wall time of the benchmark itself, without the client's start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import of_group
from benchmarks.sim_server import sim_server
from sendnn_bench.server_process import own_command

SLOTS = 32
RUN_LIMIT_S = 3600
GROWTH_LIMIT = 1.2


def run_load(
    url: str, requests: int, pace: Sequence[str], folder: Path
) -> tuple[dict[str, float], float]:
    """One run; its wall block with the engine's times, and the client's peak memory in MiB."""
    name = f"{requests}.json"
    command = own_command(
        *("serve", "--model", "sim-granite-8b", "--base-url", url, "--disable-tqdm"),
        *("--dataset-name", "random", "--random-input-len", "512", "--random-output-len", "128"),
        *("--num-prompts", str(requests), "--temperature", "0", *pace),
        *("--save-result", "--result-dir", str(folder), "--result-filename", name),
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as client:
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
    if client.returncode:
        raise SystemExit(f"the run of {requests} requests ended with {client.returncode}")
    result = json.loads((folder / name).read_text(encoding="utf-8"))
    facts = {
        "wall_s": result["sendnn"]["wall"]["duration_s"],
        "virtual_s": result["duration"],
        "completed": result["completed"],
    }
    return facts, usage.ru_maxrss / 1024


def peak_memory_mib(group: int) -> dict[str, float]:
    """Peak resident memory of each process of a process group, by its name."""
    peaks: dict[str, float] = {}
    for _, status in of_group(group):
        name = status["Name"]
        mib = int(status.get("VmHWM", "0 kB").split()[0]) / 1024
        peaks[name] = max(peaks.get(name, 0.0), mib)
    return peaks


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--requests", default="1000,3000,10000")
    parser.add_argument("--target", default="spyre")
    parser.add_argument("--runner", default="lean")
    parser.add_argument("--request-rate", help="an open loop at this rate, in requests per second")
    options = parser.parse_args(argv)
    pace = ("--max-concurrency", str(SLOTS))
    if options.request_rate:
        pace = ("--request-rate", options.request_rate)
    flags = ("--target", options.target, "--sim-runner", options.runner)
    size = ("--max-model-len", "4096", "--max-num-seqs", str(SLOTS))
    costs_ms = []
    print("| requests | wall s | virtual s per s | ms per request | client MiB | server MiB |")
    print("|---|---|---|---|---|---|")
    with TemporaryDirectory() as name:
        folder = Path(name)
        with sim_server(folder, *flags, *size) as server:
            for requests in map(int, options.requests.split(",")):
                facts, client_mib = run_load(server.base_url, requests, pace, folder)
                costs_ms.append(facts["wall_s"] / requests * 1e3)
                memory = peak_memory_mib(server.process.pid)
                shown = ", ".join(f"{process} {mib:.0f}" for process, mib in memory.items())
                print(
                    f"| {requests} | {facts['wall_s']:.1f} "
                    f"| {facts['virtual_s'] / facts['wall_s']:.1f} | {costs_ms[-1]:.2f} "
                    f"| {client_mib:.0f} | {shown} |",
                    flush=True,
                )
    growth = costs_ms[-1] / costs_ms[0]
    print(f"\nThe largest run costs {growth:.2f} times as much per request as the smallest.")
    return int(growth > GROWTH_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
