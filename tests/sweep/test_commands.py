"""Words of `sim` and `sweep`: whose they are, what is refused, what needs no vLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sendnn_bench import own_server, sim_command
from sendnn_bench.errors import Interrupted, ResultError, UsageError
from sendnn_bench.sweep.command import run_sweep
from tests.sweep.results import detailed, write


def test_whose_words_they_are() -> None:
    words = own_server.split(
        [
            *("--num-prompts", "5", "--sim-decode-ms", "20", "--target=stock"),
            *("--server-args", "--max-num-seqs 32 --chat-template 'a b'"),
            *("--server-args=--enforce-eager", "-v"),
        ]
    )
    assert words.client == ("--num-prompts", "5", "-v")
    assert words.server == (
        *("--max-num-seqs", "32", "--chat-template", "a b", "--enforce-eager"),
        *("--target", "stock", "--sim-decode-ms", "20"),
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--server-args"], "needs flags"),
        (["--server-args", "'a"], "cannot be read"),
        (["--server-args", "--port 1"], "--port is no flag for this server"),
        (["--server-args", "--model=x"], "--model is no flag"),
        (["--server-args", "--sim-decode-ms -1"], "'-1' is not allowed"),
        (["--sim-clock", "wrong"], "'wrong' is not allowed"),
        (["--port", "8000"], "--port names a server"),
        (["--base-url=http://a"], "--base-url names a server"),
        (["--from", "r.json"], "--from needs a server like"),
        (["--model"], "--model needs a name"),
        (["--decode-thresholds", "9"], "not LOW,HIGH"),
    ],
)
def test_what_sim_refuses(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        sim_command.run_sim(words)


def test_the_model_is_the_built_in_one_where_none_is_named() -> None:
    assert own_server.with_model(["--seed", "1"]) == (
        "sim-granite-8b",
        ("--model", "sim-granite-8b", "--seed", "1"),
    )
    assert own_server.with_model(["--model=m"]) == ("m", ("--model=m",))
    assert own_server.with_model(["--model", "m"])[0] == "m"


def test_results_and_log_lie_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(sim_command, "_run", lambda *call: seen.append(call))
    sim_command.run_sim(["--seed", "1"])
    sim_command.run_sim(["--result-dir", "there", "--sim-runner", "lean"])
    assert seen == [
        (
            "sim-granite-8b",
            (),
            ("--model", "sim-granite-8b", "--seed", "1", "--result-dir", "results"),
        ),
        (
            "sim-granite-8b",
            ("--sim-runner", "lean"),
            ("--model", "sim-granite-8b", "--result-dir", "there"),
        ),
    ]


def test_ctrl_c_before_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sim_command, "_run", interrupted)
    with pytest.raises(Interrupted, match="nothing was measured"):
        sim_command.run_sim([])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--vary"], "expected at least one argument"),
        (["--vary", "seed"], "is not NAME=VALUE"),
        (["--limit-s", "0"], "--limit-s 0 is not above 0"),
        (["--limit-s", "x"], "invalid float"),
        (["no-such.toml"], "no-such.toml cannot be read"),
        (["--base-url", "http://a", "--sim-decode-ms", "1"], "settings cannot be set or varied"),
        (["--base-url", "http://a", "--vary-server", "x=1"], "settings cannot be set or varied"),
    ],
)
def test_what_sweep_refuses(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        run_sweep(words)


def test_a_dry_run_prints_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--vary", "seed=0,1", "--vary-server", "max-num-seqs=8,16", "--sim-runner", "lean"]
    assert run_sweep([*words, "--num-prompts", "5", "--dry-run"]) == 0
    serve = "  sendnn-bench serve --model sim-granite-8b --num-prompts 5 --seed"
    server = "sendnn-bench sim-server sim-granite-8b --sim-runner lean --max-num-seqs"
    lines = [f"{server} 8", f"{serve} 0", f"{serve} 1", f"{server} 16", f"{serve} 0", f"{serve} 1"]
    assert capsys.readouterr().out.splitlines() == lines


WITHOUT_VLLM = """
import sys
sys.modules["vllm"] = sys.modules["torch"] = None  # importing them raises
from sendnn_bench.cli import main
sys.argv = ["sendnn-bench", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    "words",
    [("--help",), ("sim", "--help"), ("sweep", "--help"), ("sweep", "--report-only", ".")],
    ids=" ".join,
)
def test_what_needs_no_vllm(tmp_path: Path, words: tuple[str, ...]) -> None:
    write(tmp_path / "r.json", detailed(ttfts_s=[0.1]))
    row = {
        **{"server": [], "load": [["seed", "0"]], "server_flags": [], "client_flags": []},
        **{"status": "done", "exit_code": 0, "message": "", "file": "r.json"},
    }
    write(tmp_path / "sweep.json", {"schema": 1, "model": "m", "slo": {}, "rows": [row]})
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_VLLM, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("Usage:" if "--help" in words else "seed") in done.stdout


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"schema": 9}, "has the schema 9"),
        ({"schema": 1, "slo": {}, "model": "m"}, "is damaged"),
        ({"schema": 1, "slo": {}, "model": "m", "rows": [{"status": "odd"}]}, "is damaged"),
    ],
)
def test_summaries_that_cannot_be_read(tmp_path: Path, data: dict, named: str) -> None:
    write(tmp_path / "sweep.json", data)
    with pytest.raises(ResultError, match=named):
        run_sweep(["--report-only", str(tmp_path)])
