"""A saved result reported again: the lines that the run itself printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sendnn_bench.errors import UsageError
from sendnn_bench.report import console
from sendnn_bench.report.overview import overview
from sendnn_bench.report.report_command import report
from sendnn_bench.report.vllm_table import render_vllm
from sendnn_bench.results import Result
from tests.client.conftest import RANDOM, Serve
from tests.client.fake_server import FakeServer

Custom = Callable[..., list[str]]
HEAD = "============ Serving Benchmark Result ============"
EVERYTHING = [
    *("--request-rate", "4", "--max-concurrency", "2", "--goodput", "ttft:500"),
    *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "25,99.9"),
]


def tables(text: str) -> list[str]:
    """Lines from vLLM's headline to the last rule."""
    lines = text.splitlines()
    last = max(index for index, line in enumerate(lines) if line == "=" * 50)
    return lines[lines.index(HEAD) : last + 1]


def saved_without_rows(path: Path) -> Path:
    """The same result as it is without --save-detailed."""
    data = json.loads(path.read_text())
    kept = {key: value for key, value in data.items() if not isinstance(value, list)}
    short = path.with_name("short.json")
    short.write_text(json.dumps(kept))
    return short


@pytest.mark.parametrize("flags", [[], EVERYTHING], ids=["plain", "everything"])
def test_the_report_is_what_the_run_printed(
    server: FakeServer,
    serve: Serve,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
) -> None:
    serve(server, *RANDOM, "--num-prompts", "6", *flags)
    captured = capsys.readouterr()
    printed = tables(captured.out)
    assert any("SenDNN Metrics" in line for line in printed)
    again = report(tmp_path / "result.json", None, as_json=False)
    assert tables(again) == printed
    notes = [line for line in captured.err.splitlines() if line.startswith("Note: ")]
    assert [line for line in again.splitlines() if line.startswith("Note: ")] == notes
    short = report(saved_without_rows(tmp_path / "result.json"), None, as_json=False)
    assert tables(short) == printed


