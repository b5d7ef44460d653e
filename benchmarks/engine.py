"""How fast the simulated engine runs, and where the real time of a step goes.

    python -m benchmarks.engine [--server lean] [--batches 1,8,32] [--profile FILE]

One server per target and runner, one session per load. Requests are sent over HTTP by a bare
client of the protocol, so that the load generator of vLLM is left out. Prints a Markdown table:
virtual seconds per wall second, engine steps per second, the mean of each phase of a step in µs of
wall time, and the processor time per step in µs of each part: the engine's loop, the engine's
other threads (encoding of outputs, sockets), the API server (decoding, detokenising, streams), and
the client. ``--profile`` samples the engine's stacks with py-spy, which slows nothing down, into a
file that flame graph tools read, and prints where most of the time went.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import CpuTimes, cpu_times, engine_pid, hottest, sampled
from benchmarks.sim_server import sim_server
from tests.e2e.wire import Ask, run

PHASES = ("schedule", "prepare", "mock", "sample", "update", "between")
BATCHES = (1, 8, 32)
PROMPTS = (512, 4096)
HOTTEST = 15


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


@dataclass(frozen=True)
class Load:
    """``batch`` requests of ``prompt`` tokens that get ``output`` tokens each."""

    batch: int
    prompt: int
    output: int


@dataclass(frozen=True)
class Running:
    """A server that runs: its address, and the process ids of API server and engine."""

    url: str
    pid: int
    engine: int


@contextmanager
def server(setup: Setup, folder: Path) -> Iterator[Running]:
    """A simulated server of this setup."""
    flags = ("--target", setup.target, "--sim-runner", setup.runner)
    slots = str(max(BATCHES))
    with sim_server(folder, *flags, "--max-model-len", "8192", "--max-num-seqs", slots) as started:
        pid = started.process.pid
        yield Running(started.base_url, pid, engine_pid(pid))


def measure(server: Running, setup: Setup, load: Load) -> tuple[str, ...]:
    """One load, its requests all at once; a row of the table."""
    asks = [
        Ask(0, load.prompt, load.output, temperature=setup.temperature, token=1000 + n)
        for n in range(load.batch)
    ]
    before, began = cpu_times(server.pid, server.engine), time.perf_counter()
    replies = run(server.url, asks)
    wall_s = time.perf_counter() - began
    cpu = cpu_times(server.pid, server.engine).since(before)
    virtual_s = max(reply.record["finish_ns"] for reply in replies) / 1e9
    with urllib.request.urlopen(f"{server.url}/sim/status", timeout=30) as response:
        status = json.load(response)
    steps = status["steps"]
    phases = [status["host"].get(phase, {}).get("mean_us") for phase in PHASES]
    return (
        setup.name,
        str(load.batch),
        str(load.prompt),
        f"{virtual_s / wall_s:.1f}",
        f"{steps / wall_s:.0f}",
        *("-" if mean is None else f"{mean:.0f}" for mean in phases),
        *(f"{spent_ns / steps / 1e3:.0f}" for spent_ns in astuple(cpu)),
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    cpu = (f"{field.name} cpu" for field in fields(CpuTimes))
    head = ("server", "batch", "prompt", "virtual s per s", "steps/s", *PHASES, *cpu)
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def profile_table(path: Path) -> str:
    """The functions of a profile in which the engine spent most time, as a Markdown table."""
    lines = ["| function | itself | with what it calls |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {own:.1%} | {total:.1%} |" for name, own, total in hottest(path, HOTTEST)
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    options = _parse(argv)
    chosen = [setup for setup in SETUPS if options.server in setup.name]
    loads = [Load(b, p, options.output_tokens) for b in options.batches for p in options.prompts]
    rows = []
    with TemporaryDirectory() as folder:
        for setup in chosen:
            with server(setup, Path(folder)) as running_server:
                # The first requests of a server are slower.
                measure(running_server, setup, Load(1, 64, 10))
                watch = sampled(running_server.engine, options.profile) if options.profile else None
                with watch or nullcontext():
                    for load in loads:
                        rows.append(measure(running_server, setup, load))
                        print(rows[-1], file=sys.stderr, flush=True)
    print(f"load average at the end: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores\n")
    print(table(rows))
    if options.profile:
        print(f"\n{profile_table(options.profile)}")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    def numbers(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split(","))

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--server", default="", help="only servers whose name has this in it")
    parser.add_argument("--batches", type=numbers, default=BATCHES)
    parser.add_argument("--prompts", type=numbers, default=PROMPTS)
    parser.add_argument("--output-tokens", type=int, default=200)
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="sample the (last) server's engine"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
