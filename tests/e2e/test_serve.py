"""`sendnn-bench serve` against the real simulated server: what users see and what is saved.

vLLM's client is imported once, in this process; what must be seen from outside (exit codes,
signals) runs as a process of its own.
"""

from __future__ import annotations

import itertools
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sendnn_bench.errors import AllRequestsFailed, BenchError, ServerUnreachable
from sendnn_bench.metrics import METRICS, Show
from sendnn_bench.serve_command import run_serve
from tests.e2e.conftest import ENVIRONMENT, Server, free_port
from tests.e2e.process import LONG, serve_process

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Bench = Callable[..., dict[str, Any]]

VARYING = ("date",)
"""Keys of a result that tell of the run's place in real time."""


@pytest.fixture
def bench(spyre_server: Server, tmp_path: Path) -> Bench:
    """Run `serve` in this process and read its result."""

    def run(*argv: str, name: str = "result.json") -> dict[str, Any]:
        run_serve(
            [
                *("--model", "sim-granite-8b", "--base-url", spyre_server.url),
                *("--dataset-name", "random", "--disable-tqdm"),
                *("--save-result", "--save-detailed"),
                *("--result-dir", str(tmp_path), "--result-filename", name),
                *argv,
            ]
        )
        return dict(json.loads((tmp_path / name).read_text()))

    return run


