"""The /sim routes against hostile and broken clients: 13,000 calls, none answered with 5xx, none
left hanging, and none that touches the session of somebody else.

The routes, vLLM's error handlers, the gate and the hooks are the real ones; the engine behind them
is `fake_core`. Importing vLLM takes long, hence e2e.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sendnn_bench.protocol import INFO_ROUTE, PROTOCOL_VERSION, SESSION_ROUTE
from server_plugin.sim.fields import MAX_COUNT, MAX_NS, SimFields
from tests.server.fake_core import MS, FakeCore, FakeEngineClient, fake_vllm_config

pytestmark = pytest.mark.e2e

CALL_LIMIT_S = 5.0
CALLS = 20
"""Calls of one example; times the examples, the number of inputs."""

PHASES = (Phase.explicit, Phase.generate)
"""No shrinking: the message names the one call that failed, and shrinking takes minutes."""

KEY = "a key"


class World:
    """One API server in this process, with a loop of its own."""

    def __init__(self, tokens: list[str]) -> None:
        from vllm.entrypoints.serve.exception_handling.register import init_exception_handler

        from server_plugin.http import routes, sessions

        self.loop = asyncio.new_event_loop()
        self.core = FakeCore()
        self.sessions = sessions.SESSIONS
        app = FastAPI()
        app.state.args = SimpleNamespace(log_error_stack=False)
        app.include_router(routes.router)
        init_exception_handler(app)
        self.controller = self.run(self._controller(routes.Controller, tokens))
        app.state.sendnn_sim = self.controller
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test")

    async def _controller(self, kind: Any, tokens: list[str]) -> Any:
        return kind(FakeEngineClient(self.core), fake_vllm_config(), tokens, "a model")

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, CALL_LIMIT_S * CALLS))

    async def send(self, call: Call) -> httpx.Response:
        headers = [(name.encode(), value.encode("latin-1")) for name, value in call.headers]
        request = self.http.build_request(
            call.method, call.path, content=call.body, headers=headers
        )
        return await asyncio.wait_for(self.http.send(request), CALL_LIMIT_S)

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return await asyncio.wait_for(
            self.http.post(path, json=body, headers=headers), CALL_LIMIT_S
        )

    async def advance(
        self, name: str, grant: int, until_ns: int | None, submitted: int
    ) -> httpx.Response:
        body = {"grant": grant, "until_ns": until_ns, "submitted": submitted}
        return await self.post(f"{SESSION_ROUTE}/{name}/advance", body)

    async def open(self, **headers: str) -> str:
        body = {"protocol": PROTOCOL_VERSION}
        return str((await self.post(SESSION_ROUTE, body, **headers)).json()["session"])

    def close(self) -> None:
        self.sessions.closed()
        self.controller._expiry.cancel()
        self.run(self.http.aclose())
        self.loop.close()


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]


@pytest.fixture
def make_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    from server_plugin.http import routes

    monkeypatch.setattr(routes, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(routes, "DISCONNECT_POLL_S", 0.001)
    made: list[World] = []

    def make(*tokens: str) -> World:
        made.append(World(list(tokens)))
        return made[-1]

    yield make
    for world in made:
        world.close()


# What is sent

INTEGERS = st.one_of(
    st.integers(-2, 40),
    st.sampled_from([2**31 - 1, MAX_COUNT, MAX_COUNT + 1, MAX_NS, MAX_NS + 1, 2**64, -(2**63)]),
    st.integers(),
    st.just(10**4000),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.floats(), st.text(max_size=20), st.just("\ud800")
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = ("protocol", "warm", "grant", "until_ns", "submitted", "seq")
MOSTLY_RIGHT = st.one_of(
    st.fixed_dictionaries({"protocol": st.just(PROTOCOL_VERSION), "warm": st.booleans()}),
    st.fixed_dictionaries(
        {"grant": INTEGERS, "until_ns": st.none() | INTEGERS, "submitted": INTEGERS}
    ),
    st.fixed_dictionaries({"seq": INTEGERS}),
    st.dictionaries(st.sampled_from(FIELDS), SCALARS),
    st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), JSON, max_size=4),
)
BODIES = st.one_of(
    MOSTLY_RIGHT.map(lambda value: json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"",
            b"{",
            b"[" * 100_000,
            b'{"seq": 1' + b"0" * 10_000 + b"}",
            b'{"submitted": NaN, "until_ns": -Infinity}',
            b'{"until_ns": 1e999, "submitted": 1}',
            b'{"seq": 1, "seq": 2}',
            b"\xff\xfe{}",
            b'{"seq": "\\ud800"}',
            b'{"\\ud800": 1, "seq": 1}',
        ]
    ),
)
NAMES = st.one_of(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
    st.sampled_from(["..", "%2e%2e", "%00", "%ff", "null", "None", "%F0%9F%92%A9", "a%2Fb"]),
).map(lambda name: name.replace("?", "").replace("#", "") or "x")
HEADERS = st.lists(
    st.one_of(
        st.tuples(
            st.just("Content-Type"),
            st.sampled_from(["application/json", "text/plain", "application/xml", "", "json;;;"]),
        ),
        st.tuples(st.just("Content-Length"), st.sampled_from(["0", "-1", "x", "99"])),
        st.tuples(
            st.just("Authorization"),
            st.sampled_from(["Bearer", "Bearer ", "Basic YQ==", "Bearer \xff", "bearer x", KEY]),
        ),
    ),
    max_size=2,
).map(tuple)


def calls(names: st.SearchStrategy[str], headers: Any = HEADERS) -> st.SearchStrategy[Call]:
    session = st.builds(
        lambda name, tail: f"{SESSION_ROUTE}/{name}{tail}",
        names,
        st.sampled_from(["/advance", "/settle", "", "/", "/advance/", "/nothing"]),
    )
    fixed = st.sampled_from([INFO_ROUTE, "/sim/status", SESSION_ROUTE, "/sim", "/sim/"])
    methods = st.sampled_from(["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", *["POST"] * 6])
    return st.builds(Call, methods, session | fixed, BODIES, headers)


# What must hold


def check_status(call: Call, response: httpx.Response) -> None:
    assert response.status_code < 500, (call, response.text)
    if response.status_code >= 400 and call.method != "HEAD":
        assert response.json(), call


@pytest.mark.timeout(300)
@pytest.mark.fault(
    section="routes",
    fault="6,000 calls that do not know the session's name",
    what="the running session is left as it was",
)
def test_strangers_leave_a_running_session_alone(make_world: Callable[..., World]) -> None:
    """6,000 calls that do not know the session's name, while it is halfway through its run."""
    world = make_world()
    name = world.run(world.open())
    for seq in range(2):
        world.core.submit(f"r{seq}", 4, SimFields(name, seq, seq * 20 * MS))
    world.run(world.advance(name, 1, 150 * MS, 2))
    before = world.core.scheduler.sim.describe()
    assert len(before["requests"]) == 2

    @settings(max_examples=300, phases=PHASES)
    @given(st.lists(calls(NAMES), min_size=CALLS, max_size=CALLS))
    def attack(hostile: list[Call]) -> None:
        async def all_of_them() -> None:
            for call in hostile:
                check_status(call, await world.send(call))

        world.run(all_of_them())
        assert world.core.scheduler.sim.describe() == before
        assert world.sessions.current == name

    attack()
    for number in (2, 3, 4):
        world.run(world.advance(name, number, None, 2))
    assert world.core.records["r0"]["token_times_ns"] == [t * MS for t in (100, 150, 200, 250)]
    assert world.core.records["r1"]["token_times_ns"] == [t * MS for t in (350, 400, 450, 500)]


