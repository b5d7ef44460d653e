"""The simulated Spyre server alone, over its wire: exactness, parity with upstream, sessions."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from sendnn_bench import protocol
from tests.e2e.conftest import Server
from tests.e2e.wire import MS, Ask, Reply, post, run, session

pytestmark = pytest.mark.e2e

PREFILL_NS = 100 * MS
DECODE_NS = 50 * MS


def gaps(times: list[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise(times)]


@pytest.mark.parametrize(("prompt_tokens", "chunks"), [(1, 1), (512, 1), (513, 2), (1100, 3)])
def test_one_request_takes_exactly_its_chunks_and_steps(
    spyre_server: Server, prompt_tokens: int, chunks: int
) -> None:
    (reply,) = run(spyre_server.url, [Ask(0, prompt_tokens, 7)])
    times = reply.record["token_times_ns"]
    assert times[0] == chunks * PREFILL_NS
    assert gaps(times) == [DECODE_NS] * 6
    assert reply.record["finish_ns"] == times[-1]
    assert reply.record["num_chunked_prefills"] == chunks


def test_two_requests_interleave_as_worked_out_by_hand(spyre_server: Server) -> None:
    """A: 1,100 tokens, 3 chunks, from 0 ms. B: 600 tokens, 2 chunks, from 30 ms.

    A's chunks run [0, 300). While a request decodes, two prefill steps never follow each other, so
    a decode step [300, 350) of A comes first, then B's chunk [350, 450), a decode step [450, 500)
    of A, B's last chunk [500, 600), and from there both decode together.
    """
    a, b = run(spyre_server.url, [Ask(0, 1100, 5, token=1001), Ask(30 * MS, 600, 3, token=1002)])
    assert a.record["token_times_ns"] == [t * MS for t in (300, 350, 500, 650, 700)]
    assert b.record["token_times_ns"] == [t * MS for t in (600, 650, 700)]
    assert b.record["queued_time_s"] == 0.32
    assert b.record["chunk_prefill_start_times_s"] == [0.35, 0.5]
    assert b.record["prefill_idle_s"] == 0.05
    assert b.record["scheduler_steps_waited"] == 3


def test_an_arrival_while_idle_waits_nothing(spyre_server: Server) -> None:
    first, second = run(spyre_server.url, [Ask(0, 100, 5), Ask(10_000 * MS, 100, 2, token=1003)])
    assert first.record["finish_ns"] == 300 * MS
    assert second.record["queued_time_s"] == 0
    assert second.record["first_scheduled_ns"] == 10_000 * MS
    assert second.record["token_times_ns"] == [10_100 * MS, 10_150 * MS]


def test_an_injected_length_ends_through_the_real_stop_path(spyre_server: Server) -> None:
    stopped, ignored, longer = run(
        spyre_server.url,
        [
            Ask(0, 50, 100, inject=9, ignore_eos=False),
            Ask(0, 50, 12, inject=9, ignore_eos=True),
            Ask(0, 50, 6, inject=9, ignore_eos=False),
        ],
    )
    assert (stopped.finish_reason, stopped.usage["completion_tokens"]) == ("stop", 9)
    assert (ignored.finish_reason, ignored.usage["completion_tokens"]) == ("length", 12)
    assert (longer.finish_reason, longer.usage["completion_tokens"]) == ("length", 6)
    assert stopped.record["injected_output_tokens"] == 9
    assert stopped.record["injected_output_source"] == "test"


def crowded_load() -> list[Ask]:
    """Mixed lengths, equal arrivals, shared prefixes: pauses and KV shortage included."""
    rng = random.Random(7)
    hungry = [Ask(300 * MS, 1500, 1700, token=2000 + n) for n in range(3)]
    return hungry + [
        Ask(
            arrival_ns=rng.choice([0, 0, 250, 1000, 4000]) * MS,
            prompt_tokens=rng.randint(1, 1800),
            max_tokens=rng.randint(1, 300),
            token=rng.choice([1000, 1001, 1002, 1003]),
        )
        for _ in range(24)
    ]


@pytest.fixture(scope="module")
def crowded(spyre_server: Server) -> list[Reply]:
    return run(spyre_server.url, crowded_load())


def test_the_crowded_load_pauses_and_lacks_blocks(crowded: list[Reply]) -> None:
    assert sum(len(reply.record["pause_latencies_s"]) for reply in crowded) > 0
    assert any(reply.record["was_missing_blocks"] for reply in crowded)
    assert any(reply.record["prefix_cache_hit_pct"] > 0 for reply in crowded)


UPSTREAM_FIELDS = (
    "queued_time_s",
    "num_chunked_prefills",
    "chunk_prefill_latencies_s",
    "chunk_prefill_start_times_s",
    "decode_latencies_s",
    "decode_start_times_s",
    "tkvs",
    "prefill_elapsed_s",
    "prefill_busy_s",
    "prefill_idle_s",
    "prefix_cache_hit_pct",
    "left_padding_blocks",
    "pause_latencies_s",
    "pause_start_times_s",
    "was_missing_blocks",
)
ABSOLUTE_TIMES = {
    "chunk_prefill_start_times_s",
    "decode_start_times_s",
    "pause_start_times_s",
}
UPSTREAM_EPOCH_S = 1.0
"""Upstream sees virtual time 0 as second 1; only its absolute times show that."""


@pytest.mark.parametrize("field", UPSTREAM_FIELDS)
def test_our_recorder_agrees_with_upstream_s_own_computation(
    crowded: list[Reply], field: str
) -> None:
    shift = UPSTREAM_EPOCH_S if field in ABSOLUTE_TIMES else 0
    for reply in crowded:
        theirs = reply.upstream[field]
        if isinstance(theirs, list):
            theirs = [value - shift for value in theirs]
        assert reply.record[field] == pytest.approx(theirs, abs=1e-9), reply.record


def test_upstream_sends_no_field_that_we_do_not(crowded: list[Reply]) -> None:
    assert set(crowded[0].upstream) == set(UPSTREAM_FIELDS)


def test_the_parts_of_a_request_sum_up_to_its_latency_to_the_nanosecond(
    crowded: list[Reply],
) -> None:
    for reply in crowded:
        record = reply.record
        chunks = list(
            zip(
                to_ns(record["chunk_prefill_start_times_s"]),
                to_ns(record["chunk_prefill_latencies_s"]),
                strict=True,
            )
        )
        steps = list(
            zip(
                to_ns(record["decode_start_times_s"]),
                to_ns(record["decode_latencies_s"]),
                strict=True,
            )
        )
        queue_ns = chunks[0][0] - record["arrival_ns"]
        prefill_ns = chunks[-1][0] + chunks[-1][1] - chunks[0][0]
        decode_ns = sum(duration for _, duration in steps)
        ends = [start + duration for start, duration in [chunks[-1], *steps]]
        waits_ns = sum(start - end for (start, _), end in zip(steps, ends, strict=False))
        assert (
            min([start - end for (start, _), end in zip(steps, ends, strict=False)], default=0) >= 0
        )
        e2el_ns = record["finish_ns"] - record["arrival_ns"]
        assert queue_ns + prefill_ns + decode_ns + waits_ns == e2el_ns
        assert record["token_times_ns"] == ends
        assert to_ns([record["queued_time_s"]]) == [queue_ns]


def to_ns(values_s: list[float]) -> list[int]:
    return [round(value * 1e9) for value in values_s]


def test_the_same_load_gives_the_same_records(spyre_server: Server, crowded: list[Reply]) -> None:
    again = run(spyre_server.url, crowded_load())
    assert [reply.record for reply in again] == [reply.record for reply in crowded]


def test_a_warm_session_finds_the_prefix_cache(spyre_server: Server) -> None:
    load = [Ask(0, 1100, 2, token=1500)]
    (cold,) = run(spyre_server.url, load)
    (again,) = run(spyre_server.url, load)
    (warm,) = run(spyre_server.url, load, warm=True)
    assert cold.record["num_chunked_prefills"] == again.record["num_chunked_prefills"] == 3
    assert warm.record["num_chunked_prefills"] == 1


def test_a_rejected_request_does_not_hold_the_run(spyre_server: Server) -> None:
    async def scenario() -> tuple[list[dict[str, object]], Reply, Reply]:
        async with session(spyre_server.url) as current:
            good = asyncio.create_task(current.ask(0, Ask(0, 100, 3)))
            refused = await current.ask(1, Ask(0, 5000, 3))
            grant = asyncio.create_task(current.advance(None, 2))
            async with current.http.post(current.path + "/settle", json={"seq": 1}) as response:
                assert response.status == 200
            answers = [await grant, *await current.run_to_end(2)]
            return answers, await good, refused

    answers, good, refused = asyncio.run(scenario())
    assert refused.status == 400
    assert answers[0] == {
        "now_ns": 0,
        "reason": "rejected",
        "finished": [1],
        "finished_ns": [0],
        "failure": None,
    }
    assert answers[1] == {
        "now_ns": 200 * MS,
        "reason": "finished",
        "finished": [0],
        "finished_ns": [200 * MS],
        "failure": None,
    }
    assert good.record["finish_ns"] == 200 * MS


def test_only_one_session_at_a_time(spyre_server: Server) -> None:
    async def scenario() -> tuple[int, str]:
        async with session(spyre_server.url) as current:
            body = {"protocol": protocol.PROTOCOL_VERSION}
            async with current.http.post(
                spyre_server.url + protocol.SESSION_ROUTE, json=body
            ) as response:
                return response.status, (await response.json())["error"]["message"]

    status, detail = asyncio.run(scenario())
    assert status == 409
    assert "another client" in detail


def test_a_silent_client_s_session_expires(spyre_server: Server) -> None:
    """The fixture's server ends a session after 5 s of silence."""

    async def scenario() -> tuple[int, int]:
        async with aiohttp.ClientSession() as http:
            route = spyre_server.url + protocol.SESSION_ROUTE
            body = {"protocol": protocol.PROTOCOL_VERSION}
            async with http.post(route, json=body) as response:
                name = (await response.json())["session"]
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                async with http.post(route, json=body) as response:
                    if response.status == 200:
                        second = (await response.json())["session"]
                        break
                await asyncio.sleep(0.5)
            async with http.post(f"{route}/{name}/settle", json={"seq": 0}) as response:
                stale = response.status
            async with http.delete(f"{route}/{second}") as response:
                return stale, response.status

    assert asyncio.run(scenario()) == (410, 200)


