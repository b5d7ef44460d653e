"""Does a calibrated simulation stand for the real thing? Measures a real server and says.

    python -m benchmarks.fidelity [--directory results/fidelity]

1. Starts the real sendnn-inference on the CPU: a small Granite with random weights, whose forward
   passes are real and take real time.
2. Measures calibration loads and held-out loads in rounds, since a real machine is never twice the
   same: what makes a round slow makes both slow.
3. Fits one profile of each kind to the calibration runs alone.
4. Simulates the held-out loads, which no fit has seen, as often and with other noise each time,
   and prints the errors.

Takes about half an hour. Result files that are there already are taken as they are, so that an
interrupted experiment goes on where it stopped; --fresh measures anew. Run nothing beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fidelity_report import Line, lines_of, load_table, summary
from sendnn_bench import models
from sendnn_bench.client_worker import ClientWorker
from sendnn_bench.results import load, write_atomically
from sendnn_bench.server_process import free_port, own_command, running

RUN_LIMIT_S = 1800.0
START_LIMIT_S = 600.0
CHUNK_TOKENS = 512
SLOTS = 8

SHAPE = {
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
"""Small enough that steps take tens of milliseconds on one core."""

SERVER_FLAGS = (
    *("--max-model-len", "2048", "--max-num-seqs", str(SLOTS)),
    *("--max-num-batched-tokens", str(CHUNK_TOKENS)),
    # A repeated load must not find the prompts of the run before in the cache.
    "--no-enable-prefix-caching",
)

SERVER_ENVIRON = {
    "SENDNN_INFERENCE_DYNAMO_BACKEND": "eager",
    "SENDNN_INFERENCE_BENCH_METRICS_ENABLED": "1",
    "HF_HUB_OFFLINE": "1",
    "MASTER_ADDR": "127.0.0.1",
    # Steady step times: one thread computes, the rest of the machine serves and measures.
    "OMP_NUM_THREADS": "1",
    "SENDNN_INFERENCE_UPDATE_THREAD_CONFIG": "0",
}


@dataclass(frozen=True)
class Load:
    """One load. ``share`` is the rate as a share of the measured capacity, for an open loop."""

    name: str
    requests: int
    input_tokens: int
    output_tokens: int
    seed: int
    concurrency: int | None = None
    share: float | None = None


CALIBRATION = (
    Load("closed-1", 12, 700, 24, seed=101, concurrency=1),
    Load("closed-2", 24, 500, 32, seed=102, concurrency=2),
    Load("closed-4", 40, 900, 32, seed=103, concurrency=4),
    Load("closed-8", 60, 600, 40, seed=104, concurrency=SLOTS),
    Load("closed-8-short", 60, 250, 48, seed=105, concurrency=SLOTS),
    Load("open-60", 30, 600, 24, seed=106, share=0.6),
)
CAPACITY = "closed-8"
"""The calibration load whose first run's throughput is the capacity."""

HELD_OUT = (
    Load("closed-3", 36, 640, 28, seed=201, concurrency=3),
    Load("closed-6-long-prompts", 36, 1100, 24, seed=202, concurrency=6),
    Load("closed-8-long-outputs", 32, 300, 72, seed=203, concurrency=SLOTS),
    Load("open-40", 36, 600, 32, seed=204, share=0.4),
    Load("open-90-near-saturation", 60, 600, 40, seed=205, share=0.9),
)
WARM_UP = Load("warm-up", 4, 900, 8, seed=1, concurrency=2)


@dataclass(frozen=True)
class Server:
    """Where the server is, what it serves, and the client that runs against it."""

    base_url: str
    model: Path
    client: ClientWorker


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment; 0 where every number met its goal, else 1."""
    options = _parse(argv)
    directory: Path = options.directory
    if options.fresh and directory.exists():
        shutil.rmtree(directory)
    model = make_model(directory / "model")
    capacity = _measure(directory, model, options.repeats)
    reports = [_simulate(directory, model, kind, capacity, options) for kind in options.kinds]
    text = "\n".join(text for text, _ in reports)
    write_atomically(directory / "fidelity.md", text)
    sys.stdout.write(text)
    return 0 if all(line.met for _, lines in reports for line in lines) else 1


def make_model(directory: Path) -> Path:
    """The small model: the built-in one's tokenizer, and its configuration in another shape."""
    source = Path(models.resolve(models.BUILTIN[0]))
    if not directory.exists():
        shutil.copytree(source, directory)
    config = json.loads((source / "config.json").read_text(encoding="utf-8")) | SHAPE
    write_atomically(directory / "config.json", json.dumps(config, indent=2))
    return directory.resolve()


def real_file(directory: Path, load_: Load, repeat: int) -> Path:
    """Result file of a real run."""
    return directory / f"real-{load_.name}-{repeat}.json"


def calibration_files(directory: Path, repeats: int) -> list[Path]:
    """Result files of the runs that a profile is fitted to."""
    return [real_file(directory, load_, i) for i in range(repeats) for load_ in CALIBRATION]


def simulated_file(directory: Path, kind: str, load_: Load, repeat: int) -> Path:
    """Result file of a simulated run."""
    return directory / f"simulated-{kind}-{load_.name}-{repeat}.json"


