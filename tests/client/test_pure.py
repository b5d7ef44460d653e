"""The client's parts that need neither vLLM nor a server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench import provenance, save
from sendnn_bench.bridge import early, options
from sendnn_bench.bridge.backend import length_xargs, put_virtual_times
from sendnn_bench.bridge.hooks import Hook, applied, replaced_items
from sendnn_bench.bridge.http import Server, ask_info, message_of, parse_info
from sendnn_bench.bridge.sse import EventReader
from sendnn_bench.bridge.virtual_time import (
    StandIn,
    VirtualClock,
    asyncio_stand_in,
    settle,
    time_stand_in,
)
from sendnn_bench.errors import BenchError, ServerUnreachable, SimError, UsageError
from sendnn_bench.metrics import METRICS, Show
from sendnn_bench.protocol import PROTOCOL_VERSION, Pace
from sendnn_bench.report import console, findings

RECORD = {"queued_time_s": 0.25, "decode_latencies_s": [0.05], "text": "a\n\nb é"}
STREAM = (
    b": ping\n\n"
    b'data: {"choices":[{"text":"hi"}]}\n\n'
    b'data: {"choices":[],"usage":{},"spyre_metrics":' + json.dumps(RECORD).encode() + b"}\n\n"
    b"data: [DONE]\n\n"
)


# Server-sent events


@given(st.lists(st.integers(1, len(STREAM)), max_size=8))
def test_record_is_read_however_the_stream_is_cut(cuts: list[int]) -> None:
    reader, passed, begin = EventReader(), b"", 0
    for cut in [*sorted(cuts), len(STREAM)]:
        whole = reader.feed(STREAM[begin:cut])
        assert whole == b"" or whole.endswith(b"\n\n")
        passed, begin = passed + whole, cut
    assert passed + reader.end() == STREAM
    assert reader.record == RECORD
    assert reader.error == ""


def test_stream_without_an_end_is_passed_on_whole() -> None:
    reader = EventReader()
    assert reader.feed(b'data: {"error": {"message": "bro') == b""
    assert reader.feed(b'ken"}}') == b""
    assert reader.end() == b'data: {"error": {"message": "broken"}}'
    assert reader.error == "broken"


def test_text_that_speaks_of_errors_is_no_error() -> None:
    reader = EventReader()
    reader.feed(b'data: {"choices":[{"text":"\\"error\\" \\"spyre_metrics\\""}]}\n\n')
    reader.feed(b'data: {"choices":[{"text":"x"}], "error": null}\n\n')
    reader.feed(b'data: "error"\n\ndata: {"error" broken\n\n')
    assert (reader.record, reader.error) == (None, "")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "too long", "code": 400}}', "too long"),
        ('{"error": "too long"}', "too long"),
        ('{"message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('{"detail": [{"loc": ["body"]}]}', '[{"loc": ["body"]}]'),
        ("  gateway down\n", "gateway down"),
        ("", ""),
    ],
)
def test_message_of(body: str, message: str) -> None:
    assert message_of(body) == message


# Virtual time


def test_timers_fire_in_order_of_time_then_of_creation() -> None:
    async def scenario() -> list[tuple[str, float]]:
        clock, fired = VirtualClock(), []

        async def sleeper(name: str, delay: float) -> None:
            await clock.sleep(delay)
            fired.append((name, clock.seconds()))

        tasks = [
            asyncio.create_task(sleeper(name, delay))
            for name, delay in (("late", 0.3), ("b", 0.2), ("a", 0.1), ("c", 0.2), ("now", 0))
        ]
        await settle()
        while clock.next_timer_ns() is not None:
            clock.fire_next()
            await settle()
        await asyncio.gather(*tasks)
        return fired

    assert asyncio.run(scenario()) == [
        ("now", 0.0),
        ("a", 0.1),
        ("b", 0.2),
        ("c", 0.2),
        ("late", 0.3),
    ]


def test_cancelled_sleeper_leaves_no_timer() -> None:
    async def scenario() -> tuple[int | None, list[int]]:
        clock = VirtualClock()
        task = asyncio.create_task(clock.sleep(5))
        await settle()
        task.cancel()
        await settle()
        return clock.next_timer_ns(), clock.timers_ns()

    assert asyncio.run(scenario()) == (None, [])


def test_settle_waits_for_chains_of_wakeups() -> None:
    async def scenario() -> int:
        steps = 0

        async def chain() -> None:
            nonlocal steps
            for _ in range(50):
                await asyncio.sleep(0)
                steps += 1

        task = asyncio.create_task(chain())
        await settle()
        assert task.done()
        return steps

    assert asyncio.run(scenario()) == 50


def test_clock_never_goes_back() -> None:
    clock = VirtualClock()
    clock.move_to(5)
    with pytest.raises(SimError, match="went back from 5 to 4"):
        clock.move_to(4)


def test_stand_ins_replace_only_time() -> None:
    clock = VirtualClock()
    clock.move_to(1_500_000_000)
    virtual = time_stand_in(clock)
    assert (virtual.time(), virtual.perf_counter(), virtual.monotonic_ns()) == (
        1.5,
        1.5,
        1500000000,
    )
    assert virtual.strftime("%Y", virtual.gmtime(0)) == "1970"
    assert asyncio_stand_in(clock).Semaphore is asyncio.Semaphore
    with pytest.raises(AttributeError):
        StandIn(asyncio).no_such_name  # noqa: B018


def test_virtual_times_are_exact() -> None:
    output = SimpleNamespace(
        success=True,
        error="",
        spyre_record={
            "arrival_ns": 100_000_000,
            "token_times_ns": [300_000_000, 350_000_000, 500_000_000],
            "finish_ns": 500_000_000,
        },
    )
    put_virtual_times(output, SimpleNamespace(arrival_ns=100_000_000))  # type: ignore[arg-type]
    assert (output.start_time, output.ttft, output.itl) == (0.1, 0.2, [0.05, 0.15])
    assert output.latency == 0.4


def test_output_length_is_sent_only_where_known() -> None:
    assert length_xargs(SimpleNamespace(output_len=0)) == {}
    assert set(length_xargs(SimpleNamespace(output_len=3)).values()) == {3, "dataset"}


# Hooks


def test_hooks_are_put_back_after_an_error() -> None:
    real = json.dumps
    hooks = [Hook("json", "dumps", 1), Hook("json", "print", 2, shadows_builtin=True)]

    def fail() -> None:
        assert (json.dumps, json.print) == (1, 2)  # type: ignore[attr-defined,comparison-overlap]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), applied(hooks):
        fail()
    assert json.dumps is real
    assert not hasattr(json, "print")


def test_missing_name_is_reported_before_anything_is_replaced() -> None:
    real = json.dumps
    hooks = [Hook("json", "dumps", 1), Hook("json", "gone", 2)]
    with pytest.raises(BenchError, match="json has no 'gone'"), applied(hooks):
        pass
    assert json.dumps is real


def test_replaced_items_are_put_back() -> None:
    mapping = {"a": 1}
    with replaced_items(mapping, {"a": 2, "b": 3}):
        assert mapping == {"a": 2, "b": 3}
    assert mapping == {"a": 1}


# Options


def test_own_flags_are_split_from_vllms() -> None:
    parsed = options.parse(
        ["--model", "m", "--decode-thresholds", "50,80", "--extra-body", "{}", "--warm", "-v"]
    )
    assert parsed.vllm_argv == ("--model", "m", "--extra-body", "{}")
    assert (parsed.warm, parsed.verbose, parsed.timeline) == (True, True, False)
    assert parsed.decode_thresholds_ms == (50.0, 80.0)
    assert options.parse(["--detailed-timeline"]).timeline


@pytest.mark.parametrize("text", ["50", "a,b", "80,50", "-1,5", "1,2,3", "nan,1"])
def test_wrong_thresholds(text: str) -> None:
    with pytest.raises(UsageError, match="LOW,HIGH"):
        options.parse_thresholds(text)


@pytest.mark.parametrize("text", ["0", "x", "-1", "inf", "nan"])
def test_wrong_watchdog(text: str) -> None:
    with pytest.raises(UsageError, match="SENDNN_BENCH_WATCHDOG_S"):
        options.watchdog_s(text)


@pytest.mark.parametrize(
    ("argv", "url"),
    [
        ([], "http://127.0.0.1:8000"),
        (["--host", "::1", "--port", "9"], "http://[::1]:9"),
        (["--base_url", "http://h:1/"], "http://h:1"),
        (["--base-url=https://h"], "https://h"),
    ],
)
def test_server_is_known_before_vllm_is_imported(argv: list[str], url: str) -> None:
    assert early.early([*argv, "--num-prompts", "5"]).server.base_url == url


def test_nobody_there_is_told_at_once(unused_port: int) -> None:
    with pytest.raises(ServerUnreachable, match=f"127.0.0.1:{unused_port}"):
        asyncio.run(ask_info(Server(f"http://127.0.0.1:{unused_port}")))


def test_info_of_other_servers_and_versions() -> None:
    assert parse_info({"name": "something else"}) is None
    assert parse_info([]) is None
    with pytest.raises(SimError, match="version 99"):
        parse_info({"protocol": 99})
    with pytest.raises(SimError, match="incomplete"):
        parse_info({"protocol": PROTOCOL_VERSION})


# Console and saving

RECORDS: list[dict[str, Any] | None] = [
    {"queued_time_s": 0.1, "num_chunked_prefills": 2, "was_missing_blocks": True},
    None,
    {"queued_time_s": 0.3, "num_chunked_prefills": 1, "was_missing_blocks": False},
    None,
]


def test_section_has_the_format_of_vllm() -> None:
    assert console.render(RECORDS, [99, 99.9, 100], failed=1).splitlines() == [
        "================= SenDNN Metrics =================",
        "Requests without metrics:                2 (1 failed, 1 sent none)",
        "Total prefill chunks processed:          3         ",
        "Requests blocked by missing KV blocks:   1         ",
        "---------------- Queue Wait Time -----------------",
        "Mean Queue Wait Time (ms):               200.00    ",
        "Median Queue Wait Time (ms):             200.00    ",
        "P99 Queue Wait Time (ms):                298.00    ",
        "P99.9 Queue Wait Time (ms):              299.80    ",
        "P100 Queue Wait Time (ms):               300.00    ",
        "------------- Chunked Prefill Count --------------",
        "Mean Num Chunked Prefills:               1.50      ",
        "Median Num Chunked Prefills:             1.50      ",
        "P99 Num Chunked Prefills:                1.99      ",
        "P99.9 Num Chunked Prefills:              2.00      ",
        "P100 Num Chunked Prefills:               2.00      ",
        "==================================================",
    ]


def test_nothing_is_printed_where_nobody_sent_metrics() -> None:
    assert console.render([None, None], [99], failed=1) == ""
    assert console.render([], [99]) == ""


def test_result_keeps_vllms_keys_first_and_nulls_aligned() -> None:
    vllm = {"date": "d", "duration": 1.0, "ttfts": [1, 2, 3, 4], "rtfx": 0.0}
    full = save.compose(vllm, RECORDS, [99], {"schema": 1}, detailed=True)
    assert list(full)[:4] == list(vllm)
    assert full["spyre_queued_time_s"] == [0.1, None, 0.3, None]
    assert full["spyre_was_missing_blocks"] == [True, None, False, None]
    assert "spyre_tkvs" not in full
    assert full["spyre_total_prefill_chunks"] == 3
    assert full["spyre_num_requests_missing_blocks"] == 1
    assert full["spyre_mean_queued_time_ms"] == pytest.approx(200)
    assert full["spyre_p99_num_chunked_prefills"] == pytest.approx(1.99)
    assert list(full)[-1] == "sendnn"
    brief = save.compose(vllm, RECORDS, [99], {}, detailed=False)
    assert "ttfts" not in brief
    assert "spyre_queued_time_s" not in brief
    assert brief["spyre_mean_queued_time_ms"] == full["spyre_mean_queued_time_ms"]


def test_totals_are_null_where_unknown() -> None:
    totals = save.aggregates([None], [99])
    assert totals["spyre_total_prefill_chunks"] is None
    assert totals == {metric.total_key: None for metric in METRICS if metric.total_key}


def test_statistics_have_keys_of_their_own() -> None:
    shown = [metric for metric in METRICS if metric.show is Show.SECTION]
    keys = {save.stat_key("mean", metric) for metric in shown}
    assert len(keys) == len(shown)
    assert not keys & {metric.column for metric in METRICS}


# Findings


def facts(**changed: Any) -> findings.RunFacts:
    count = 200
    base = findings.RunFacts(
        errors=[""] * count,
        output_tokens=[5] * count,
        asked_tokens=[5] * count,
        percentiles=[50.0, 99.0, 100.0],
        rate=4.0,
        throughput=3.9,
    )
    return replace(base, **changed)


def test_steps_outside_the_measured_domain_are_told_with_their_share() -> None:
    (found,) = findings.find(facts(steps=200, outside_steps=3))
    assert found.startswith("3 of 200 steps (1.5%) lie outside")


def test_a_free_clock_and_measured_overhead_are_told() -> None:
    assert "runs free" in findings.find(facts(clock="free"))[0]
    assert "does not repeat" in findings.find(facts(host_overhead="measured"))[0]
    assert findings.find(facts(clock="virtual", host_overhead="constant:2")) == []


def test_the_engine_s_host_time_is_a_section_of_its_own() -> None:
    text = console.render_host({"schedule": {"mean_us": 250.0, "p99_us": 1500.0, "total_s": 1.0}})
    assert "Mean schedule (ms):                      0.250" in text
    assert "P99 schedule (ms):                       1.500" in text
    assert console.render_host({}) == ""


@pytest.mark.parametrize(
    ("argv", "kept"),
    [
        (["--header", "Authorization=Bearer s", "X-Run=7"], ["--header", "X-Run=7"]),
        (["--header=Authorization=Bearer s", "--seed", "3"], ["--seed", "3"]),
        (["--header", "x-api-key=s"], ["--header"]),
        (["--metadata", "cookie_jar=1"], ["--metadata", "cookie_jar=1"]),
    ],
)
def test_the_recorded_command_has_no_keys(argv: list[str], kept: list[str]) -> None:
    assert provenance.without_secrets(argv) == kept


def test_a_clean_run_has_no_findings() -> None:
    assert findings.find(facts()) == []
    assert findings.find(facts(pace=Pace(200, 2, 12))) == [], "few late steps change nothing"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"errors": ["x"] * 3 + [""] * 197}, "3 of 200 requests failed: 3 x x."),
        ({"output_tokens": [4] + [5] * 199}, "1 of 200 requests got another output length"),
        ({"percentiles": [99.9]}, "200 requests are few for P99.9"),
        ({"throughput": 3.0}, "4 requests/s were asked for, 3 were served"),
        ({"foreign_requests": 2}, "2 requests of other clients"),
        ({"warm": True}, "prefix cache"),
        ({"pace": Pace(200, 3, 12)}, "3 of 200 steps of the paced server (1.5%) ended late, by 4"),
        ({"server_tokens": [5, None, 4, 6] + [5] * 196}, "In 2 of 199 requests client and server"),
    ],
)
def test_findings(changed: dict[str, Any], text: str) -> None:
    (found,) = findings.find(facts(**changed))
    assert text in found


def test_a_failed_request_may_have_counted_anything() -> None:
    found = findings.find(facts(errors=["x"] + [""] * 199, server_tokens=[2] + [5] * 199))
    assert [text for text in found if "count" in text] == []


def test_failures_are_grouped_by_the_last_line_of_their_message() -> None:
    errors = ["Traceback\nValueError: a", "ValueError: a", "b", "c", "d", ""]
    assert findings.failures_by_kind(errors) == [
        "2 x ValueError: a",
        "1 x b",
        "1 x c",
        "and 1 other kinds",
    ]
