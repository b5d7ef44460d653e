"""What goes wrong, on a real server: nothing hangs, messages are clear, exit codes tell the kind,
the server serves the next run, and what was measured is kept. docs/reliability.md is the table."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from sendnn_bench import protocol
from sendnn_bench.errors import ResultError, UsageError
from server_plugin.sim.fields import SimFields
from tests.e2e.conftest import Server
from tests.e2e.process import LONG, serve_process
from tests.e2e.test_lean_server import until_free
from tests.e2e.wire import MS, Ask, Reply, Session, run, session
from tests.server.fake_core import FakeCore

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

T = TypeVar("T")

BOUND_S = 60


def bounded(work: Awaitable[T]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(work, BOUND_S)

    return asyncio.run(within())


@pytest.fixture(autouse=True)
def still_usable(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test on the shared server, it serves an exact run from a cold start."""
    yield
    if "spyre_server" in request.fixturenames:
        server = request.getfixturevalue("spyre_server")
        (reply,) = run(server.url, [Ask(0, 100, 3)])
        assert reply.record["token_times_ns"] == [100 * MS, 150 * MS, 200 * MS]


async def finish(current: Session, tasks: list[asyncio.Task[Reply]], submitted: int) -> list[Reply]:
    await current.run_to_end(submitted)
    return await asyncio.gather(*tasks)


# Requests that cannot be right


@pytest.mark.fault(
    section="requests",
    fault="sequence number used twice",
    what="the second gets 400",
)
def test_a_sequence_number_is_used_once(spyre_server: Server) -> None:
    async def scenario() -> list[Reply]:
        async with session(spyre_server.url) as current:
            tasks = [asyncio.create_task(current.ask(0, Ask(0, 100, 3))) for _ in range(2)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return await finish(current, tasks, 1)

    replies = bounded(scenario())
    served, refused = sorted(replies, key=lambda reply: reply.status)
    assert served.record["token_times_ns"] == [100 * MS, 150 * MS, 200 * MS]
    assert refused.status == 400
    assert "sequence number 0 was used before" in refused.text


@pytest.mark.fault(
    section="requests",
    fault="equal `X-Request-Id`",
    what="two requests",
)
def test_equal_request_ids_are_two_requests(spyre_server: Server) -> None:
    async def scenario() -> list[Reply]:
        async with session(spyre_server.url) as current:
            current.http.headers["X-Request-Id"] = "the same"
            tasks = [asyncio.create_task(current.ask(seq, Ask(0, 100, 3))) for seq in range(2)]
            return await finish(current, tasks, 2)

    replies = bounded(scenario())
    assert [len(reply.record["token_times_ns"]) for reply in replies] == [3, 3]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1000] * 4096, "max_tokens": 1}, "4096"),
        ({"prompt": [1000] * 4095, "max_tokens": 2}, "4096"),
        ({"prompt": [1000] * 4095, "max_tokens": 1}, "max_tokens"),
        ({"prompt": [1000] * 100, "max_tokens": 3997}, "4096"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 2}, "one by one"),
        ({"prompt": ["a", "b"]}, "one by one"),
        ({"vllm_xargs": {protocol.XARG_OUTPUT_TOKENS: 0}}, protocol.XARG_OUTPUT_TOKENS),
        ({"vllm_xargs": {protocol.XARG_OUTPUT_TOKENS: 1.5}}, protocol.XARG_OUTPUT_TOKENS),
        ({"vllm_xargs": {protocol.XARG_SEQ: -1}}, protocol.XARG_SEQ),
        ({"vllm_xargs": {protocol.XARG_ARRIVAL_NS: 2**63}}, protocol.XARG_ARRIVAL_NS),
        ({"vllm_xargs": {protocol.XARG_SESSION: "x" * 1000}}, protocol.XARG_SESSION),
    ],
)
@pytest.mark.fault(
    section="requests",
    fault=(
        "prompt empty, or longer than the context; output beyond it or negative; `n` > 1;"
        " several prompts; wrong simulation fields"
    ),
    what="400 that names the field; the client settles the request and no grant waits for it",
)
def test_a_request_that_cannot_be_right_gets_400_and_can_be_settled(
    spyre_server: Server, body: dict[str, Any], told: str
) -> None:
    async def scenario() -> tuple[int, str, dict[str, Any]]:
        async with session(spyre_server.url) as current:
            xargs = {
                protocol.XARG_SESSION: current.name,
                protocol.XARG_SEQ: 0,
                protocol.XARG_ARRIVAL_NS: 0,
            }
            whole = {"model": "sim-granite-8b", "prompt": "a", "max_tokens": 2, **body}
            whole["vllm_xargs"] = xargs | whole.get("vllm_xargs", {})
            url = spyre_server.url + "/v1/completions"
            async with current.http.post(url, json=whole) as response:
                status, text = response.status, await response.text()
            async with current.http.post(current.path + "/settle", json={"seq": 0}) as response:
                assert response.status == 200
            return status, text, await current.advance(None, 1)

    status, text, answer = bounded(scenario())
    assert status == 400, text
    assert told in text
    assert (answer["reason"], answer["finished"], answer["now_ns"]) == ("rejected", [0], 0)