def _measure(directory: Path, model: Path, repeats: int) -> float:
    """All real runs; returns the capacity in requests per second."""
    plan = [
        (load_, real_file(directory, load_, repeat))
        for repeat in range(repeats)
        for load_ in (*CALIBRATION, *HELD_OUT)
    ]
    if any(not path.exists() for _, path in plan):
        warm_up = directory / "real-warm-up.json"
        warm_up.unlink(missing_ok=True)
        with _server(directory, "real", _real_command(model)) as server:
            _run(WARM_UP, server, warm_up, 0.0)
            for load_, path in plan:
                _run(load_, server, path, _capacity(directory) if load_.share else 0.0)
    return _capacity(directory)


def _capacity(directory: Path) -> float:
    run = next(load_ for load_ in CALIBRATION if load_.name == CAPACITY)
    return float(load(real_file(directory, run, 0)).data["request_throughput"])


def _simulate(
    directory: Path, model: Path, kind: str, capacity: float, options: argparse.Namespace
) -> tuple[str, list[Line]]:
    """Fit one kind of profile, simulate the held-out loads, compare."""
    profile = directory / f"profile-{kind}.toml"
    fitted = calibration_files(directory, options.repeats)
    command = own_command("calibrate", *map(str, fitted), "-o", str(profile), "--kind", kind)
    # A load of short prompts alone does not tell it.
    command += ["--chunk-size", str(CHUNK_TOKENS)]
    report = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, timeout=RUN_LIMIT_S
    ).stdout
    with _server(directory, f"simulated-{kind}", _sim_command(model, profile)) as server:
        for load_ in HELD_OUT:
            for repeat in range(options.repeats):
                path = simulated_file(directory, kind, load_, repeat)
                path.unlink(missing_ok=True)
                # A warm session goes on counting steps, and so draws other noise.
                _run(load_, server, path, capacity, *(["--warm"] if repeat else []))
    return _report(directory, kind, report, options.repeats)


def _report(directory: Path, kind: str, fit: str, repeats: int) -> tuple[str, list[Line]]:
    parts, lines = [f"## Profile of kind {kind}\n", f"```text\n{fit.rstrip()}\n```\n"], []
    for load_ in HELD_OUT:
        real = [load(real_file(directory, load_, repeat)) for repeat in range(repeats)]
        files = [simulated_file(directory, kind, load_, repeat) for repeat in range(repeats)]
        found = lines_of(real, [load(path) for path in files])
        lines += found
        parts += [f"### {load_.name}\n", load_table(found)]
    return "\n".join([parts[0], summary(lines), *parts[1:]]), lines


def _run(load_: Load, server: Server, path: Path, capacity: float, *flags: str) -> None:
    """Run one load, unless its result is there."""
    if path.exists():
        print(f"{path} is there already", file=sys.stderr)
        return
    print(f"running {path.stem}", file=sys.stderr, flush=True)
    log = path.with_suffix(".log")
    words = [*client_flags(load_, server, path, capacity), *flags]
    code = server.client.run(words, log, RUN_LIMIT_S)
    if code:
        raise SystemExit(f"{path.stem} failed with exit code {code}; see {log}")


def client_flags(load_: Load, server: Server, path: Path, capacity: float) -> list[str]:
    """What follows `sendnn-bench serve`, the same for both servers."""
    pace = (
        ("--request-rate", f"{load_.share * capacity:.4f}")
        if load_.share
        else ("--max-concurrency", str(load_.concurrency))
    )
    return [
        *("--base-url", server.base_url, "--model", str(server.model)),
        *("--dataset-name", "random", "--random-range-ratio", "0.5", "--seed", str(load_.seed)),
        *("--random-input-len", str(load_.input_tokens)),
        *("--random-output-len", str(load_.output_tokens), "--ignore-eos"),
        *("--num-prompts", str(load_.requests), *pace, "--disable-tqdm"),
        *("--save-result", "--save-detailed"),
        *("--result-dir", str(path.parent), "--result-filename", path.name),
    ]


@dataclass(frozen=True)
class _Command:
    """How to start a server."""

    words: tuple[str, ...]
    environ: Mapping[str, str]
    model: Path


def _real_command(model: Path) -> _Command:
    serve = (sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", str(model))
    own = {"VLLM_PLUGINS": "sendnn_inference", "MASTER_PORT": str(free_port())}
    return _Command((*serve, "--load-format", "dummy"), SERVER_ENVIRON | own, model)


def _sim_command(model: Path, profile: Path) -> _Command:
    words = own_command("sim-server", str(model), "--sim-profile", str(profile.resolve()))
    return _Command(tuple(words), SERVER_ENVIRON, model)


@contextmanager
def _server(directory: Path, name: str, command: _Command) -> Iterator[Server]:
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    log = (directory / f"server-{name}.log").resolve()
    print(f"starting the {name} server (log: {log})", file=sys.stderr, flush=True)
    words = [*command.words, "--host", "127.0.0.1", "--port", str(port), *SERVER_FLAGS]
    with (
        running(words, base_url, log, command.environ) as server,
        ClientWorker(directory / f"client-{name}.log") as client,
    ):
        server.wait_until_healthy(lambda _: None, limit_s=START_LIMIT_S)
        yield Server(base_url, command.model, client)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--directory", type=Path, default=Path("results/fidelity"))
    parser.add_argument(
        "--repeats", type=int, default=4, help="runs of each load, real and simulated"
    )
    parser.add_argument(
        "--kinds", nargs="+", default=["linear", "table"], choices=["constant", "linear", "table"]
    )
    parser.add_argument("--fresh", action="store_true", help="delete earlier results first")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
