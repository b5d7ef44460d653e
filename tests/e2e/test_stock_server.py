"""vLLM's own scheduler, simulated: schedules worked out by hand, preemption, what is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from sendnn_bench import protocol
from tests.e2e.conftest import Server, start_server
from tests.e2e.wire import LIMIT_S, MS, Ask, Reply, run, session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PREFILL_NS = 100 * MS
DECODE_NS = 50 * MS
ADAPTER = "an-adapter"


@pytest.fixture(scope="module")
def stock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """At most 512 tokens and 8 requests a step, 159 KV blocks of 16 tokens: KV runs short.

    A pipeline of 2 stages with 4 ranks each, in one process.
    """
    folder = tmp_path_factory.mktemp("stock")
    (folder / ADAPTER).mkdir()
    server = start_server(
        folder / "server.log",
        *("--target", "stock"),
        *("--max-model-len", "2048"),
        *("--max-num-seqs", "8"),
        *("--max-num-batched-tokens", "512"),
        *("--num-gpu-blocks-override", "160"),
        *("--scheduling-policy", "priority"),
        *("--tensor-parallel-size", "4"),
        *("--pipeline-parallel-size", "2"),
        *("--enable-lora", "--lora-modules", f"{ADAPTER}={folder / ADAPTER}"),
        env={
            "SENDNN_INFERENCE_SIM_PREFILL_MS": "100",
            "SENDNN_INFERENCE_SIM_DECODE_MS": "50",
        },
    )
    yield server
    server.stop()


def gaps(times: list[int]) -> list[int]:
    return [after - before for before, after in itertools.pairwise(times)]


def to_ns(values_s: list[float]) -> list[int]:
    return [round(value * 1e9) for value in values_s]


@pytest.mark.parametrize(("prompt_tokens", "chunks"), [(1, 1), (512, 1), (513, 2), (1100, 3)])
def test_one_request_takes_exactly_its_chunks_and_steps(
    stock_server: Server, prompt_tokens: int, chunks: int
) -> None:
    (reply,) = run(stock_server.url, [Ask(0, prompt_tokens, 7)])
    times = reply.record["token_times_ns"]
    assert times[0] == chunks * PREFILL_NS
    assert gaps(times) == [DECODE_NS] * 6
    assert reply.record["finish_ns"] == times[-1]
    assert reply.record["num_chunked_prefills"] == chunks


def test_two_requests_mix_as_worked_out_by_hand(stock_server: Server) -> None:
    """A: 1,100 tokens from 0 ms, 5 to generate. B: 600 tokens from 30 ms, 3 to generate.

    A step has room for 512 tokens, running requests first:
    [0, 100) A 512; [100, 200) A 512; [200, 300) A's last 76 and B's first 436;
    [300, 400) A decodes, B's last 164: a step with a chunk costs 100 ms for both;
    [400, 450), [450, 500) both decode, B is done; [500, 550) A alone.
    """
    a, b = run(stock_server.url, [Ask(0, 1100, 5, token=1001), Ask(30 * MS, 600, 3, token=1002)])
    assert a.record["token_times_ns"] == [t * MS for t in (300, 400, 450, 500, 550)]
    assert b.record["token_times_ns"] == [t * MS for t in (400, 450, 500)]
    assert a.record["chunk_tokens"] == [512, 512, 76]
    assert b.record["chunk_tokens"] == [436, 164]
    assert b.record["chunk_context_tokens"] == [0, 436]
    assert b.record["chunk_prefill_start_times_s"] == [0.2, 0.3]
    assert a.record["decode_start_times_s"] == [0.3, 0.4, 0.45, 0.5]
    assert a.record["decode_latencies_s"] == [0.1, 0.05, 0.05, 0.05]
    assert a.record["batch_sizes"] == [1, 1, 2, 2, 2, 2, 1]
    assert b.record["queued_time_s"] == 0.17
    assert b.record["scheduler_steps_waited"] == 1
    assert (a.record["num_preemptions"], b.record["num_preemptions"]) == (0, 0)


def test_an_injected_length_ends_through_the_real_stop_path(stock_server: Server) -> None:
    stopped, ignored = run(
        stock_server.url,
        [
            Ask(0, 50, 100, inject=9, ignore_eos=False),
            Ask(0, 50, 12, inject=9, ignore_eos=True),
        ],
    )
    assert (stopped.finish_reason, stopped.usage["completion_tokens"]) == ("stop", 9)
    assert (ignored.finish_reason, ignored.usage["completion_tokens"]) == ("length", 12)


def test_a_shared_prefix_is_found_in_the_cache(stock_server: Server) -> None:
    load = [Ask(0, 1100, 2, token=1003), Ask(1000 * MS, 1100, 2, token=1003)]
    first, second = run(stock_server.url, load)
    assert first.record["num_chunked_prefills"] == 3
    # 68 whole blocks of 16 are there; the other 12 tokens are computed.
    assert second.record["chunk_context_tokens"] == [1088]
    assert second.record["chunk_tokens"] == [12]


def hungry_load() -> list[Ask]:
    """Four requests that fit at first, and need more blocks than there are as they grow."""
    return [Ask(n * MS, 500, 400, token=2000 + n) for n in range(4)]


def test_a_preemption_is_told_with_the_chunk_that_it_costs(stock_server: Server) -> None:
    replies = run(stock_server.url, hungry_load())
    assert [len(reply.record["token_times_ns"]) for reply in replies] == [400] * 4
    preempted = [reply.record for reply in replies if reply.record["num_preemptions"]]
    assert preempted
    untouched = [reply.record for reply in replies if not reply.record["num_preemptions"]]
    assert untouched
    for record in preempted:
        # Computing again what was thrown away takes chunks beyond the prompt's 500 tokens.
        assert sum(record["chunk_tokens"]) > 500
        assert 0 < max(record["kv_blocks_in_use"]) <= 159
    for record in untouched:
        assert sum(record["chunk_tokens"]) == 500


def crowded_load() -> list[Ask]:
    """Mixed lengths, equal arrivals, shared prefixes, more KV than there is."""
    rng = random.Random(11)
    return [
        Ask(
            arrival_ns=rng.choice([0, 0, 250, 1000, 4000]) * MS,
            prompt_tokens=rng.randint(1, 1200),
            max_tokens=rng.randint(1, 300),
            token=rng.choice([1000, 1001, 1002, 1003]),
        )
        for _ in range(24)
    ]


@pytest.fixture(scope="module")
def crowded(stock_server: Server) -> list[Reply]:
    return run(stock_server.url, crowded_load())


def test_the_crowded_load_preempts_and_shares(crowded: list[Reply]) -> None:
    assert sum(reply.record["num_preemptions"] for reply in crowded) > 0
    assert any(reply.record["chunk_context_tokens"][0] > 0 for reply in crowded)


def test_the_parts_of_a_request_sum_up_to_its_latency_to_the_nanosecond(
    crowded: list[Reply],
) -> None:
    for reply in crowded:
        record = reply.record
        starts = record["chunk_prefill_start_times_s"] + record["decode_start_times_s"]
        lasted = record["chunk_prefill_latencies_s"] + record["decode_latencies_s"]
        steps = sorted(zip(to_ns(starts), to_ns(lasted), strict=True))
        queue_ns = steps[0][0] - record["arrival_ns"]
        busy_ns = sum(duration for _, duration in steps)
        waits = [
            after - (start + lasts) for (start, lasts), (after, _) in itertools.pairwise(steps)
        ]
        assert min(waits, default=0) >= 0
        e2el_ns = record["finish_ns"] - record["arrival_ns"]
        assert queue_ns + busy_ns + sum(waits) == e2el_ns
        ends = {start + duration for start, duration in steps}
        assert set(record["token_times_ns"]) <= ends
        assert len(record["token_times_ns"]) == reply.usage["completion_tokens"]


def test_the_same_load_gives_the_same_records(stock_server: Server, crowded: list[Reply]) -> None:
    again = run(stock_server.url, crowded_load())
    assert [reply.record for reply in again] == [reply.record for reply in crowded]


def call(server: Server, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A request outside any session."""
    request = urllib.request.Request(
        server.url + path,
        json.dumps({"model": "sim-granite-8b", **body}).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def completion(server: Server, **body: Any) -> tuple[int, dict[str, Any]]:
    return call(server, "/v1/completions", {"prompt": [1000] * 20, "max_tokens": 8, **body})


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "count", "tags"],
}


