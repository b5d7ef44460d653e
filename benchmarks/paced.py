"""Whether a paced server shows, in real time, what a virtual one computes.

    python -m benchmarks.paced [--speeds 1,10] [--requests 40] [--rate 0.5]

Sends one load to a virtual server and to a paced one at each speed; times of a paced run are
multiplied by its speed. Each metric of it stands twice in the table: as the server recorded it
(the pace alone), and as the client saw it (with HTTP, tokenizer and streams on both sides).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.sim_server import sim_server
from sendnn_bench.client_worker import ClientWorker

RUN_LIMIT_S = 400
METRICS = ("TTFT", "ITL", "E2EL")

Samples = dict[str, np.ndarray]
"""Per metric, all values in ms of virtual time."""


SERVER_FLAGS = (
    *("--sim-runner", "lean", "--sim-prefill-ms", "100", "--sim-decode-ms", "50"),
    *("--max-model-len", "4096", "--max-num-seqs", "8"),
)


def run_load(
    worker: ClientWorker, url: str, folder: Path, requests: int, rate: float
) -> dict[str, Any]:
    """One run's result; ``rate`` in requests per real (or virtual) second."""
    argv = [
        *("--model", "sim-granite-8b", "--base-url", url, "--disable-tqdm", "--num-warmups", "2"),
        *("--dataset-name", "random", "--random-input-len", "400", "--random-output-len", "40"),
        *("--random-range-ratio", "0.5", "--seed", "7"),
        *("--num-prompts", str(requests), "--request-rate", str(rate)),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(folder), "--result-filename", "result.json"),
    ]
    log = folder / "client.log"
    if worker.run(argv, log, RUN_LIMIT_S):
        raise SystemExit(f"the run failed:\n{log.read_text(encoding='utf-8')[-2000:]}")
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return result


def by_server(result: dict[str, Any]) -> Samples:
    """The server's own times; they are virtual whatever the pace."""
    ttft, itl, e2el = [], [], []
    for arrival, tokens in zip(
        result["spyre_arrival_ns"], result["spyre_token_times_ns"], strict=True
    ):
        ttft.append((tokens[0] - arrival) / 1e6)
        e2el.append((tokens[-1] - arrival) / 1e6)
        itl += [(after - before) / 1e6 for before, after in pairwise(tokens)]
    return dict(zip(METRICS, map(np.asarray, (ttft, itl, e2el)), strict=True))


def by_client(result: dict[str, Any], speed: float) -> Samples:
    """The client's times, on the virtual scale. E2EL ends with the last token."""
    whole = [ttft + sum(gaps) for ttft, gaps in zip(result["ttfts"], result["itls"], strict=True)]
    columns = (result["ttfts"], [gap for gaps in result["itls"] for gap in gaps], whole)
    scaled = (np.asarray(column) * 1e3 * speed for column in columns)
    return dict(zip(METRICS, scaled, strict=True))


def rows(speed: float, truth: Samples, seen: Samples, who: str) -> Iterator[tuple[str, ...]]:
    """The table's rows of one run as one side saw it."""
    for metric in METRICS:
        cells: list[str] = []
        for value in (np.mean, lambda values: np.percentile(values, 99)):
            was, now = float(value(truth[metric])), float(value(seen[metric]))
            cells += [f"{was:.1f}", f"{now:.1f}", f"{(now / was - 1) * 100:+.1f} %"]
        yield (f"{speed:g}", who, metric, *cells)


def late_of(result: dict[str, Any]) -> str:
    """How the server kept its pace in this run."""
    pace = result["sendnn"]["wall"]["pace"]
    mean_ms = pace["late_total_ms"] / pace["late_steps"] if pace["late_steps"] else 0.0
    return f"{pace['late_steps']} of {pace['steps']} steps late, by {mean_ms:.1f} ms on average"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--speeds", default="1,10")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--rate", type=float, default=0.5, help="requests per virtual second")
    options = parser.parse_args(argv)
    lines: list[tuple[str, ...]] = []
    notes = []
    with TemporaryDirectory() as name, ClientWorker(Path(name) / "worker.log") as worker:
        folder = Path(name)
        with sim_server(folder, *SERVER_FLAGS, "--sim-clock", "virtual") as server:
            truth = by_server(
                run_load(worker, server.base_url, folder, options.requests, options.rate)
            )
        for speed in map(float, options.speeds.split(",")):
            pace = ("--sim-clock", "paced", "--sim-speed", str(speed))
            with sim_server(folder, *SERVER_FLAGS, *pace) as server:
                rate = options.rate * speed
                result = run_load(worker, server.base_url, folder, options.requests, rate)
            lines += rows(speed, truth, by_server(result), "server")
            lines += rows(speed, truth, by_client(result, speed), "client")
            load = os.getloadavg()[0]
            notes.append(f"speed {speed:g}: {late_of(result)}; load average {load:.1f}")
    head = ("speed", "seen by", "metric", "mean, virtual", "mean, paced", "", "P99, virtual")
    table = ((*head, "P99, paced", ""), ("---",) * 9, *lines)
    print("\n".join("| " + " | ".join(line) + " |" for line in table))
    print("\n" + "\n".join(notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