@pytest.fixture
def hog() -> Iterator[None]:
    """A process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def steady(result: dict[str, Any]) -> str:
    """A result without what tells of real time, as text."""
    kept = {key: value for key, value in result.items() if key not in VARYING}
    kept["sendnn"] = {k: v for k, v in result["sendnn"].items() if k not in ("wall", "command")}
    return json.dumps(kept)


OPEN_LOOP = (
    *("--num-prompts", "120", "--request-rate", "1"),
    *("--random-input-len", "400", "--random-output-len", "30", "--random-range-ratio", "0.9"),
)
CLOSED_LOOP = (
    *("--num-prompts", "40", "--max-concurrency", "6"),
    *("--random-input-len", "400", "--random-output-len", "30", "--random-range-ratio", "0.9"),
)


@pytest.mark.parametrize("load", [OPEN_LOOP, CLOSED_LOOP], ids=["open loop", "closed loop"])
def test_a_run_repeats_to_the_last_byte(
    bench: Bench, load: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    first = bench(*load, name="1.json")
    second = bench(*load, name="2.json")
    request.getfixturevalue("hog")
    beside_a_hog = bench(*load, name="3.json")
    assert first["completed"] == first["num_prompts"]
    assert steady(first) == steady(second) == steady(beside_a_hog)


def arrival_gaps_s(result: dict[str, Any]) -> np.ndarray:
    return np.diff(np.asarray(result["spyre_arrival_ns"]) / 1e9)


def test_arrivals_follow_vllm_s_schedule(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    original = np.random.gamma

    def record(shape: float, scale: float) -> float:
        drawn.append(original(shape=shape, scale=scale))
        return drawn[-1]

    monkeypatch.setattr(np.random, "gamma", record)
    result = bench(*OPEN_LOOP, "--num-prompts", "30", "--request-rate", "4", "--burstiness", "0.5")
    starts = np.cumsum(drawn)
    starts *= 30 / 4 / starts[-1]
    assert np.asarray(result["spyre_arrival_ns"]) / 1e9 == pytest.approx(starts, abs=2e-9)


def test_doubling_the_rate_past_saturation_grows_the_queue_wait(bench: Bench) -> None:
    load = ("--num-prompts", "60", "--random-input-len", "500", "--random-output-len", "40")
    waits = [
        bench(*load, "--request-rate", str(rate))["spyre_mean_queued_time_ms"] for rate in (2, 4, 8)
    ]
    assert waits[0] < waits[1] < waits[2]


def test_a_ramp_up_shortens_the_gaps(bench: Bench) -> None:
    result = bench(
        *("--num-prompts", "60", "--random-input-len", "50", "--random-output-len", "2"),
        *("--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "20"),
    )
    gaps = arrival_gaps_s(result)
    assert gaps[:15].mean() > 3 * gaps[-15:].mean()


def test_max_concurrency_holds(bench: Bench) -> None:
    result = bench(*CLOSED_LOOP, "--max-concurrency", "3")
    arrivals = np.asarray(result["spyre_arrival_ns"])
    finishes = np.asarray(result["spyre_finish_ns"])
    running = [int(((arrivals <= t) & (finishes > t)).sum()) for t in arrivals]
    assert max(running) == 3
    assert sorted(arrivals)[3:] == sorted(finishes)[:-3], "each end starts the next request"


def test_vllm_s_columns_agree_with_the_server_s_times(bench: Bench) -> None:
    result = bench(*OPEN_LOOP, "--num-prompts", "20")
    for row, arrival_ns in enumerate(result["spyre_arrival_ns"]):
        tokens_ns = result["spyre_token_times_ns"][row]
        assert result["start_times"][row] == arrival_ns / 1e9
        assert result["ttfts"][row] == (tokens_ns[0] - arrival_ns) / 1e9
        assert result["itls"][row] == [(b - a) / 1e9 for a, b in itertools.pairwise(tokens_ns)]
        assert len(tokens_ns) == result["output_lens"][row]


def test_warm_ups_and_the_ready_check_are_left_out(bench: Bench) -> None:
    load = ("--num-prompts", "5", "--random-input-len", "50", "--random-output-len", "4")
    result = bench(*load, "--num-warmups", "3", "--ready-check-timeout-sec", "20")
    assert len(result["spyre_arrival_ns"]) == len(result["start_times"]) == 5
    assert result["sendnn"]["session"]["requests"] == 9
    assert min(result["spyre_arrival_ns"]) > 0


def test_percentiles_and_goodput_as_asked_for(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    result = bench(
        *CLOSED_LOOP,
        *("--metric-percentiles", "50,99.9,100", "--percentile-metrics", "ttft,e2el"),
        *("--goodput", "ttft:400", "e2el:100000"),
    )
    out = capfd.readouterr().out
    assert "P99.9 TTFT (ms):" in out
    assert "P100 Queue Wait Time (ms):" in out
    assert "TPOT" not in out
    assert result["p100_e2el_ms"] == pytest.approx(
        max(
            (finish - arrival) / 1e6
            for finish, arrival in zip(
                result["spyre_finish_ns"], result["spyre_arrival_ns"], strict=True
            )
        )
    )
    assert 0 < result["request_goodput"] < result["request_throughput"]


def test_every_metric_with_data_is_printed_and_saved(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    result = bench(*CLOSED_LOOP)
    out = capfd.readouterr().out
    assert out.index("Serving Benchmark Result") < out.index("SenDNN Metrics")
    for metric in METRICS:
        assert len(result[metric.column]) == 40
        if metric.show is Show.SECTION and metric.key != "pause_latencies_s":
            assert f"Mean {metric.printed_label}:" in out
        if metric.total_title:
            assert f"{metric.total_title}:" in out
            assert metric.total_key in result


@pytest.mark.parametrize("endpoint", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("backend", ["spyre-chat", "by vLLM"])
def test_both_endpoints_and_vllm_s_own_backends(bench: Bench, endpoint: str, backend: str) -> None:
    if backend == "by vLLM":
        backend = "openai-chat" if "chat" in endpoint else "openai"
    load = ("--num-prompts", "4", "--random-input-len", "50", "--random-output-len", "5")
    result = bench(*load, "--endpoint", endpoint, "--backend", backend)
    assert result["backend"] == backend
    assert result["completed"] == 4
    assert result["output_lens"] == [5] * 4
    assert all(len(times) == 5 for times in result["spyre_token_times_ns"])


def test_injected_lengths_come_from_the_data_set(bench: Bench, tmp_path: Path) -> None:
    lengths = [3, 11, 7]
    lines = [{"prompt": "tell me a story", "output_tokens": n} for n in lengths]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    result = bench(
        *("--dataset-name", "custom", "--dataset-path", str(data), "--custom-output-len", "-1"),
        *("--num-prompts", "3", "--disable-shuffle", "--skip-chat-template"),
    )
    assert result["output_lens"] == lengths
    assert result["spyre_injected_output_tokens"] == lengths
    assert result["spyre_injected_output_source"] == ["dataset"] * 3


@pytest.mark.fault(
    section="requests",
    fault="too long a prompt among others",
    what="it alone fails",
)
def test_a_prompt_longer_than_the_context_fails_alone(bench: Bench, tmp_path: Path) -> None:
    lines = [{"prompt": "a story " * n, "output_tokens": 4} for n in (10, 3000, 20)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    result = bench(
        *("--dataset-name", "custom", "--dataset-path", str(data), "--custom-output-len", "-1"),
        *("--num-prompts", "3", "--disable-shuffle", "--skip-chat-template"),
        *("--max-concurrency", "1"),
    )
    assert (result["completed"], result["failed"]) == (2, 1)
    assert [bool(error) for error in result["errors"]] == [False, True, False]
    assert "4096" in result["errors"][1]
    assert result["spyre_queued_time_s"][1] is None


@pytest.mark.fault(
    section="client",
    fault="another model than the served one",
    what="every request fails, which is told by kind",
    exit_code=4,
)
def test_a_wrong_model_name_fails_all_requests(bench: Bench) -> None:
    with pytest.raises(AllRequestsFailed, match="does not exist"):
        bench("--served-model-name", "nobody", "--num-prompts", "3")


@pytest.mark.fault(
    section="client",
    fault="no server",
    what="told at once, unless `--ready-check-timeout-sec` says to wait",
    exit_code=3,
)
def test_a_server_that_is_not_there(bench: Bench) -> None:
    began = time.monotonic()
    with pytest.raises(ServerUnreachable, match="no server answers"):
        bench("--base-url", f"http://127.0.0.1:{free_port()}")
    assert time.monotonic() - began < 10


@pytest.mark.fault(
    section="client",
    fault="two clients at once",
    what="the second is told that another holds the session",
    exit_code=6,
)
def test_two_clients_at_once(bench: Bench, spyre_server: Server) -> None:
    import asyncio

    from tests.e2e.wire import session

    async def hold() -> None:
        async with session(spyre_server.url):
            with pytest.raises(BenchError, match="another client"):
                await asyncio.to_thread(bench, "--num-prompts", "2")

    asyncio.run(hold())


@pytest.mark.fault(
    section="client",
    fault="Ctrl-C",
    what="what was measured is in `*.partial.json`",
    exit_code=130,
)
def test_ctrl_c_keeps_what_was_measured(spyre_server: Server, tmp_path: Path) -> None:
    process = serve_process(spyre_server, tmp_path, *LONG)
    process.read_until("Maximum request concurrency")
    time.sleep(5)  # long enough for some requests to end, on any machine
    process.send_signal(signal.SIGINT)
    out = process.wait(60)
    assert process.returncode == 130, out
    partial = json.loads((tmp_path / "r.partial.json").read_text())
    assert partial["sendnn"]["partial"] is True
    assert len(partial["spyre_finish_ns"]) > 0
    assert not (tmp_path / "r.json").exists()


def test_vllm_s_sweep_runs_our_command(spyre_server: Server, tmp_path: Path) -> None:
    """The sweep starts a server of its own; here that is a process that only stays alive."""
    bench_params = tmp_path / "bench.json"
    bench_params.write_text(json.dumps([{"_benchmark_name": "c2", "max_concurrency": 2}]))
    address = ("--host", "127.0.0.1", "--port", str(spyre_server.port))
    bench_cmd = [sys.executable, "-m", "sendnn_bench", "serve", "--model", "sim-granite-8b"]
    bench_cmd += [*address, "--dataset-name", "random"]
    bench_cmd += ["--num-prompts", "4", "--random-output-len", "4"]
    command = [str(Path(sys.executable).with_name("vllm")), "bench", "sweep", "serve"]
    command += ["--serve-cmd", shlex.join(["sh", "-c", "sleep 600", "stand-in", *address])]
    command += ["--bench-cmd", shlex.join(bench_cmd), "--after-bench-cmd", "true"]
    command += ["--num-runs", "1", "--bench-params", str(bench_params)]
    command += ["-o", str(tmp_path / "sweep")]
    done = subprocess.run(
        command,
        env=ENVIRONMENT | {"VLLM_PLUGINS": ""},
        timeout=240,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (run,) = (tmp_path / "sweep").rglob("run=0.json")
    assert json.loads(run.read_text())["completed"] == 4