@pytest.mark.parametrize("asked", [64, 96])
@pytest.mark.fault(
    section="requests",
    fault="prompt and output at the limit of the context",
    what=(
        "served; upstream pads the prompt to whole blocks of 64 tokens and cuts the "
        "output where both together reach the context"
    ),
)
def test_a_prompt_at_the_limit_is_served(spyre_server: Server, asked: int) -> None:
    """Upstream pads 4,000 prompt tokens to 4,032, and cuts the output at 4,096 in all."""
    (reply,) = run(spyre_server.url, [Ask(0, 4000, asked)])
    assert (reply.usage["completion_tokens"], reply.finish_reason) == (64, "length")
    assert reply.record["num_chunked_prefills"] == 8


@pytest.mark.fault(
    section="requests",
    fault="output of 0 tokens",
    what="400",
)
def test_zero_output_is_answered_at_once(spyre_server: Server) -> None:
    async def scenario() -> tuple[Reply, dict[str, Any]]:
        async with session(spyre_server.url) as current:
            asked = asyncio.create_task(current.ask(0, Ask(0, 100, 0)))
            done, _ = await asyncio.wait([asked], timeout=2)
            if done:
                await (await current.http.post(current.path + "/settle", json={"seq": 0})).read()
            return await asked, await current.advance(None, 1)

    reply, answer = bounded(scenario())
    assert (reply.status, answer["finished"]) == (400, [0]), (reply, answer)


# Times that are extreme


@pytest.mark.fault(
    section="requests",
    fault="arrival at 10^17 ns, far beyond 2^31 ms",
    what="exact to the nanosecond",
)
def test_a_clock_far_beyond_2_to_the_31_seconds(spyre_server: Server) -> None:
    late = 10**17
    early, reply = run(spyre_server.url, [Ask(0, 100, 2), Ask(late, 100, 3, token=1001)])
    assert early.record["finish_ns"] == 150 * MS
    assert reply.record["token_times_ns"] == [late + t * MS for t in (100, 150, 200)]
    assert reply.record["queued_time_s"] == 0


@pytest.mark.fault(
    section="requests",
    fault="steps that cost 0 ms",
    what="the run ends",
)
def test_steps_of_no_time_end() -> None:
    core = FakeCore(prefill_ms=0, decode_ms=0)
    core.call("sim_begin", "s", False)
    core.submit("r", 1000, SimFields("s", 0, 7))
    answer = core.call("sim_advance", None, 1).result(timeout=0)
    assert (answer["now_ns"], answer["finished"]) == (7, [0])
    assert core.records["r"]["token_times_ns"] == [7] * 1000


# The network


async def raw_call(server: Server, path: str, body: dict[str, Any]) -> asyncio.StreamWriter:
    """Send a POST over a connection of its own, and read nothing."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
    await writer.drain()
    return writer


async def until(server: Server, http: aiohttp.ClientSession, text: str) -> None:
    """Wait until the server's state holds this text."""
    state = ""
    for _ in range(BOUND_S * 20):
        async with http.get(server.url + "/sim/status") as response:
            state = await response.text()
        if text in state:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"never {text!r}: {state}")


async def steps_of(server: Server, http: aiohttp.ClientSession) -> int:
    """Steps that the engine has run."""
    async with http.get(server.url + "/sim/status") as response:
        return int((await response.json())["steps"])