def test_failed_requests_are_told_again(
    server: FakeServer,
    serve: Serve,
    custom: Custom,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serve(server, *custom("a", "REJECT", "c"))
    printed = tables(capsys.readouterr().out)
    again = report(tmp_path / "result.json", None, as_json=False)
    assert tables(again) == printed
    assert "Requests without metrics:                1 (1 failed)" in again
    assert "Note: 1 of 3 requests failed: 1 x HTTP 400" in again


def test_without_a_tokenizer(
    serve: Serve, custom: Custom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--skip-tokenizer-init", "--percentile-metrics", "ttft,e2el"]
    with FakeServer() as fake:
        serve(fake, *custom("a", "b"), *flags)
    printed = tables(capsys.readouterr().out)
    assert tables(report(tmp_path / "result.json", None, as_json=False)) == printed


@pytest.fixture
def saved(server: FakeServer, serve: Serve, tmp_path: Path) -> Path:
    serve(server, *RANDOM, "--num-prompts", "6", "--request-rate", "4")
    return tmp_path / "result.json"


def test_other_percentiles_are_computed_from_the_rows(saved: Path) -> None:
    text = report(saved, "75,99", as_json=False)
    ttfts = json.loads(saved.read_text())["ttfts"]
    expected = 1000 * float(np.percentile(ttfts, 75))
    assert f"P75 TTFT (ms):                           {expected:<10.2f}" in text
    assert "P75 Queue Wait Time (ms):" in text
    assert "P50" not in text
    assert "Note: 6 requests are few for P99: it" in text
    assert "few for P90: it" in report(saved, "90", as_json=False)
    assert "few for" not in report(saved, "75", as_json=False)


def test_what_was_not_saved_is_said_to_be_missing(saved: Path) -> None:
    short = saved_without_rows(saved)
    text = report(short, "75,99", as_json=False)
    assert "P75 TTFT (ms)" not in text
    assert "P99 TTFT (ms)" in text
    assert "(--save-detailed): P75 of TTFT, P75 of TPOT, P75 of ITL, P75 of Queue Wait" in text


def test_json(saved: Path) -> None:
    found = json.loads(report(saved, "75", as_json=True))
    data = json.loads(saved.read_text())
    assert found["mode"] == "virtual"
    assert found["run"]["completed"] == 6
    assert "spyre_total_prefill_chunks" in found["totals"]
    by_key: dict[str, Any] = {metric["key"]: metric for metric in found["metrics"]}
    assert by_key["ttft"]["mean"] == data["mean_ttft_ms"]
    assert by_key["ttft"]["percentiles"].keys() == {"75"}
    assert by_key["queued_time_s"]["mean"] == data["spyre_mean_queued_time_ms"]
    assert by_key["queued_time_s"]["unit"] == "ms"
    assert found["missing"] == []


def test_a_result_of_plain_vllm_has_no_section(saved: Path) -> None:
    data = json.loads(saved.read_text())
    plain = {k: v for k, v in data.items() if not k.startswith("spyre_") and k != "sendnn"}
    saved.write_text(json.dumps({**plain, "output_lens": [0, *plain["output_lens"][1:]]}))
    text = report(saved, None, as_json=False)
    assert tables(text)[-1] == "=" * 50
    assert "SenDNN" not in text
    assert "Note: 6 requests are few for P99: it lies at or near the maximum." in text


def test_real_time_of_the_engine_is_told_again(saved: Path) -> None:
    data = json.loads(saved.read_text())
    phases = {"schedule": {"mean_us": 250.0, "p99_us": 1500.0, "total_s": 1.0}}
    data["sendnn"]["wall"]["engine"] = phases | {"update": {"mean_us": None}, "x": 3}
    saved.write_text(json.dumps(data))
    assert console.render_host(phases) in report(saved, None, as_json=False)
    assert json.loads(report(saved, None, as_json=True))["engine_host_us"] == phases


def test_a_damaged_block_is_passed_over(saved: Path) -> None:
    data = json.loads(saved.read_text())
    damaged = {"session": {"steps": float("inf"), "outside_steps": 5, "foreign_requests": "2"}}
    saved.write_text(json.dumps({**data, "request_rate": [], "sendnn": damaged}))
    text = report(saved, None, as_json=False)
    assert [line for line in text.splitlines() if line.startswith("Note")] == [
        "Note: 6 requests are few for P99: it lies at or near the maximum."
    ]


def test_numbers_of_drafts_and_diffusion() -> None:
    drafts = {
        "spec_decode_acceptance_rate": 50.0,
        "spec_decode_acceptance_length": 2.5,
        "spec_decode_num_drafts": 4,
        "spec_decode_draft_tokens": 12,
        "spec_decode_accepted_tokens": 6,
        "spec_decode_per_position_acceptance_rates": [0.75, 0.25],
    }
    lines = render_vllm(overview(Result(Path("x"), drafts))).splitlines()
    assert lines[1:] == [
        "---------------Speculative Decoding---------------",
        "Acceptance rate (%):                     50.00     ",
        "Acceptance length:                       2.50      ",
        "Drafts:                                  4         ",
        "Draft tokens:                            12        ",
        "Accepted tokens:                         6         ",
        "Per-position acceptance (%):",
        "  Position 0:                            75.00     ",
        "  Position 1:                            25.00     ",
        "=" * 50,
    ]
    both = drafts | {"diffusion_steps_per_canvas": 3.0}
    lines = render_vllm(overview(Result(Path("x"), both))).splitlines()
    assert "Denoising steps per canvas:              3.00      " in lines
    assert "Drafts:                                  4         " not in lines


@pytest.mark.parametrize("text", ["", "fifty", "50,", "101", "-1", "nan"])
def test_wrong_percentiles(saved_nothing: Path, text: str) -> None:
    with pytest.raises(UsageError, match="--percentiles"):
        report(saved_nothing, text, as_json=False)


@pytest.fixture
def saved_nothing(tmp_path: Path) -> Path:
    path = tmp_path / "empty.json"
    path.write_text("{}")
    return path
