"""Whether a busy machine changes a digit, and whether a long run makes the server grow.

    python -m benchmarks.reproducibility [--runs 20] [--burners 2] [--requests 10000]

Runs one seed ``--runs`` times against one simulated server, while ``--burners`` processes keep the
CPUs busy (none in the first run), and compares all results with `compare --identical`. Then runs
``--requests`` requests in tenths and prints memory and open files of the server's processes after
each. Exits with 1 where a run differs, or where memory or files grow after the second tenth.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.processes import of_group
from benchmarks.sim_server import sim_server
from sendnn_bench.client_worker import ClientWorker
from sendnn_bench.report.identical import run_identical

RUN_LIMIT_S = 3600.0
PARTS = 10
GROWTH_MIB = 10.0
"""Memory that may come on top between the second tenth and the last, per process."""

BURN = "while True: pass"


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Processes that take all the CPU time they can get."""
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


class Load:
    """Runs of `serve` against one server, each from the same state of one client process."""

    def __init__(self, worker: ClientWorker, url: str, folder: Path) -> None:
        self._worker = worker
        self._url = url
        self._folder = folder

    def run(self, name: str, requests: int, *flags: str) -> Path:
        """One run of 512 + 128 tokens a request; its detailed result."""
        words = [
            *("--model", "sim-granite-8b", "--base-url", self._url, "--disable-tqdm"),
            *("--dataset-name", "random", "--random-input-len", "512"),
            *("--random-output-len", "128", "--random-range-ratio", "0.5", "--seed", "7"),
            *("--num-prompts", str(requests), *flags, "--save-result", "--save-detailed"),
            *("--result-dir", str(self._folder), "--result-filename", f"{name}.json"),
        ]
        log = self._folder / f"{name}.log"
        code = self._worker.run(words, log, RUN_LIMIT_S)
        if code:
            raise SystemExit(f"run {name} ended with {code}:\n{log.read_text()[-2000:]}")
        return self._folder / f"{name}.json"


def usage(group: int) -> dict[str, tuple[float, int]]:
    """Resident memory in MiB and open files of each process of a group, by name and number."""
    found = {}
    for pid, status in of_group(group):
        try:
            files = len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue  # it has ended
        mib = int(status.get("VmRSS", "0 kB").split()[0]) / 1024
        found[f"{status['Name']} {pid}"] = (mib, files)
    return found


def repeat(load: Load, runs: int, burners: int) -> int:
    """One seed many times; 0 where all are the same to the last digit."""
    began = time.monotonic()
    paths = [load.run("run-1", 100, "--request-rate", "3")]
    with busy(burners):
        paths += [
            load.run(f"run-{number}", 100, "--request-rate", "3") for number in range(2, runs + 1)
        ]
    print(f"{runs} runs, {burners} busy processes beside all but the first:", flush=True)
    code = run_identical(paths)
    print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    return code


def soak(load: Load, requests: int, group: int) -> int:
    """Many requests; 0 where neither memory nor open files grow once the server is warm."""
    print("| requests | process | memory MiB | open files |")
    print("|---|---|---|---|")
    seen = []
    for part in range(1, PARTS + 1):
        load.run(f"soak-{part}", requests // PARTS, "--max-concurrency", "32")
        seen.append(usage(group))
        for name, (mib, files) in seen[-1].items():
            print(f"| {part * (requests // PARTS)} | {name.split()[0]} | {mib:.0f} | {files} |")
        sys.stdout.flush()
    warm, last = seen[1], seen[-1]
    grown = [
        name
        for name, (mib, files) in last.items()
        if mib > warm.get(name, (0.0, 0))[0] + GROWTH_MIB or files > warm.get(name, (0.0, 0))[1]
    ]
    print(f"\nGrown since the second tenth: {', '.join(grown) or 'nothing'}.")
    return int(bool(grown))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--burners", type=int, default=2)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args(argv)
    flags = ("--sim-runner", "lean", "--max-model-len", "4096", "--max-num-seqs", "32")
    with (
        TemporaryDirectory() as name,
        ClientWorker(Path(name) / "worker.log") as worker,
        sim_server(Path(name), *flags) as server,
    ):
        load = Load(worker, server.base_url, Path(name))
        codes = []
        if options.runs > 1:
            codes.append(repeat(load, options.runs, options.burners))
        if options.requests:
            codes.append(soak(load, options.requests, server.process.pid))
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