def test_a_request_of_no_session_is_served_at_once(spyre_server: Server) -> None:
    async def scenario() -> Reply:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            return await post(http, spyre_server.url, Ask(0, 100, 4))

    reply = asyncio.run(scenario())
    assert reply.usage["completion_tokens"] == 4
    assert len(reply.record["token_times_ns"]) == 4
    assert "without a simulation session" in spyre_server.log.read_text()


def test_an_answer_that_is_not_streamed_carries_the_record_too(spyre_server: Server) -> None:
    async def scenario() -> dict[str, Any]:
        body = {"model": "sim-granite-8b", "prompt": "a b c", "max_tokens": 3, "ignore_eos": True}
        async with (
            aiohttp.ClientSession() as http,
            http.post(spyre_server.url + "/v1/completions", json=body) as response,
        ):
            return dict(await response.json())

    answer = asyncio.run(scenario())
    assert len(answer[protocol.METRICS_KEY]["token_times_ns"]) == 3
    assert answer["kv_transfer_params"] is None


@pytest.mark.fault(
    section="requests",
    fault="session unknown or expired",
    what="400",
)
def test_a_request_of_a_session_that_is_gone_gets_a_clear_400(spyre_server: Server) -> None:
    async def scenario() -> Reply:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            xargs = {
                protocol.XARG_SESSION: "gone",
                protocol.XARG_SEQ: 0,
                protocol.XARG_ARRIVAL_NS: 0,
            }
            return await post(http, spyre_server.url, Ask(0, 100, 4), xargs)

    reply = asyncio.run(scenario())
    assert reply.status == 400
    assert "is not open" in reply.text


