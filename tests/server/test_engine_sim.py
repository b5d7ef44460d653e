"""One simulated engine, driven as the hooks drive it, with requests that are plain strings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sendnn_bench.errors import SessionBusy, SimError
from sendnn_bench.protocol import Advance
from server_plugin import settings
from server_plugin.sim.costs import ConstantCost
from server_plugin.sim.engine_sim import EngineSim
from server_plugin.sim.fields import SimFields
from server_plugin.sim.recorder import PartInStep

MS = 1_000_000


def engine(tmp_path: Path, **variables: str) -> EngineSim[str]:
    environ = {settings.PREFIX + name: value for name, value in variables.items()}
    environ[settings.PREFIX + "METRICS_FILE"] = str(tmp_path / "metrics.jsonl")
    costs = ConstantCost(prefill_ns=100 * MS, decode_ns=50 * MS)
    return EngineSim(settings.load(environ), costs, block_size_tokens=64, chunk_size_tokens=512)


def step(sim: EngineSim[str], request_id: str, tokens: int, context: int, decode: bool) -> None:
    part = PartInStep(request_id, tokens, context, decode)
    open_step = sim.begin_step([part], kv_blocks_in_use=1)
    sim.end_step(open_step, tkv=context + tokens, new_tokens={request_id: 1})


def test_a_session_from_begin_to_end(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    answers: list[Advance] = []
    sim.begin("s", cold=True)
    assert not sim.may_run
    assert sim.arrive("a", 10, SimFields("s", 0, 0), "request a") is False
    sim.grant(None, 1, answers.append)
    assert sim.turn(idle=True) == ["request a"]
    assert sim.admit("a") == 0
    assert sim.may_run
    step(sim, "a", 10, 0, decode=False)
    step(sim, "a", 1, 10, decode=True)
    record = sim.finish("a", "stop")
    assert sim.turn(idle=True) == []
    assert record is not None
    assert record["token_times_ns"] == [100 * MS, 150 * MS]
    assert answers == [Advance(150 * MS, "finished", [0], [150 * MS])]
    closed = sim.end()
    assert (closed.steps, closed.requests, closed.foreign_requests) == (2, 1, 0)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(entry)["finish_reason"] for entry in lines] == ["stop"]


def test_frontend_terms_delay_arrivals_and_tokens(tmp_path: Path) -> None:
    """2 ms to the engine, 3 ms back: TTFT is 105 ms, and the client sees the end at 155 ms."""
    sim = engine(tmp_path)
    sim._costs.frontend_request_ns, sim._costs.frontend_token_ns = 2 * MS, 3 * MS
    answers: list[Advance] = []
    sim.begin("s", cold=True)
    sim.arrive("a", 10, SimFields("s", 0, 0), "request a")
    sim.grant(None, 1, answers.append)
    assert sim.turn(idle=True) == ["request a"]
    sim.admit("a")
    step(sim, "a", 10, 0, decode=False)
    step(sim, "a", 1, 10, decode=True)
    record = sim.finish("a", "stop")
    assert record is not None
    assert record["queued_time_s"] == 0.002
    assert record["token_times_ns"] == [105 * MS, 155 * MS]
    assert record["finish_ns"] == 155 * MS
    sim.turn(idle=True)
    assert answers == [Advance(155 * MS, "finished", [0], [155 * MS])]


def test_a_constant_host_overhead_is_part_of_each_step(tmp_path: Path) -> None:
    sim = engine(tmp_path, HOST_OVERHEAD="constant:1.5")
    sim.arrive("a", 10, SimFields(), "request a")
    step(sim, "a", 10, 0, decode=False)
    step(sim, "a", 1, 10, decode=True)
    assert sim.clock.now_ns == 153 * MS


def test_measured_host_overhead_is_charged_as_it_was_measured(tmp_path: Path) -> None:
    sim = engine(tmp_path, HOST_OVERHEAD="measured")
    sim.arrive("a", 10, SimFields(), "request a")
    sim.host_times.add("schedule", 3 * MS)
    step(sim, "a", 10, 0, decode=False)
    sim.host_times.add("update", 2 * MS)
    sim.host_times.add("mock", 500 * MS)
    step(sim, "a", 1, 10, decode=True)
    assert sim.clock.now_ns == 155 * MS


def test_a_cold_session_starts_at_zero_and_a_warm_one_goes_on(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    sim.begin("one", cold=True)
    sim.clock.charge(70)
    sim.end()
    sim.begin("two", cold=False)
    assert sim.clock.now_ns == 70
    sim.end()
    sim.begin("three", cold=True)
    assert sim.clock.now_ns == 0


def test_one_session_at_a_time(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    sim.begin("one", cold=True)
    with pytest.raises(SessionBusy, match="another client"):
        sim.begin("two", cold=True)


def test_no_session_beside_other_clients_requests(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    assert sim.arrive("foreign", 10, SimFields(), "request") is True
    with pytest.raises(SessionBusy, match="1 requests of other clients"):
        sim.begin("one", cold=True)
    sim.finish("foreign", "stop")
    sim.begin("one", cold=True)


def test_another_client_s_request_is_never_held_and_is_counted(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    sim.begin("s", cold=True)
    assert sim.arrive("foreign", 10, SimFields(), "request") is True
    assert sim.may_run
    sim.finish("foreign", "stop")
    assert not sim.may_run
    assert sim.end().foreign_requests == 1


def test_a_request_of_a_gone_session_is_not_kept(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    assert sim.arrive("a", 10, SimFields("gone", 0, 0), "request") is False
    assert not sim.known("a")


def test_calls_without_a_session_say_so(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    with pytest.raises(SimError, match="no simulation session"):
        sim.settle(0)


@pytest.mark.parametrize("clock", ["paced", "free"])
def test_other_clocks_have_no_sessions(tmp_path: Path, clock: str) -> None:
    sim = engine(tmp_path, CLOCK=clock)
    with pytest.raises(SimError, match=clock):
        sim.begin("s", cold=True)


def test_what_is_left_of_a_session_is_named(tmp_path: Path) -> None:
    sim = engine(tmp_path)
    sim.begin("s", cold=True)
    sim.arrive("a", 10, SimFields("s", 0, 0), "request a")
    assert sim.session_requests() == ["a"]
    assert sim.drop_staged(lambda _: True) == ["request a"]
    assert sim.describe()["session"] == "s"