def test_structured_output_is_valid_and_complete(stock_server: Server) -> None:
    status, reply = call(
        stock_server,
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 80,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "thing", "schema": SCHEMA},
            },
        },
    )
    assert status == 200
    (choice,) = reply["choices"]
    assert choice["finish_reason"] == "stop"
    assert sorted(json.loads(choice["message"]["content"])) == ["count", "name", "tags"]


@pytest.mark.parametrize(
    ("constraint", "texts"),
    [({"choice": ["red", "green"]}, ("red", "green")), ({"regex": "[0-9]{3}"}, ("000",))],
)
def test_a_constraint_leaves_only_what_it_allows(
    stock_server: Server, constraint: dict[str, Any], texts: tuple[str, ...]
) -> None:
    status, reply = completion(stock_server, structured_outputs=constraint)
    assert status == 200
    assert reply["choices"][0]["text"] in texts


def test_logprobs_are_plausible(stock_server: Server) -> None:
    status, reply = completion(stock_server, logprobs=3)
    assert status == 200
    told = reply["choices"][0]["logprobs"]
    assert len(told["token_logprobs"]) == 8
    for sampled, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
        assert len(top) == 3
        assert sampled == max(top.values())
        assert all(value < 0 for value in top.values())


def test_n_stop_strings_and_minimum_length_work(stock_server: Server) -> None:
    status, reply = completion(stock_server, n=2)
    assert (status, len(reply["choices"])) == (200, 2)
    text = reply["choices"][0]["text"]
    word = text.split()[3]
    status, reply = completion(stock_server, stop=[word])
    assert (status, reply["choices"][0]["finish_reason"]) == (200, "stop")
    assert reply["choices"][0]["text"] == text[: text.index(word)]
    status, reply = completion(
        stock_server, min_tokens=6, vllm_xargs={protocol.XARG_OUTPUT_TOKENS: 2}
    )
    assert (status, reply["usage"]["completion_tokens"]) == (200, 7)


