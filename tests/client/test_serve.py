"""vLLM's real benchmark against a fake simulated server over real HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vllm.benchmarks import serve as vllm_serve
from vllm.benchmarks.lib import endpoint_request_func, ready_checker
from vllm.utils.argparse_utils import FlexibleArgumentParser

from sendnn_bench.bridge import vllm_hooks
from sendnn_bench.errors import (
    AllRequestsFailed,
    Interrupted,
    ServerUnreachable,
    SessionBusy,
    SimStalled,
    UsageError,
)
from sendnn_bench.models import resolve
from sendnn_bench.results import load
from sendnn_bench.serve_command import run_serve
from tests.client.conftest import BASIC, RANDOM, Serve
from tests.client.fake_server import FakeServer

Custom = Callable[..., list[str]]


def arrivals_s(fake: FakeServer) -> list[float]:
    """Virtual arrival of every request that reached the server, by sequence number."""
    xargs = [body["vllm_xargs"] for body in fake.bodies]
    times_ns = {item["sendnn_sim_seq"]: item["sendnn_sim_arrival_ns"] for item in xargs}
    assert sorted(times_ns) == list(range(len(times_ns)))
    return [times_ns[seq] / 1e9 for seq in range(len(times_ns))]


def scrubbed(result: dict[str, Any]) -> str:
    """A result without what two equal runs may differ in: dates, wall times, the address."""
    block = {
        key: value for key, value in result["sendnn"].items() if key not in ("wall", "command")
    }
    return json.dumps({**result, "sendnn": block, "date": ""})


# Load in virtual time


@pytest.mark.parametrize(
    ("flags", "rates", "burstiness"),
    [
        (["--request-rate", "4"], [4.0] * 30, 1.0),
        (["--request-rate", "4", "--burstiness", "0.5", "--seed", "7"], [4.0] * 30, 0.5),
        (
            ["--ramp-up-strategy", "linear", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "9"],
            [1 + 8 * index / 29 for index in range(30)],
            1.0,
        ),
    ],
)
def test_open_loop_arrivals_are_the_schedule(
    serve: Serve, custom: Custom, flags: list[str], rates: list[float], burstiness: float
) -> None:
    with FakeServer() as server:
        result = serve(server, *custom(*["hello there"] * 30), *flags)
    np.random.seed(7 if "7" in flags else 0)
    gaps = [np.random.gamma(burstiness, 1 / (rate * burstiness)) for rate in rates]
    schedule = np.cumsum(gaps)
    if "--request-rate" in flags:
        schedule *= len(rates) / 4.0 / schedule[-1]
    assert arrivals_s(server) == pytest.approx(list(schedule), abs=2e-9)
    assert result["start_times"] == pytest.approx(list(schedule), abs=2e-9)


def test_closed_loop_starts_the_next_at_the_very_end_of_the_last(
    server: FakeServer, serve: Serve
) -> None:
    result = serve(server, *RANDOM, "--num-prompts", "6", "--max-concurrency", "1")
    assert result["start_times"] == [0.0, 0.3, 0.6, 0.9, 1.2, 1.5]
    assert result["ttfts"] == [0.1] * 6
    assert result["itls"] == [[0.05] * 4] * 6
    assert result["duration"] == 1.8
    assert result["request_throughput"] == 6 / 1.8
    assert result["p100_itl_ms"] == 50.0


def test_equal_start_times_keep_their_own_metrics(server: FakeServer, serve: Serve) -> None:
    result = serve(server, *RANDOM, "--num-prompts", "20")
    assert result["start_times"] == [0.0] * 20
    assert result["spyre_arrival_ns"] == [0] * 20
    assert result["spyre_finish_ns"] == [300_000_000 * (row + 1) for row in range(20)]
    assert result["ttfts"] == [(3 * row + 1) / 10 for row in range(20)]


@pytest.mark.parametrize("load_flags", [["--request-rate", "3"], ["--max-concurrency", "4"]])
def test_same_seed_same_bytes(server: FakeServer, serve: Serve, load_flags: list[str]) -> None:
    flags = [*RANDOM, "--random-range-ratio", "0.5", "--num-prompts", "40", *load_flags]
    first, second = (scrubbed(serve(server, *flags)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("load_flags", [["--request-rate", "3"], ["--max-concurrency", "4"]])
def test_a_request_costs_one_grant_at_most(
    server: FakeServer, serve: Serve, load_flags: list[str]
) -> None:
    serve(server, *RANDOM, "--num-prompts", "100", *load_flags)
    assert server.answered <= 100 + 5  # and a few to begin and to end


def test_an_open_loop_announced_ahead_gives_what_one_in_step_gives(
    server: FakeServer, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*RANDOM, "--random-range-ratio", "0.5", "--num-prompts", "100", "--request-rate", "1"]
    ahead, grants_ahead = scrubbed(serve(server, *flags)), server.answered
    monkeypatch.setattr(vllm_hooks, "ANNOUNCED", 0)
    assert scrubbed(serve(server, *flags)) == ahead
    assert grants_ahead <= 105
    assert server.answered > 150


def test_warm_ups_ready_check_and_probes_are_no_rows(server: FakeServer, serve: Serve) -> None:
    flags = ["--num-warmups", "3", "--ready-check-timeout-sec", "5", "--probe-request-rate", "1"]
    result = serve(server, *RANDOM, "--num-prompts", "4", "--max-concurrency", "1", *flags)
    assert len(result["spyre_finish_ns"]) == len(result["ttfts"]) == 4
    assert result["start_times"][0] == 1.2  # after ready check and warm-ups, 300 ms each
    assert result["probe_completed"] == len(server.bodies) - 4 - 3 - 1
    assert result["probe_failed"] == 0


def test_goodput_and_percentiles_are_vllms(server: FakeServer, serve: Serve) -> None:
    flags = ["--goodput", "ttft:150", "--percentile-metrics", "ttft,e2el"]
    result = serve(server, *RANDOM, "--num-prompts", "4", *flags)
    assert result["request_goodput"] == 1 / result["duration"]  # one of four waits for nobody
    assert result["p100_e2el_ms"] == 1200.0
    assert "p99_itl_ms" not in result


def test_warm_session_goes_on_at_the_servers_time(serve: Serve) -> None:
    with FakeServer(start_ns=7_000_000_000) as fake:
        result = serve(fake, *RANDOM, "--num-prompts", "2", "--warm")
    assert result["start_times"] == [7.0, 7.0]
    assert result["duration"] == pytest.approx(0.6)
    assert result["sendnn"]["start"] == "warm"


def test_timed_trace_is_replayed_on_the_virtual_clock(
    server: FakeServer, serve: Serve, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": when, "input_length": 32, "output_length": 3, "hash_ids": [row, 9]}
        for row, when in enumerate((0, 2, 2.5))
    ]
    trace.write_text("\n".join(json.dumps(line) for line in lines))
    flags = ["--dataset-name", "timed_trace", "--dataset-path", str(trace), "--num-prompts", "3"]
    result = serve(server, *flags)
    assert result["start_times"] == [0.0, 2.0, 2.5]
    assert result["backend"] == "spyre-chat"


def test_heartbeats_change_nothing(server: FakeServer, serve: Serve, custom: Custom) -> None:
    flags = [*custom("a", "REJECT", "c", "d"), "--request-rate", "3"]
    with FakeServer(heartbeats=2) as slow:
        results = [scrubbed(serve(fake, *flags)) for fake in (server, slow)]
    assert results[0] == results[1]


# What is sent


def test_lengths_and_session_are_sent_and_the_users_fields_win(
    server: FakeServer, serve: Serve, custom: Custom
) -> None:
    extra = {"vllm_xargs": {"mine": 1, "sendnn_sim_output_tokens": 2}, "top_k": 3}
    result = serve(server, *custom("a", "b"), "--extra-body", json.dumps(extra))
    body = min(server.bodies, key=lambda body: int(body["vllm_xargs"]["sendnn_sim_seq"]))
    assert body["top_k"] == 3
    assert body["max_tokens"] == 4
    assert body["vllm_xargs"] == {
        "sendnn_sim_session": server.sessions[0],
        "sendnn_sim_seq": 0,
        "sendnn_sim_arrival_ns": 0,
        "sendnn_sim_output_tokens": 2,
        "sendnn_sim_output_source": "dataset",
        "mine": 1,
    }
    assert result["output_lens"] == [2, 2]


@pytest.mark.parametrize("backend", ["spyre-chat", "openai-chat"])
def test_chat(server: FakeServer, serve: Serve, backend: str) -> None:
    flags = ["--endpoint", "/v1/chat/completions", "--backend", backend]
    result = serve(server, *RANDOM, "--num-prompts", "3", *flags)
    assert "messages" in server.bodies[0]
    assert result["backend"] == result["endpoint_type"] == backend
    assert result["itls"] == [[0.05] * 4] * 3
    assert result["generated_texts"][0] == "w0 w1 w2 w3 w4 "


def test_paced_server_gets_lengths_without_a_session(serve: Serve, custom: Custom) -> None:
    with FakeServer(clock="paced") as fake:
        result = serve(fake, *custom("a", "b"))
    assert fake.bodies[0]["vllm_xargs"] == {
        "sendnn_sim_output_tokens": 4,
        "sendnn_sim_output_source": "dataset",
    }
    assert result["sendnn"]["mode"] == "paced"
    assert result["start_times"][0] > 1  # perf_counter, real time
    assert result["sendnn"]["wall"]["pace"] == {
        "steps": 100,
        "late_steps": 10,
        "late_total_ms": 30,
    }
    (late,) = [text for text in result["sendnn"]["findings"] if "late" in text]
    assert late.startswith("10 of 100 steps of the paced server (10.0%) ended late, by 3.0 ms")


# Real servers, and vLLM's own result


def test_real_server_streams_upstreams_fields(
    serve: Serve, custom: Custom, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer(clock=None) as fake:
        result = serve(fake, *custom("a", "SILENT", "c"))
    assert "vllm_xargs" not in fake.bodies[0]
    assert result["spyre_queued_time_s"] == [0.25, None, 0.25]
    assert result["spyre_total_prefill_chunks"] == 4
    assert "spyre_arrival_ns" not in result
    assert result["sendnn"]["mode"] == "real"
    assert set(result["sendnn"]["wall"]["clock_anchor"]) == {"time", "perf_counter"}
    printed = capsys.readouterr().out
    assert "Mean Queue Wait Time (ms):               250.00" in printed
    assert "Requests without metrics:                1 (1 sent none)" in printed


def test_plain_vllm_server_prints_no_section(
    serve: Serve, custom: Custom, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer(clock=None, metrics=False) as fake:
        serve(fake, *custom("a"))
    captured = capsys.readouterr()
    assert "SenDNN Metrics" not in captured.out
    assert "sent no SenDNN metrics" in captured.err


@pytest.mark.parametrize("detailed", [True, False])
def test_vllms_keys_and_their_order_are_untouched(
    custom: Custom, tmp_path: Path, detailed: bool
) -> None:
    flags = [*BASIC, *custom("a", "b"), "--save-result", "--result-dir", str(tmp_path)]
    flags += ["--metadata", "run=7", "--max-concurrency", "2", *["--save-detailed"] * detailed]
    parser = FlexibleArgumentParser()
    vllm_serve.add_cli_args(parser)
    results = []
    for name in ("vllm.json", "ours.json"):
        with FakeServer(clock=None) as fake:
            named = [*flags, *fake.argv, "--backend", "openai", "--result-filename", name]
            if name == "vllm.json":
                tokenizer = ["--tokenizer", resolve("sim-granite-8b")]
                asyncio.run(vllm_serve.main_async(parser.parse_args([*named, *tokenizer])))
            else:
                run_serve(named)
        results.append(json.loads((tmp_path / name).read_text()))
    vllm, ours = results
    added = [key for key in ours if key not in vllm]
    assert list(ours) == [*vllm, *added]
    assert all(key.startswith(("spyre_", "sendnn")) for key in added)
    for key, value in vllm.items():
        assert type(ours[key]) is type(value), key
    assert ours["tokenizer_id"] == ours["model_id"] == "sim-granite-8b"


def test_saved_file_loads_row_by_row(server: FakeServer, serve: Serve, tmp_path: Path) -> None:
    serve(server, *RANDOM, "--num-prompts", "3")
    result = load(tmp_path / "result.json")
    assert result.simulated
    assert [row.e2el_s for row in result.rows()] == pytest.approx([0.3, 0.6, 0.9])
    assert result.block["session"]["requests"] == 3
    assert result.block["versions"]["server"] == {"fake": "1"}


def test_append_result_adds_one_line_a_run(server: FakeServer, tmp_path: Path) -> None:
    flags = [*server.argv, *BASIC, *RANDOM, "--num-prompts", "2", "--result-dir", str(tmp_path)]
    for _ in range(2):
        run_serve([*flags, "--append-result", "--result-filename", "all.jsonl"])
    lines = (tmp_path / "all.jsonl").read_text().split("\n")
    assert [json.loads(line)["spyre_total_prefill_chunks"] for line in lines] == [2, 2]


def test_vllms_file_name_and_plots_stay(server: FakeServer, tmp_path: Path) -> None:
    flags = [*server.argv, *BASIC, *RANDOM, "--num-prompts", "2", "--result-dir", str(tmp_path)]
    run_serve([*flags, "--plot-timeline", "--label", "mine", "--request-rate", "5"])
    (page,) = tmp_path.iterdir()
    assert page.name.startswith("mine-5.0qps-sim-granite-8b-")
    assert page.name.endswith(".timeline.html")


def test_timeline_and_descriptions_lie_beside_the_result(
    server: FakeServer, serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--timeline", "--decode-thresholds", "40,60", "--describe-metrics"]
    serve(server, *RANDOM, "--num-prompts", "2", *flags)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "result.json",
        "result.timeline.html",
        "sendnn_bench_metrics_description.txt",
    ]
    assert f"Timeline: {tmp_path / 'result.timeline.html'}" in capsys.readouterr().err


def test_timeline_needs_no_detailed_result(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*server.argv, *BASIC, *RANDOM, "--num-prompts", "2", "--result-dir", str(tmp_path)]
    run_serve([*flags, "--timeline", "--save-detailed"])
    (page,) = tmp_path.iterdir()
    assert page.name.endswith(".timeline.html")
    assert "--save-detailed needs --save-result" in capsys.readouterr().err


# Failures


def test_rejected_request_is_a_failed_row_and_nobody_waits(
    server: FakeServer, serve: Serve, custom: Custom, capsys: pytest.CaptureFixture[str]
) -> None:
    result = serve(server, *custom("a", "REJECT", "c"), "--max-concurrency", "1")
    assert result["errors"] == ["", "HTTP 400: the prompt is too long", ""]
    assert result["start_times"] == [0.0, 0.25, 0.25]
    assert result["spyre_finish_ns"] == [250_000_000, None, 500_000_000]
    assert result["sendnn"]["session"]["requests"] == 3
    assert "Requests without metrics:                1 (1 failed)" in capsys.readouterr().out


def test_slow_network_moves_nobody_in_virtual_time(serve: Serve, custom: Custom) -> None:
    with FakeServer(settle_delay_s=0.05) as fake:
        result = serve(fake, *custom("a", "REJECT", "c", "d"), "--max-concurrency", "2")
    assert result["start_times"] == [0.0, 0.0, 0.0, 0.25]


def test_error_event_in_the_stream_is_a_failed_row(
    server: FakeServer, serve: Serve, custom: Custom
) -> None:
    result = serve(server, *custom("a", "ERROR-EVENT", "c"))
    assert result["errors"] == ["", "the engine broke", ""]
    assert (result["completed"], result["failed"]) == (2, 1)
    assert (result["ttfts"][1], result["itls"][1]) == (0.0, [])
    assert result["spyre_queued_time_s"] == [0.0, None, 0.5]


def test_request_without_token_times_is_a_failed_row(
    server: FakeServer, serve: Serve, custom: Custom
) -> None:
    result = serve(server, *custom("a", "SILENT"))
    assert result["errors"] == ["", "the simulated server sent no token times for this request"]


def test_all_failed_exits_with_the_servers_message_after_saving(
    server: FakeServer, serve: Serve, custom: Custom, tmp_path: Path
) -> None:
    with pytest.raises(AllRequestsFailed) as caught, pytest.warns(UserWarning, match="failed"):
        serve(server, *custom("a", "b"), "--served-model-name", "nope")
    assert str(caught.value).splitlines() == [
        "all 2 requests failed:",
        "  2 x HTTP 404: The model `nope` does not exist.",
    ]
    assert json.loads((tmp_path / "result.json").read_text())["failed"] == 2


def test_server_that_dies_in_mid_run(serve: Serve, custom: Custom, tmp_path: Path) -> None:
    with FakeServer(die_after=3) as fake, pytest.raises(ServerUnreachable) as caught:
        serve(fake, *custom(*"abcdefgh"), "--max-concurrency", "1", "--metadata", "run=7")
    partial = tmp_path / "result.partial.json"
    assert f"2 requests had ended; they are saved in {partial}" in str(caught.value)
    result = load(partial)
    assert [row.start_s for row in result.rows()] == [0.0, 0.25]
    assert result.block["partial"] is True
    assert result.data["run"] == "7"
    assert not (tmp_path / "result.json").exists()


def test_real_server_that_dies_in_mid_run(serve: Serve, custom: Custom, tmp_path: Path) -> None:
    flags = [*custom(*"abcdefgh"), "--max-concurrency", "1"]
    with FakeServer(clock=None, die_after=2) as fake, pytest.raises(ServerUnreachable):
        serve(fake, *flags)
    rows = load(tmp_path / "result.partial.json").rows()
    assert [row.failed for row in rows if not row.failed] == [False, False]
    assert len(rows) < 8


@pytest.mark.parametrize("clock", ["virtual", None])
def test_ctrl_c_saves_what_was_measured(
    serve: Serve, custom: Custom, tmp_path: Path, clock: str | None
) -> None:
    def interrupt(finished: int) -> None:
        if finished == 3:
            signal.pthread_kill(main_thread, signal.SIGINT)

    main_thread = threading.main_thread().ident
    assert main_thread is not None
    flags = [*custom(*["a"] * 400), "--max-concurrency", "1"]
    with FakeServer(clock=clock, on_finish=interrupt) as fake, pytest.raises(Interrupted):
        serve(fake, *flags)
    rows = load(tmp_path / "result.partial.json").rows()
    assert 1 <= len(rows) < 400
    assert fake.session is None  # closed behind us


def test_nothing_is_left_replaced_in_vllm(server: FakeServer, serve: Serve, custom: Custom) -> None:
    before = (
        [dict(vars(module)) for module in (vllm_serve, endpoint_request_func, ready_checker)],
        dict(endpoint_request_func.ASYNC_REQUEST_FUNCS),
    )
    serve(server, *custom("a"))
    with pytest.raises(UsageError):
        serve(server, "--dataset-name", "custom", "--dataset-path", "no-such-file.jsonl")
    after = (
        [dict(vars(module)) for module in (vllm_serve, endpoint_request_func, ready_checker)],
        dict(endpoint_request_func.ASYNC_REQUEST_FUNCS),
    )
    assert before == after
    assert vllm_serve.time is time


def test_session_of_somebody_else(server: FakeServer, serve: Serve, custom: Custom) -> None:
    server.session = "theirs"
    with pytest.raises(SessionBusy, match="the session is taken\nNothing was measured"):
        serve(server, *custom("a"))


def test_stall_ends_with_a_dump(
    serve: Serve, custom: Custom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENDNN_BENCH_WATCHDOG_S", "0.5")
    with FakeServer(stuck=True) as fake, pytest.raises(SimStalled) as caught:
        serve(fake, *custom("a", "b"), "--max-concurrency", "1")
    assert "Client's clock: 0 ns; requests submitted: 1, in flight: 1" in str(caught.value)
    assert "request 0 (arrived at 0 ns) waits for its HTTP response" in str(caught.value)
    assert "Server: the gate is stuck" in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--metadata", "novalue"], "--metadata 'novalue' is not KEY=VALUE"),
        (["--metric-percentiles", "50,101"], "0 to 100"),
        (["--goodput", "speed:3"], "--goodput"),
        (["--request-rate", "0"], "--request-rate 0 is not above 0"),
        (["--plot-dataset-stats"], "--save-result"),
        (["--result-dir", "/proc/none", "--save-result"], "cannot be written"),
        (["--profile"], "real time"),
        (["--backend", "openai-embeddings"], "virtual time"),
        (["--dataset-name", "random", "--dataset-path", "x"], "--dataset-path"),
        (["--backend", "openai-chat"], "URL must end with"),
    ],
)
def test_faults_are_found_before_the_run(
    server: FakeServer, flags: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run_serve([*server.argv, *BASIC, *RANDOM, "--num-prompts", "2", *flags])
    assert server.bodies == []


def test_mistyped_model_is_told_before_vllm_looks_for_it(server: FakeServer) -> None:
    with pytest.raises(UsageError, match="does not serve 'sim-granit', but sim-granite-8b"):
        run_serve([*server.argv, "--model", "sim-granit", *RANDOM])


def test_findings_are_told_and_saved(
    server: FakeServer, serve: Serve, custom: Custom, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--extra-body", '{"vllm_xargs": {"sendnn_sim_output_tokens": 2}}']
    result = serve(server, *custom("a", "REJECT", "c"), *extra)
    assert result["sendnn"]["findings"] == [
        "1 of 3 requests failed: 1 x HTTP 400: the prompt is too long.",
        "2 of 2 requests got another output length than asked for.",
        "2 requests are few for P99: it lies at or near the maximum.",
    ]
    assert "Note: 2 of 2 requests got another" in capsys.readouterr().err


def test_unknown_flags_get_vllms_own_error(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_serve([*server.argv, "--no-such-flag"])
    assert "unrecognized arguments: --no-such-flag" in capsys.readouterr().err


def test_arguments_are_dumped_only_on_request(
    server: FakeServer, custom: Custom, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*server.argv, *BASIC, *custom("a")]
    run_serve(flags)
    captured = capsys.readouterr()
    assert "Namespace(" not in captured.out
    assert "Simulated 0.25 s of virtual time in" in captured.err
    run_serve([*flags, "-v"])
    assert "Namespace(" in capsys.readouterr().out