@pytest.mark.timeout(300)
@pytest.mark.fault(
    section="routes",
    fault="6,000 wrong calls of a client that holds the session",
    what="its own session suffers; the next run is exact",
)
def test_a_broken_client_harms_only_its_own_session(make_world: Callable[..., World]) -> None:
    """6,000 calls by clients that hold the session, then a clean run."""
    world = make_world()

    @settings(max_examples=300, phases=PHASES)
    @given(st.lists(calls(st.just("{name}")), min_size=CALLS, max_size=CALLS))
    def misbehave(broken: list[Call]) -> None:
        async def all_of_them() -> None:
            name = world.sessions.current or await world.open()
            for call in broken:
                path = call.path.replace("{name}", name)
                response = await world.send(Call(call.method, path, call.body, call.headers))
                check_status(call, response)
                name = world.sessions.current or name

        world.run(all_of_them())

    misbehave()
    if world.sessions.current is not None:
        world.run(world.http.delete(f"{SESSION_ROUTE}/{world.sessions.current}"))
    name = world.run(world.open())
    world.core.submit("r", 3, SimFields(name, 0, 0))
    answer = world.run(world.advance(name, 1, None, 1))
    assert answer.json()["finished"] == [0]
    assert world.core.records["r"]["token_times_ns"] == [t * MS for t in (100, 150, 200)]