@pytest.mark.parametrize("cut", ["before the work", "during the work"])
@pytest.mark.fault(
    section="client",
    fault="connection cut between grant and answer",
    what="the client asks once more and gets the answer that it missed",
    exit_code=0,
)
def test_a_connection_cut_between_grant_and_answer(spyre_server: Server, cut: str) -> None:
    """The client asks again over a new connection and gets the answer it missed."""

    async def scenario() -> tuple[Reply, dict[str, Any]]:
        async with session(spyre_server.url) as current:
            path = current.path.removeprefix(spyre_server.url) + "/advance"
            writer = await raw_call(
                spyre_server, path, {"grant": 1, "until_ns": None, "submitted": 1}
            )
            await until(spyre_server, current.http, "grant until None")
            if cut == "before the work":
                writer.transport.abort()
            asked = asyncio.create_task(current.ask(0, Ask(0, 100, 3)))
            if cut == "during the work":
                writer.transport.abort()
            reply = await asked
            await until(spyre_server, current.http, "no grant")
            return reply, await current.advance(None, 1)

    reply, answer = bounded(scenario())
    assert reply.record["finish_ns"] == 200 * MS
    assert (answer["now_ns"], answer["reason"], answer["finished"]) == (200 * MS, "finished", [0])


@pytest.mark.fault(
    section="client",
    fault="answer lost after the grant was executed",
    what="the same number gets the same answer; nothing is executed twice",
    exit_code=0,
)
def test_an_answer_that_was_lost_after_its_grant_was_executed(spyre_server: Server) -> None:
    """The answer was on its way when the connection broke: the client asks by the same number."""

    async def scenario() -> tuple[Reply, dict[str, Any], dict[str, Any], list[int]]:
        async with session(spyre_server.url) as current:
            path = current.path.removeprefix(spyre_server.url) + "/advance"
            grant = {"grant": 1, "until_ns": 150 * MS, "submitted": 1}
            asked = asyncio.create_task(current.ask(0, Ask(0, 100, 5)))
            writer = await raw_call(spyre_server, path, grant)
            await until(spyre_server, current.http, f'"now_ns":{150 * MS}')
            await until(spyre_server, current.http, "no grant")
            writer.transport.abort()
            steps = [await steps_of(spyre_server, current.http)]
            again = await current.advance_as(1, 150 * MS, 1)
            steps.append(await steps_of(spyre_server, current.http))
            last = await current.advance(None, 1)
            return await asked, again, last, steps

    reply, again, last, steps = bounded(scenario())
    assert (again["now_ns"], again["reason"], again["finished"]) == (150 * MS, "until", [])
    assert steps == [2, 2], "a repeat of the grant is not executed"
    assert (last["now_ns"], last["finished"]) == (300 * MS, [0])
    assert reply.record["token_times_ns"] == [t * MS for t in (100, 150, 200, 250, 300)]


@pytest.mark.fault(
    section="requests",
    fault="time limit of the client passed",
    what="the server drops the request; the others' times do not change",
)
def test_a_request_that_runs_into_its_time_limit(spyre_server: Server) -> None:
    """No step is granted while the time limit of request 1 passes, on any machine."""

    async def scenario() -> tuple[Reply, list[dict[str, Any]]]:
        async with session(spyre_server.url) as current:
            kept = asyncio.create_task(current.ask(0, Ask(0, 100, 3)))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(current.ask(1, Ask(0, 100, 400, token=1001)), 3)
            async with current.http.post(current.path + "/settle", json={"seq": 1}) as response:
                assert response.status == 200
            answers = await current.run_to_end(2)
            return await kept, answers

    kept, answers = bounded(scenario())
    assert kept.record["token_times_ns"] == [100 * MS, 150 * MS, 200 * MS]
    assert sorted(seq for answer in answers for seq in answer["finished"]) == [0, 1]


