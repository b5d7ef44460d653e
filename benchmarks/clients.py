"""Which clients can measure a simulated server, and what each of them measures.

    python -m benchmarks.clients [--guidellm PATH] [--aiperf PATH] [--clock paced] [--speed 10]

Starts one server and runs every client that is there on the same load: requests of about 256 + 32
tokens, one after the other. On a paced server the right answer is then a sum: TTFT is one chunk of
100 ms, ITL one step of 50 ms, each divided by the speed. Prints a Markdown table; exits with 1
where a client fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.sim_server import MODEL, sim_server
from sendnn_bench import models
from sendnn_bench.server_process import own_command

CLIENT_LIMIT_S = 300
REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS = 10, 256, 32
PREFILL_MS, DECODE_MS = 100, 50

OPENAI_SCRIPT = """
import itertools, json, sys, time
import openai
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
ttfts, gaps, wholes = [], [], []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    stream = client.chat.completions.create(
        model=sys.argv[3], messages=[{"role": "user", "content": "word " * int(sys.argv[4])}],
        max_tokens=int(sys.argv[5]), stream=True, extra_body={"ignore_eos": True})
    times = [time.perf_counter() - began for event in stream if event.choices[0].delta.content]
    ttfts.append(times[0]); wholes.append(times[-1])
    gaps += [after - before for before, after in itertools.pairwise(times)]
