"""The reproducer that a failed engine leaves behind, and its replay, against the fake server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sendnn_bench import reproducer
from sendnn_bench.errors import EngineFailed, ResultError, UsageError
from sendnn_bench.protocol import ServerInfo
from sendnn_bench.replay import check_server, replay
from tests.client.conftest import BASIC
from tests.client.fake_server import FakeServer

FLAGS = ("--num-prompts", "6", "--max-concurrency", "2", "--header", "Authorization=Bearer key")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reproducer of a run whose server fails with its third request."""
    from sendnn_bench.serve_command import run_serve

    folder = tmp_path_factory.mktemp("run")
    saving = ("--save-result", "--result-dir", str(folder), "--result-filename", "r.json")
    with (
        FakeServer(fail_after=3) as fake,
        pytest.raises(EngineFailed, match=r"planted\n2 requests .*r\.partial\.json") as caught,
    ):
        run_serve([*fake.argv, *BASIC, *FLAGS, *saving])
    assert str(folder / "r.reproducer.json") in str(caught.value)
    return folder / "r.reproducer.json"


def test_it_holds_everything_that_was_sent_and_no_key(recorded: Path) -> None:
    loaded = reproducer.load(recorded)
    assert [request.seq for request in loaded.requests] == [0, 1, 2, 3]
    assert [request.arrival_ns for request in loaded.requests] == sorted(
        request.arrival_ns for request in loaded.requests
    )
    assert all(request.path == "/v1/completions" for request in loaded.requests)
    assert all(request.body["prompt"] for request in loaded.requests)
    assert loaded.failure.state["free_kv_blocks"] == 3
    assert loaded.server.target == "fake"
    assert "Bearer key" not in recorded.read_text()


def test_the_same_server_fails_again_in_the_same_way(recorded: Path) -> None:
    with (
        FakeServer(fail_after=3) as fake,
        pytest.raises(EngineFailed, match=r"reproduced: after step .* AssertionError: planted"),
    ):
        replay(recorded, fake.argv)
    sent = [(body["prompt"], body["max_tokens"]) for body in fake.bodies]
    wanted = [(r.body["prompt"], r.body["max_tokens"]) for r in reproducer.load(recorded).requests]
    assert sorted(sent) == sorted(wanted), "those of one time come in any order"


def test_another_failure_is_told_apart(recorded: Path) -> None:
    with (
        FakeServer(fail_after=2) as fake,
        pytest.raises(EngineFailed, match="in another way: after step"),
    ):
        replay(recorded, fake.argv)


def test_a_mended_server_runs_to_the_end(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FakeServer() as fake:
        replay(recorded, fake.argv)
        assert fake.session is None
    assert "All 4 requests ran to their end" in capsys.readouterr().err


INFO = ServerInfo(2, "virtual", "spyre", "m", {"kind": "constant", "decode_ms": 50}, {}, {}, {})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (None, "not simulated"),
        (replace(INFO, model="n"), "model: 'm' recorded, 'n' here"),
        (replace(INFO, cost_model={"kind": "constant", "decode_ms": 60}), "decode_ms: 50 recorded"),
        (replace(INFO, limits={"max_num_seqs": 8}), "max_num_seqs: None recorded, 8 here"),
        (replace(INFO, clock="paced"), "clock: 'virtual' recorded, 'paced' here"),
    ],
)
def test_another_server_is_refused(other: ServerInfo | None, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_server(INFO, other)


def test_what_has_no_effect_may_differ() -> None:
    settings = {"SENDNN_INFERENCE_SIM_METRICS_FILE": "x"}
    check_server(INFO, replace(INFO, settings=settings, versions={"vllm": "1"}, flags=["serve"]))


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data.pop("sendnn_reproducer"), "no reproducer"),
        (lambda data: data.update(sendnn_reproducer=2), "a reproducer of version 2"),
        (lambda data: data.update(more=1), "'more' in the file is unknown"),
        (lambda data: data["server"].pop("clock"), "'clock' in server is missing"),
        (lambda data: data["failure"].update(step="1"), "'step' in failure is str, not int"),
        (lambda data: data["requests"].append([]), r"requests\[4\] is list"),
        (lambda data: data["requests"][1].update(seq=None), r"'seq' in requests\[1\]"),
        (lambda data: data.update(command=[1]), "command holds a int"),
    ],
)
def test_a_damaged_file_is_one_clear_error(
    recorded: Path, tmp_path: Path, change: Change, told: str
) -> None:
    data = json.loads(recorded.read_text())
    change(data)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ResultError, match=told):
        reproducer.load(path)