def test_the_metrics_file_has_one_line_a_request(spyre_server: Server) -> None:
    path = spyre_server.log.with_suffix(".jsonl")
    before = len(path.read_text().splitlines()) if path.exists() else 0
    run(spyre_server.url, [Ask(0, 600, 3), Ask(0, 20, 1)])
    lines = [json.loads(line) for line in path.read_text().splitlines()[before:]]
    assert [line["num_generation_tokens"] for line in lines] == [1, 3] or [
        line["num_generation_tokens"] for line in lines
    ] == [3, 1]
    by_tokens = {line["num_generation_tokens"]: line for line in lines}
    assert (
        by_tokens[3]["e2e_latency_seconds"]
        == by_tokens[3]["queued_time_seconds"] + (by_tokens[3]["inference_time_seconds"])
    )
    assert by_tokens[3]["finish_reason"] == "length"


async def vllm_sums(url: str) -> dict[str, float]:
    """Sums of vLLM's own latency histograms, in seconds."""
    async with aiohttp.ClientSession() as http, http.get(url + "/metrics") as response:
        text = await response.text()
    lines = [line for line in text.splitlines() if line.startswith("vllm:") and "_sum{" in line]
    return {line.split("_sum{")[0].removeprefix("vllm:"): float(line.split()[-1]) for line in lines}


def test_vllm_s_own_metrics_tell_virtual_time(spyre_server: Server) -> None:
    before = asyncio.run(vllm_sums(spyre_server.url))
    replies = run(spyre_server.url, [Ask(0, 1100, 5, token=1001), Ask(30 * MS, 600, 3, token=1002)])
    after = asyncio.run(vllm_sums(spyre_server.url))
    records = [reply.record for reply in replies]

    def total(value: Callable[[dict[str, Any]], int]) -> float:
        return sum(value(record) for record in records) / 1e9

    expected = {
        "time_to_first_token_seconds": total(lambda r: r["token_times_ns"][0] - r["arrival_ns"]),
        "e2e_request_latency_seconds": total(lambda r: r["finish_ns"] - r["arrival_ns"]),
        "inter_token_latency_seconds": total(
            lambda r: r["token_times_ns"][-1] - r["token_times_ns"][0]
        ),
        "request_decode_time_seconds": total(
            lambda r: r["token_times_ns"][-1] - r["token_times_ns"][0]
        ),
        "request_prefill_time_seconds": total(
            lambda r: r["token_times_ns"][0] - r["first_scheduled_ns"]
        ),
    }
    measured = {name: after[name] - before[name] for name in expected}
    assert measured == pytest.approx(expected, abs=1e-6)
