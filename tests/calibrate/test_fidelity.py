"""The error table of the fidelity experiment, and that its plan is sound, without any server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fidelity
from benchmarks.fidelity_report import STATISTICS, Line, lines_of, load_table, summary
from sendnn_bench.client_worker import ClientWorker
from sendnn_bench.profile_spec import DecodeLine, LinearCosts, PrefillLine, Profile
from sendnn_bench.results import Result
from tests.calibrate.engine import result


def run(slower: float = 1.0) -> Result:
    costs = LinearCosts(PrefillLine(90 * slower), DecodeLine(30 * slower, 2 * slower))
    known = Profile(name="n", source="s", costs=costs)
    found = result(known, [300 + 7 * k for k in range(20)], [12] * 20, 3)
    times = {"request_throughput": 2.0 / slower, "duration": 10.0 * slower}
    return replace(found, data=found.data | times)


def test_equal_runs_have_no_error() -> None:
    lines = lines_of([run(), run()], [run()])
    assert {line.metric for line in lines} >= {
        "Time to First Token",
        "Time per Output Token",
        "Inter-Token Latency",
        "End-to-End Latency",
        "Queue Wait Time",
        "request throughput",
    }
    assert len(lines) == 2 + 8 * len(STATISTICS)
    assert all(line.error == 0 and line.spread == 0 and line.met for line in lines)


def test_a_slower_simulation_misses_and_says_so() -> None:
    lines = lines_of([run(0.99), run(1.01)], [run(1.02), run(1.04)])
    mean = next(line for line in lines if line.statistic == "mean")
    assert mean.error == pytest.approx(0.03, abs=1e-6)
    assert mean.spread == pytest.approx(0.01, abs=1e-6)
    assert not mean.met
    assert "+3.00 % | 2 % | **missed** |" in load_table([mean])
    assert "0 of 1 met, worst +3.00 %" in summary([mean])


def test_the_real_runs_own_spread_is_allowed() -> None:
    assert Line("m", "mean", (95.0, 105.0), (104.0,), goal=0.02).met
    assert not Line("m", "mean", (99.0, 101.0), (104.0,), goal=0.02).met


def test_held_out_loads_were_not_used_for_fitting() -> None:
    def shape(load: fidelity.Load) -> tuple[object, ...]:
        return load.input_tokens, load.output_tokens, load.concurrency, load.share

    fitted = {shape(load) for load in fidelity.CALIBRATION}
    assert not fitted & {shape(load) for load in fidelity.HELD_OUT}
    loads = (*fidelity.CALIBRATION, *fidelity.HELD_OUT)
    assert len({load.seed for load in loads}) == len({load.name for load in loads}) == len(loads)
    assert fidelity.CAPACITY in {load.name for load in fidelity.CALIBRATION}
    # the longest prompt and output that a range ratio of 0.5 can draw fit in the model
    assert all(1.5 * (load.input_tokens + load.output_tokens) < 2048 for load in loads)


def test_the_commands_differ_in_pace_alone(tmp_path: Path) -> None:
    server = fidelity.Server("http://127.0.0.1:1", tmp_path, ClientWorker(tmp_path / "log"))
    closed, opened = (
        fidelity.client_flags(load, server, tmp_path / "x.json", 2.0)
        for load in (fidelity.HELD_OUT[0], fidelity.HELD_OUT[-1])
    )
    assert closed[closed.index("--max-concurrency") + 1] == "3"
    assert "--request-rate" not in closed
    assert opened[opened.index("--request-rate") + 1] == "1.8000"
    assert "--max-concurrency" not in opened


def test_the_model_is_small(tmp_path: Path) -> None:
    model = fidelity.make_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    assert config["num_hidden_layers"] == 2
    assert config["architectures"] == ["GraniteForCausalLM"]
    assert config["hidden_size"] % config["num_attention_heads"] == 0
    assert (model / "tokenizer.json").exists()