def test_an_adapter_is_a_name(stock_server: Server) -> None:
    status, reply = completion(stock_server, model=ADAPTER)
    assert (status, reply["model"]) == (200, ADAPTER)


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"echo": True, "logprobs": 1}, "prompt_logprobs"),
        ({"bad_words": ["the"]}, "bad_words"),
    ],
)
def test_what_is_not_simulated_is_refused(
    stock_server: Server, field: dict[str, Any], named: str
) -> None:
    status, reply = completion(stock_server, **field)
    assert status == 400
    assert f"{named} is not simulated" in reply["error"]["message"]


async def _run_priorities(url: str, priorities: list[int]) -> list[dict[str, Any]]:
    async with session(url) as current:

        async def ask(seq: int) -> dict[str, Any]:
            body = {
                "model": "sim-granite-8b",
                "prompt": [3000 + seq] * 512,
                "max_tokens": 1,
                "stream": True,
                "stream_options": {"include_usage": True},
                "priority": priorities[seq],
                "vllm_xargs": {
                    protocol.XARG_SESSION: current.name,
                    protocol.XARG_SEQ: seq,
                    protocol.XARG_ARRIVAL_NS: 0,
                },
            }
            async with current.http.post(url + "/v1/completions", json=body) as response:
                events = [line[6:] for line in (await response.text()).split("\n\n")]
            usage = next(event for event in events if protocol.METRICS_KEY in event)
            return dict(json.loads(usage)[protocol.METRICS_KEY])

        tasks = [asyncio.create_task(ask(seq)) for seq in range(len(priorities))]
        await current.run_to_end(len(priorities))
        return await asyncio.gather(*tasks)


def test_priorities_order_the_queue(stock_server: Server) -> None:
    records = asyncio.run(asyncio.wait_for(_run_priorities(stock_server.url, [2, 0, 1]), LIMIT_S))
    assert [record["finish_ns"] for record in records] == [300 * MS, 100 * MS, 200 * MS]


def test_one_process_stands_for_all_ranks(stock_server: Server) -> None:
    with urllib.request.urlopen(stock_server.url + protocol.INFO_ROUTE, timeout=30) as response:
        info = json.load(response)
    assert (info["target"], info["limits"]["tensor_parallel_size"]) == ("stock", 4)
    assert info["limits"]["num_kv_blocks"] == 160
    log = stock_server.log.read_text()
    assert "Worker_TP" not in log
    # 20 of 40 layers of 199.2 M parameters, a quarter of each, a quarter of the embedding that
    # both ends of the model share, 2 bytes each, and 32 MiB of rotary embeddings.
    assert "Model weights of one simulated device: 1.98 GiB" in log
