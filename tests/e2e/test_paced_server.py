"""A paced server: any client sees the virtual run in real time, divided by the speed."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from benchmarks import clients
from sendnn_bench.serve_command import run_serve
from tests.e2e.conftest import SPYRE_ARGS, SPYRE_ENV, Server, start_server
from tests.e2e.wire import Ask, post, run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SPEED = 2
PROMPT_TOKENS = 600
OUTPUT_TOKENS = 40


@pytest.fixture(scope="module")
def paced_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("paced") / "server.log"
    flags = ("--sim-clock", "paced", "--sim-speed", str(SPEED), "--sim-runner", "lean")
    server = start_server(log, *SPYRE_ARGS, *flags, env=SPYRE_ENV)
    yield server
    server.stop()


def test_a_stream_comes_token_by_token_at_the_paced_times(paced_server: Server) -> None:
    """Two chunks of 100 ms and 39 decode steps of 50 ms at twice the speed: 1.075 s."""
    client = openai.OpenAI(base_url=paced_server.url + "/v1", api_key="none")
    began = time.perf_counter()
    stream = client.completions.create(
        model="sim-granite-8b",
        prompt=[1000] * PROMPT_TOKENS,
        max_tokens=OUTPUT_TOKENS,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    times = [time.perf_counter() - began for event in stream if event.choices]
    assert len(times) == OUTPUT_TOKENS
    assert times[0] >= 0.1, "the first request of a server takes longer, by what it sets up"
    assert times[-1] - times[0] == pytest.approx(39 * 0.025, rel=0.1)
    gaps = sorted(after - before for before, after in itertools.pairwise(times))
    assert gaps[len(gaps) // 2] == pytest.approx(0.025, rel=0.2)


def test_the_server_s_record_of_a_paced_run_is_that_of_a_virtual_one(
    paced_server: Server, spyre_server: Server
) -> None:
    """One request: nothing depends on when another one arrives."""

    async def alone() -> dict[str, Any]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as http:
            ask = Ask(0, PROMPT_TOKENS, OUTPUT_TOKENS, token=1001)
            return (await post(http, paced_server.url, ask)).record

    paced = asyncio.run(alone())
    (virtual,) = run(spyre_server.url, [Ask(0, PROMPT_TOKENS, OUTPUT_TOKENS, token=1001)])
    start_ns = paced["first_scheduled_ns"]
    assert [t - start_ns for t in paced["token_times_ns"]] == virtual.record["token_times_ns"]
    for key in ("chunk_prefill_latencies_s", "decode_latencies_s", "tkvs", "chunk_tokens"):
        assert paced[key] == virtual.record[key]


def test_our_client_measures_a_paced_server_in_real_time(
    paced_server: Server, tmp_path: Path
) -> None:
    run_serve(
        [
            *("--model", "sim-granite-8b", "--base-url", paced_server.url),
            *("--dataset-name", "random", "--random-input-len", "100"),
            *("--random-output-len", "20", "--num-prompts", "4", "--max-concurrency", "1"),
            *("--disable-tqdm", "--save-result", "--save-detailed", "--percentile-metrics"),
            *("ttft,itl,e2el", "--result-dir", str(tmp_path), "--result-filename", "p.json"),
        ]
    )
    result = json.loads((tmp_path / "p.json").read_text())
    assert result["sendnn"]["mode"] == "paced"
    assert result["median_itl_ms"] == pytest.approx(50 / SPEED, rel=0.1)
    assert result["mean_e2el_ms"] == pytest.approx((100 + 19 * 50) / SPEED, rel=0.1)
    assert result["spyre_mean_decode_latencies_ms"] == 50
    assert result["sendnn"]["wall"]["pace"]["steps"] >= 4 * 20


def programs() -> list[clients.Client]:
    return [
        client
        for client in clients.clients(guidellm=None, aiperf=None)
        if client.name in ("curl", "`vllm bench serve`")
    ]


@pytest.mark.parametrize("client", programs(), ids=lambda client: client.name.strip("`"))
def test_programs_that_know_nothing_of_simulation(
    paced_server: Server, tmp_path: Path, client: clients.Client
) -> None:
    """No slow machine makes a paced step shorter than its cost."""
    figures = clients.measure(client, paced_server.url, tmp_path / "run")
    assert isinstance(figures, clients.Figures), figures
    assert figures.requests == clients.REQUESTS
    assert figures.e2el_ms is not None
    assert figures.e2el_ms * SPEED >= 100 + (clients.OUTPUT_TOKENS - 1) * 50


def test_the_server_tells_how_it_keeps_its_pace(paced_server: Server) -> None:
    async def status() -> dict[str, Any]:
        async with aiohttp.ClientSession() as http:
            await post(http, paced_server.url, Ask(0, 10, 5))
            async with http.get(paced_server.url + "/sim/status") as response:
                return dict(await response.json())

    pace = asyncio.run(status())["pace"]
    assert pace["speed"] == SPEED
    assert pace["steps"] >= 5
    assert 0 <= pace["late_steps"] <= pace["steps"]
    assert pace["late_worst_ms"] >= 0
