"""`serve --from RESULT.json`, and the compact report."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from sendnn_bench.bridge import options
from sendnn_bench.errors import ResultError, UsageError
from sendnn_bench.report.compact import print_compact
from sendnn_bench.report.overview import overview
from sendnn_bench.rerun import command_line, merge
from sendnn_bench.results import Result, load
from sendnn_bench.serve_command import run_serve
from tests.client.conftest import RANDOM, Serve
from tests.client.fake_server import FakeServer


@pytest.mark.parametrize(
    ("saved", "further", "merged"),
    [
        ("--seed 1 --warm", "", "--seed 1 --warm"),
        ("--seed 1 --warm", "--seed 2", "--warm --seed 2"),
        ("--seed=1 --goodput ttft:5 tpot:6 -v", "--goodput ttft:9", "--seed=1 -v --goodput ttft:9"),
        ("--num_prompts 5", "--num-prompts=6", "--num-prompts=6"),
        ("--temperature -1 --seed 3", "--seed 4", "--temperature -1 --seed 4"),
        ("--save-result --result-dir a --result-filename b", "", "--save-result"),
        ("--append-result --result-filename=b --seed 1", "", "--save-result --seed 1"),
        ("--append-result", "--save-result", "--save-result"),
        ("--append-result", "--append-result", "--save-result --append-result"),
        ("--result-dir a", "--result-dir c", "--result-dir c"),
        ("--base-url http://a:1 --seed 1", "--port 2", "--seed 1 --port 2"),
        ("--host a --port 1", "--base-url http://b:2", "--base-url http://b:2"),
        (
            "--input-len 5 --output-len 6",
            "--random-input-len 7",
            "--output-len 6 --random-input-len 7",
        ),
    ],
)
def test_further_flags_replace_saved_ones(saved: str, further: str, merged: str) -> None:
    assert merge(saved.split(), further.split()) == merged.split()


def test_source_is_split_off_wherever_it_stands() -> None:
    assert options.split_file(["--seed", "1", "--from=a.json", "-v"], "--from") == (
        Path("a.json"),
        ["--seed", "1", "-v"],
    )
    assert options.split_file(["--seed", "1"], "--from") == (None, ["--seed", "1"])
    with pytest.raises(UsageError, match="--from needs a file"):
        options.split_file(["--from"], "--from")


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"command": None},
        {"command": ["vllm", "bench"]},
        {"command": ["sendnn-bench", "serve", 3]},
    ],
)
def test_a_result_without_a_command_cannot_be_run_again(tmp_path: Path, block: object) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"sendnn": block}))
    with pytest.raises(ResultError, match="does not say which command"):
        command_line(path, [])


def test_the_same_run_again_and_with_another_rate(
    server: FakeServer, serve: Serve, tmp_path: Path
) -> None:
    first = serve(server, *RANDOM, "--num-prompts", "4", "--request-rate", "4")
    source, again = tmp_path / "result.json", tmp_path / "again"
    before = source.read_bytes()
    run_serve(["--from", str(source), "--result-dir", str(again), "--result-filename", "a.json"])
    target = ["--result-dir", str(again), "--result-filename", "b.json"]
    run_serve([f"--from={again / 'a.json'}", *target, "--request-rate", "8"])
    assert source.read_bytes() == before
    same, other = load(again / "a.json"), load(again / "b.json")
    assert same.data["start_times"] == first["start_times"]
    assert same.data["mean_ttft_ms"] == first["mean_ttft_ms"]
    assert other.data["request_rate"] == 8.0
    assert other.data["input_lens"] == first["input_lens"]
    command = other.block["command"]
    assert not any(word.startswith("--from") for word in command)
    assert command.count("--request-rate") == command.count("--result-dir") == 1


def test_compact_report_replaces_our_section_alone(
    server: FakeServer, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    result = serve(server, *RANDOM, "--num-prompts", "4", "--report", "rich")
    lines = capsys.readouterr().out.splitlines()
    assert any("Serving Benchmark Result" in line for line in lines)
    assert any(line.startswith("P99 TTFT (ms):") for line in lines)
    assert not any("SenDNN Metrics" in line for line in lines)
    head = next(line for line in lines if line.startswith("Metric "))
    assert head.split() == ["Metric", "Mean", "Median", "P50", "P99", "P100"]
    (ttft,) = (line.split() for line in lines if line.startswith("Time to First Token  "))
    assert ttft[-5:-3] == [f"{result['mean_ttft_ms']:.2f}", f"{result['median_ttft_ms']:.2f}"]
    (queue,) = (line.split() for line in lines if line.startswith("Queue Wait Time  "))
    assert queue[-1] == f"{result['spyre_p100_queued_time_ms']:.2f}"
    assert any(line.startswith("Total prefill chunks processed:") for line in lines)


def test_compact_report_leaves_unknown_percentiles_empty() -> None:
    data = {"mean_ttft_ms": 10.0, "median_ttft_ms": 9.0, "p99_ttft_ms": 20.0}
    out = io.StringIO()
    print_compact(overview(Result(Path("x"), data), [50.0, 99.0]), out)
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["Metric", "Mean", "Median", "P50", "P99"],
        ["Time", "to", "First", "Token", "ms", "10.00", "9.00", "20.00"],
    ]
    assert "\x1b" not in out.getvalue()


def test_unknown_kind_of_report(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--report", "pretty"])
    assert "invalid choice: 'pretty'" in capsys.readouterr().err