@pytest.mark.fault(
    section="requests",
    fault="given up by the client in mid-run",
    what="the others' times do not change",
)
def test_a_request_given_up_in_mid_run_leaves_the_others_alone(spyre_server: Server) -> None:
    """Requests 0 and 1 decode from 200 ms on; request 1 is given up at 300 ms."""

    async def scenario() -> tuple[Reply, list[dict[str, Any]]]:
        async with session(spyre_server.url) as current:
            asks = [Ask(0, 100, 10), Ask(0, 100, 400, token=1001)]
            kept, dropped = (
                asyncio.create_task(current.ask(seq, ask)) for seq, ask in enumerate(asks)
            )
            first = await current.advance(300 * MS, 2)
            dropped.cancel()
            answers = [first, *await current.run_to_end(2)]
            return await kept, answers

    kept, answers = bounded(scenario())
    assert len(kept.record["token_times_ns"]) == 10
    assert sorted(seq for answer in answers for seq in answer["finished"]) == [0, 1]


# The client


@pytest.mark.fault(
    section="client",
    fault="client stopped for longer than that, then continued",
    what=(
        "the server says that the session may have expired; what was measured is in "
        "`*.partial.json`"
    ),
    exit_code=6,
)
def test_a_client_stopped_for_longer_than_its_session_lives(
    spyre_server: Server, tmp_path: Path
) -> None:
    process = serve_process(spyre_server, tmp_path, *LONG)
    process.read_until("Maximum request concurrency")
    time.sleep(4)  # long enough for some requests to end, on any machine
    process.send_signal(signal.SIGSTOP)
    asyncio.run(until_free(spyre_server))
    process.send_signal(signal.SIGCONT)
    out = process.wait(BOUND_S)
    assert process.returncode == 6, out
    assert "may have expired" in out
    partial = json.loads((tmp_path / "r.partial.json").read_text())
    assert partial["sendnn"]["partial"] is True
    assert len(partial["spyre_finish_ns"]) > 0


# Files

Serve = Callable[..., None]


@pytest.fixture
def serve(spyre_server: Server) -> Serve:
    """A run of `serve` in this process, of 40 requests."""
    from sendnn_bench.serve_command import run_serve

    def call(*argv: str) -> None:
        run_serve(
            [
                *("--model", "sim-granite-8b", "--base-url", spyre_server.url),
                *("--dataset-name", "random", "--disable-tqdm", "--num-prompts", "40"),
                *("--random-input-len", "20", "--random-output-len", "20"),
                *("--save-result", "--save-detailed", *argv),
            ]
        )

    return call


@contextmanager
def files_no_larger_than(size_bytes: int) -> Iterator[None]:
    """Stands for a full disk: the system refuses to let any file grow further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.fault(
    section="files",
    fault="disk full while the result is saved",
    what=(
        "the report was printed before; a result of an earlier run stays whole; no "
        "temporary file is left"
    ),
    exit_code=5,
)
def test_a_disk_that_fills_up_leaves_the_old_result_whole(
    serve: Serve, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.json").write_text('{"old": 1}')
    with (
        files_no_larger_than(30_000),
        pytest.raises(ResultError, match=r"r\.json cannot be written: File too large"),
    ):
        serve("--result-dir", str(tmp_path), "--result-filename", "r.json")
    assert json.loads((tmp_path / "r.json").read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["r.json"]
    assert "SenDNN Metrics" in capfd.readouterr().out


@pytest.mark.fault(
    section="files",
    fault="disk full with `--append-result`",
    what="one line with the system's reason",
    exit_code=5,
)
def test_appending_to_a_full_disk(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "r.json").symlink_to("/dev/full")
    with pytest.raises(ResultError, match="No space left"):
        serve("--append-result", "--result-dir", str(tmp_path), "--result-filename", "r.json")


@pytest.mark.fault(
    section="files",
    fault="result directory cannot be made",
    what="told before the run",
    exit_code=2,
)
def test_a_result_directory_that_cannot_be_made_is_told_before_the_run(
    serve: Serve, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="results cannot be written to"):
        serve("--result-dir", str(tmp_path / "file" / "results"))
    assert "Serving Benchmark Result" not in capfd.readouterr().out


@pytest.mark.fault(
    section="files",
    fault="result exists",
    what="replaced, in one step",
    exit_code=0,
)
def test_a_result_that_exists_is_replaced(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("not even JSON")
    serve("--result-dir", str(tmp_path), "--result-filename", "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["completed"] == 40
    assert os.listdir(tmp_path) == ["r.json"]