mean = lambda values: 1e3 * sum(values) / len(values)
print(json.dumps([len(wholes), mean(ttfts), mean(gaps), mean(wholes)]))
"""


@dataclass(frozen=True)
class Figures:
    """What a client measured: requests that succeeded, and means in ms (None: it does not tell)."""

    requests: int
    ttft_ms: float | None
    itl_ms: float | None
    e2el_ms: float | None


@dataclass(frozen=True)
class Place:
    """Where a client runs: the server's address, a folder of its own, the tokenizer's folder."""

    url: str
    folder: Path
    tokenizer: str


@dataclass(frozen=True)
class Client:
    """A load generator. ``command`` makes its command line, ``read`` its figures from what it
    printed and from its folder; ``version`` is the command that prints its version.

    ``offline`` is whether HF_HUB_OFFLINE is set for it."""

    name: str
    version: Sequence[str]
    command: Callable[[Place], list[str]]
    read: Callable[[str, Path], Figures]
    offline: bool = True


# Readers


def _curl_figures(out: str, _: Path) -> Figures:
    requests = out.count("data: [DONE]")
    seconds = [float(word) for word in re.findall(r"total=([\d.]+)", out)]
    return Figures(requests, None, None, 1e3 * sum(seconds) / len(seconds))


def _script_figures(out: str, _: Path) -> Figures:
    requests, *means = json.loads(out.strip().splitlines()[-1])
    return Figures(requests, *means)


def _vllm_figures(_: str, folder: Path) -> Figures:
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    means = (result[f"mean_{metric}_ms"] for metric in ("ttft", "itl", "e2el"))
    return Figures(result["completed"], *means)


def _guidellm_figures(_: str, folder: Path) -> Figures:
    (run,) = json.loads((folder / "result.json").read_text(encoding="utf-8"))["benchmarks"]
    metrics = run["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    return Figures(
        metrics["request_totals"]["successful"],
        mean("time_to_first_token_ms"),
        mean("inter_token_latency_ms"),
        mean("request_latency") * 1e3,
    )


def _aiperf_figures(_: str, folder: Path) -> Figures:
    (path,) = folder.rglob("profile_export_aiperf.json")
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names = ("time_to_first_token", "inter_token_latency", "request_latency")
    return Figures(int(result["request_count"]["avg"]), *(result[name]["avg"] for name in names))


# Commands


def _curl(place: Place) -> list[str]:
    body = {
        "model": MODEL,
        "prompt": "word " * PROMPT_TOKENS,
        "max_tokens": OUTPUT_TOKENS,
        "stream": True,
    }
    (place.folder / "body.json").write_text(json.dumps(body), encoding="utf-8")
    url = f"{place.url}/v1/completions?[1-{REQUESTS}]"
    return [
        *("curl", "--silent", "--no-buffer", "--json", f"@{place.folder / 'body.json'}"),
        *("--write-out", "total=%{time_total}\\n", url),
    ]


def _openai(place: Place) -> list[str]:
    sizes = (str(REQUESTS), MODEL, str(PROMPT_TOKENS), str(OUTPUT_TOKENS))
    return [sys.executable, "-c", OPENAI_SCRIPT, place.url, *sizes]


def _vllm_load(place: Place) -> list[str]:
    return [
        *("--model", MODEL, "--base-url", place.url, "--dataset-name", "random"),
        *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)),
        *("--num-prompts", str(REQUESTS), "--max-concurrency", "1", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,itl,e2el", "--save-result"),
        *("--result-dir", str(place.folder), "--result-filename", "result.json"),
    ]


def _vllm(place: Place) -> list[str]:
    vllm = str(Path(sys.executable).with_name("vllm"))
    return [vllm, "bench", "serve", "--tokenizer", place.tokenizer, *_vllm_load(place)]


def _upstream(place: Place) -> list[str]:
    module = ("-m", "sendnn_inference.benchmarks.spyre_bench_serve", "serve")
    return [sys.executable, *module, "--tokenizer", place.tokenizer, *_vllm_load(place)]


def _ours(place: Place) -> list[str]:
    return own_command("serve", *_vllm_load(place))


def _guidellm(path: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        return [
            *(path, "run", "--disable-progress"),
            *("--backend", f"kind=openai_http,target={place.url},model={MODEL}"),
            *("--profile", "kind=synchronous"),
            *("--constraint", f"kind=max_requests,count={REQUESTS}"),
            *("--tokenizer", f"kind=huggingface_auto,model={place.tokenizer}"),
            "--data",
            f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}",
            *("--output", f"kind=json,path={place.folder / 'result.json'}"),
        ]

    return command


def _aiperf(path: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        return [
            *(path, "profile", "--model", MODEL, "--url", place.url, "--tokenizer"),
            *(place.tokenizer, "--endpoint-type", "chat", "--streaming", "--ui", "none"),
            *("--concurrency", "1", "--request-count", str(REQUESTS)),
            *("--synthetic-input-tokens-mean", str(PROMPT_TOKENS)),
            *("--output-tokens-mean", str(OUTPUT_TOKENS), "--extra-inputs", "ignore_eos:true"),
            *("--artifact-dir", str(place.folder)),
        ]

    return command


def clients(guidellm: str | None, aiperf: str | None) -> list[Client]:
    """All clients that are there."""
    package = (sys.executable, "-c", "import importlib.metadata as m, sys; print(m.version('{}'))")

    def version(name: str) -> list[str]:
        return [part.format(name) for part in package]

    found = [
        Client("OpenAI Python client", version("openai"), _openai, _script_figures),
        Client("`vllm bench serve`", version("vllm"), _vllm, _vllm_figures),
        Client(
            "`sendnn-bench` of sendnn-inference",
            version("sendnn-inference"),
            _upstream,
            _vllm_figures,
        ),
        Client("`sendnn-bench serve`", own_command("--version"), _ours, _vllm_figures),
    ]
    if shutil.which("curl"):
        found.insert(0, Client("curl", ("curl", "--version"), _curl, _curl_figures))
    if guidellm:
        found.append(
            Client("GuideLLM", (guidellm, "--version"), _guidellm(guidellm), _guidellm_figures)
        )
    if aiperf:
        # With HF_HUB_OFFLINE set, AIPerf 0.13 looks for a tokenizer in the hub's cache alone.
        found.append(
            Client("AIPerf", (aiperf, "--version"), _aiperf(aiperf), _aiperf_figures, offline=False)
        )
    return found


# Running


def _run(client: Client, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"VLLM_PLUGINS": "", "NO_COLOR": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    if client.offline:
        environment["HF_HUB_OFFLINE"] = "1"
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=CLIENT_LIMIT_S,
        check=False,
    )


def version_of(client: Client) -> str:
    """The first version number that the client prints."""
    done = _run(client, client.version)
    found = re.search(r"\d+(\.\w+)+", done.stdout + done.stderr)
    return found[0] if found else "?"


def measure(client: Client, url: str, folder: Path) -> Figures | str:
    """The client's figures, or the last line that it said where it failed."""
    folder.mkdir()
    place = Place(url, folder, models.resolve(MODEL))
    try:
        done = _run(client, client.command(place))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    (folder / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    try:
        if done.returncode == 0:
            return client.read(done.stdout, folder)
    except (OSError, ValueError, LookupError, TypeError, ZeroDivisionError) as error:
        return f"its result cannot be read: {type(error).__name__}: {error}"
    said = (done.stdout + done.stderr).strip().splitlines()
    return f"exit code {done.returncode}: {said[-1] if said else ''}"


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _figures_row(name: str, version: str, figures: Figures) -> str:
    times = (figures.ttft_ms, figures.itl_ms, figures.e2el_ms)
    shown = ("-" if value is None else f"{value:.1f}" for value in times)
    return _row(name, version, figures.requests, *shown)


def _table(found: Sequence[Client], url: str, folder: Path, speed: float) -> int:
    """Measure and print, client by client; the number of those that failed."""
    failed = 0
    print(_row("client", "version", "requests", "TTFT ms", "ITL ms", "E2EL ms"))
    print(_row(*["---"] * 6))
    whole_ms = (PREFILL_MS + (OUTPUT_TOKENS - 1) * DECODE_MS) / speed
    truth = Figures(REQUESTS, PREFILL_MS / speed, DECODE_MS / speed, whole_ms)
    print(_figures_row("(what the steps cost)", "", truth), flush=True)
    for index, client in enumerate(found):
        figures = measure(client, url, folder / str(index))
        if isinstance(figures, str):
            failed += 1
            print(_row(client.name, version_of(client), figures, "", "", ""), flush=True)
            continue
        failed += figures.requests != REQUESTS
        print(_figures_row(client.name, version_of(client), figures), flush=True)
    return failed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the clients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--guidellm", default=shutil.which("guidellm"), help="its executable")
    parser.add_argument("--aiperf", default=shutil.which("aiperf"), help="its executable")
    parser.add_argument("--clock", default="paced", choices=("paced", "virtual", "free"))
    parser.add_argument("--speed", type=float, default=10)
    parser.add_argument("--url", help="a server that runs already, instead of one of our own")
    parser.add_argument("--only", default="", help="clients whose name holds this text")
    parser.add_argument("--keep", type=Path, help="folder for what the clients printed and wrote")
    options = parser.parse_args(argv)
    found = [
        client
        for client in clients(options.guidellm, options.aiperf)
        if options.only.lower() in client.name.lower()
    ]
    flags = (
        *("--sim-clock", options.clock, "--sim-speed", str(options.speed)),
        *("--sim-prefill-ms", str(PREFILL_MS), "--sim-decode-ms", str(DECODE_MS)),
        *("--sim-runner", "lean", "--max-model-len", "4096", "--max-num-seqs", "8"),
    )
    with TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if options.url:
            return int(_table(found, options.url, folder, options.speed) > 0)
        with sim_server(folder, *flags) as server:
            return int(_table(found, server.base_url, folder, options.speed) > 0)


if __name__ == "__main__":
    sys.exit(main())