@pytest.mark.timeout(300)
@pytest.mark.fault(
    section="routes",
    fault="1,000 calls with a wrong key or none",
    what="401 before anything is read",
)
def test_without_the_key_every_route_is_closed(make_world: Callable[..., World]) -> None:
    """1,000 calls with wrong keys or none. What no route answers to is 404 or 405 as ever."""
    world = make_world(KEY)
    name = world.run(world.open(Authorization=f"Bearer {KEY}"))
    before = world.core.scheduler.sim.describe()

    @settings(max_examples=50, phases=PHASES)
    @given(st.lists(calls(st.just(name) | NAMES), min_size=CALLS, max_size=CALLS))
    def knock(hostile: list[Call]) -> None:
        async def all_of_them() -> None:
            for call in hostile:
                response = await world.send(call)
                check_status(call, response)
                assert response.status_code >= 300, (call, response.text)

        world.run(all_of_them())
        assert world.core.scheduler.sim.describe() == before

    knock()
    for method, path, body in (
        ("GET", INFO_ROUTE, None),
        ("GET", "/sim/status", None),
        ("POST", SESSION_ROUTE, {"protocol": PROTOCOL_VERSION}),
        ("POST", SESSION_ROUTE, {"protocol": "no number"}),
        ("POST", f"{SESSION_ROUTE}/{name}/advance", {"grant": 1, "until_ns": None, "submitted": 0}),
        ("POST", f"{SESSION_ROUTE}/{name}/settle", {"seq": 1}),
        ("DELETE", f"{SESSION_ROUTE}/{name}", None),
    ):
        assert world.run(world.http.request(method, path, json=body)).status_code == 401, path
    opened = world.run(world.http.get(INFO_ROUTE, headers={"Authorization": f"Bearer {KEY}"}))
    assert opened.json()["protocol"] == PROTOCOL_VERSION


@pytest.mark.parametrize(
    "body",
    [
        {"until_ns": None, "submitted": -1},
        {"until_ns": -1, "submitted": 0},
        {"until_ns": MAX_NS + 1, "submitted": 0},
        {"until_ns": None, "submitted": MAX_COUNT + 1},
        {"until_ns": 10**400, "submitted": 0},
        {"until_ns": float("nan"), "submitted": 0},
        {"until_ns": 1.0, "submitted": 0},
        {"until_ns": "1", "submitted": 0},
        {"until_ns": 1, "submitted": True},
        {"until_ns": 1, "submitted": [0]},
        {"until_ns": 1, "submitted": 0, "more": 1},
        {"grant": 0},
        {"grant": 1.0},
        {"grant": MAX_COUNT + 1},
    ],
)
def test_each_wrong_field_is_refused(make_world: Callable[..., World], body: Any) -> None:
    world = make_world()
    name = world.run(world.open())
    whole = {"grant": 1, "until_ns": None, "submitted": 0, **body}
    call = Call("POST", f"{SESSION_ROUTE}/{name}/advance", json.dumps(whole).encode(), ())
    assert world.run(world.send(call)).status_code == 400


def test_two_grants_at_once_get_one_answer(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    from server_plugin.http import routes

    monkeypatch.setattr(routes, "HEARTBEAT_S", 60.0)
    world = make_world()

    async def scenario() -> list[httpx.Response]:
        name = await world.open()
        both = [asyncio.create_task(world.advance(name, 1, None, 1)) for _ in range(2)]
        while world.sessions.waiting < 2:
            await asyncio.sleep(0)
        world.core.submit("r", 2, SimFields(name, 0, 0))
        return list(await asyncio.gather(*both))

    first, second = world.run(scenario())
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert first.json()["finished"] == [0]


@pytest.mark.fault(
    section="routes",
    fault="grant repeated, or out of turn",
    what="the same answer; 409",
)
def test_a_grant_is_executed_once_and_in_turn(make_world: Callable[..., World]) -> None:
    """The window in which a client may lose an answer: after the work, before it has read it."""
    world = make_world()
    name = world.run(world.open())
    world.core.submit("r", 4, SimFields(name, 0, 0))
    first = world.run(world.advance(name, 1, 200 * MS, 1))
    steps = world.core.scheduler.sim.recorder.steps
    again = world.run(world.advance(name, 1, 200 * MS, 1))
    assert again.json() == first.json()
    assert first.json()["now_ns"] == 200 * MS
    assert world.core.scheduler.sim.recorder.steps == steps
    for number in (3, 7):
        refused = world.run(world.advance(name, number, None, 1))
        assert (refused.status_code, "out of turn" in refused.text) == (409, True)
    assert world.run(world.advance(name, 2, None, 1)).json()["finished"] == [0]
    assert world.run(world.advance(name, 1, None, 1)).status_code == 409


def test_a_session_that_ends_under_an_open_grant(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    from server_plugin.http import routes

    monkeypatch.setattr(routes, "HEARTBEAT_S", 60.0)
    world = make_world()

    async def scenario() -> httpx.Response:
        name = await world.open()
        waiting = asyncio.create_task(world.advance(name, 1, None, 1))
        while world.sessions.waiting == 0:
            await asyncio.sleep(0)
        assert (await world.http.delete(f"{SESSION_ROUTE}/{name}")).status_code == 200
        return await waiting

    response = world.run(scenario())
    assert response.status_code == 410
    assert "was ended" in response.text


def test_the_state_of_an_absurd_grant_is_told_at_once(make_world: Callable[..., World]) -> None:
    world = make_world()
    name = world.run(world.open())
    answer = world.run(world.advance(name, 1, None, MAX_COUNT)).json()
    assert (answer["reason"], answer["now_ns"]) == ("until", 0)
    status = world.run(world.http.get("/sim/status")).json()
    assert "not yet received [0, 1, 2" in status["gate"]
