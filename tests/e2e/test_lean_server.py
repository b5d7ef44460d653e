"""The lean runner gives what upstream's full runner gives; and what happens to a run when one of
the processes dies. The last test kills this module's server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import PLAIN_VLLM, SPYRE_ARGS, SPYRE_ENV, Server, start_server
from tests.e2e.process import LONG, serve_process
from tests.e2e.wire import LIMIT_S, MS, Ask, run, session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def lean_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Plain `vllm serve`: everything that the launcher would set is exported here."""
    log = tmp_path_factory.mktemp("lean") / "server.log"
    exported = {
        "SENDNN_INFERENCE_SIM_MODE": "1",
        "SENDNN_INFERENCE_SIM_RUNNER": "lean",
        "HF_HUB_OFFLINE": "1",
    }
    server = start_server(log, *SPYRE_ARGS, env=SPYRE_ENV | exported, command=PLAIN_VLLM)
    yield server
    server.stop()


def random_load(seed: int) -> list[Ask]:
    """Mixed lengths, bursts, shared prefixes, injected lengths; long enough to pause."""
    rng = random.Random(seed)
    return [
        Ask(
            arrival_ns=rng.randint(0, 40) * 100 * MS,
            prompt_tokens=rng.choice([1, 63, 64, 65, 511, 512, 513, rng.randint(1, 1900)]),
            max_tokens=rng.randint(1, 250),
            inject=rng.choice([None, rng.randint(1, 200)]),
            ignore_eos=rng.random() < 0.5,
            token=1000 + rng.randint(0, 3),
        )
        for _ in range(20)
    ]


def outcome(replies: list[Any]) -> list[Any]:
    return [(reply.record, reply.usage, reply.finish_reason) for reply in replies]


@pytest.mark.parametrize("seed", range(4))
def test_lean_and_full_runs_are_the_same(
    spyre_server: Server, lean_server: Server, seed: int
) -> None:
    full = run(spyre_server.url, random_load(seed))
    lean = run(lean_server.url, random_load(seed))
    assert outcome(lean) == outcome(full)


def test_the_random_loads_pause_hit_the_cache_and_stop_early(lean_server: Server) -> None:
    records = [
        reply.record for seed in range(4) for reply in run(lean_server.url, random_load(seed))
    ]
    assert sum(len(record["pause_latencies_s"]) for record in records) > 0
    assert any(record["prefix_cache_hit_pct"] > 0 for record in records)
    assert any(
        record["injected_output_tokens"] == len(record["token_times_ns"]) for record in records
    )


async def run_with_abort(server: Server, asks: list[Ask], aborted: int) -> list[Any]:
    """Run a load of which one request is aborted before time begins."""
    async with session(server.url) as current:
        tasks = [asyncio.create_task(current.ask(seq, ask)) for seq, ask in enumerate(asks)]
        await until_in_flight(current.http, server, len(asks))
        tasks.pop(aborted).cancel()
        await until_in_flight(current.http, server, len(asks) - 1)
        await current.run_to_end(len(asks))
        return [reply.record for reply in await asyncio.gather(*tasks)]


async def until_in_flight(http: aiohttp.ClientSession, server: Server, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        async with http.get(server.url + "/sim/status") as response:
            if len((await response.json())["requests"]) == count:
                return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {count} requests in flight")


@pytest.mark.fault(
    section="requests",
    fault="given up by the client before a run",
    what="that run's times do not change",
)
def test_an_aborted_request_leaves_the_same_run_behind(
    spyre_server: Server, lean_server: Server
) -> None:
    asks = random_load(9)
    full = asyncio.run(run_with_abort(spyre_server, asks, aborted=3))
    lean = asyncio.run(run_with_abort(lean_server, asks, aborted=3))
    assert len(full) == len(asks) - 1
    assert lean == full


@pytest.mark.parametrize(
    "field", [{"logprobs": 3}, {"logit_bias": {"5": 1.0}}, {"structured_outputs": {"regex": "a+"}}]
)
def test_what_needs_logits_is_refused(lean_server: Server, field: dict[str, Any]) -> None:
    async def scenario() -> tuple[int, str]:
        body = {"model": "sim-granite-8b", "prompt": "a", "max_tokens": 2, **field}
        async with (
            aiohttp.ClientSession() as http,
            http.post(lean_server.url + "/v1/completions", json=body) as response,
        ):
            return response.status, await response.text()

    status, text = asyncio.run(scenario())
    assert status == 400
    assert "--sim-runner full" in text


async def until_free(server: Server) -> None:
    deadline = time.monotonic() + 30
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < deadline:
            async with http.get(server.url + "/sim/status") as response:
                if (await response.json())["session"] is None:
                    return
            await asyncio.sleep(0.2)
    raise AssertionError("the session never ended")


@pytest.mark.fault(
    section="client",
    fault="client killed (-9) in mid-run",
    what=(
        "its session ends after `SENDNN_INFERENCE_SIM_SESSION_EXPIRY_S` of silence; the "
        "next run is exact"
    ),
)
def test_a_killed_client_leaves_the_server_usable(lean_server: Server, tmp_path: Path) -> None:
    """The session of a client that died ends after 5 s of silence on this server."""
    process = serve_process(lean_server, tmp_path, *LONG)
    process.read_until("Maximum request concurrency")
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    asyncio.run(until_free(lean_server))
    (reply,) = run(lean_server.url, [Ask(0, 100, 3)])
    assert reply.record["token_times_ns"] == [100 * MS, 150 * MS, 200 * MS]


@pytest.mark.fault(
    section="client",
    fault="server killed",
    what="what was measured is in `*.partial.json`",
    exit_code=3,
)
def test_a_killed_server_ends_the_run_with_what_was_measured(
    lean_server: Server, tmp_path: Path
) -> None:
    process = serve_process(lean_server, tmp_path, *LONG)
    process.read_until("Maximum request concurrency")
    time.sleep(4)  # long enough for some requests to end, on any machine
    os.kill(lean_server.process.pid, signal.SIGKILL)
    began = time.monotonic()
    out = process.wait(60)
    assert time.monotonic() - began < 20
    assert process.returncode == 3, out
    assert "server" in out.splitlines()[-2] + out.splitlines()[-1]
    partial = json.loads((tmp_path / "r.partial.json").read_text())
    assert partial["sendnn"]["partial"] is True
    assert len(partial["spyre_finish_ns"]) > 0
