"""Both wires: our client at upstream's real server, upstream's client at our simulated one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sendnn_bench.results import load
from sendnn_bench.serve_command import run_serve
from tests.e2e.conftest import ENVIRONMENT, Server
from tests.e2e.real import start_real_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

LOAD = ("--dataset-name", "random", "--random-input-len", "600", "--random-output-len", "8")


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_real_server(tmp_path_factory.mktemp("real"))
    yield server
    server.stop()


def test_our_client_prints_and_merges_what_a_real_server_streams(
    real_server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_serve(
        [
            *("--model", "sim-granite-8b", "--base-url", real_server.url, *LOAD),
            *("--num-prompts", "6", "--max-concurrency", "3", "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--timeline"),
            *("--result-dir", str(tmp_path), "--result-filename", "real.json"),
        ]
    )
    out = capfd.readouterr().out
    for line in ("Total prefill chunks processed:          12", "Mean Queue Wait Time (ms):"):
        assert line in out
    assert "Scheduler Steps Waited" not in out, "real hardware does not send it"
    result = load(tmp_path / "real.json")
    assert result.block["mode"] == "real"
    for row in result.rows():
        record = row.record
        assert record is not None
        assert record["num_chunked_prefills"] == 2
        assert len(record["decode_latencies_s"]) == 7
        # Two clocks, but durations compare: the server's part lies within the client's.
        served_s = record["queued_time_s"] + record["prefill_elapsed_s"]
        assert 0 < served_s <= row.ttft_s + row.e2el_s
    assert (tmp_path / "real.timeline.html").stat().st_size > 100_000


def test_upstream_s_client_prints_and_merges_what_our_server_streams(
    spyre_server: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "sendnn_inference.benchmarks.spyre_bench_serve", "serve"]
    command += ["--model", "sim-granite-8b", "--base-url", spyre_server.url, *LOAD]
    command += ["--tokenizer", _tokenizer(), "--num-prompts", "4", "--save-result"]
    # Prompts that no other run has sent: without a session of ours the prefix cache stays warm.
    command += ["--seed", "77"]
    command += ["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "u.json"]
    done = subprocess.run(
        command,
        env=ENVIRONMENT | {"VLLM_PLUGINS": "", "HF_HUB_OFFLINE": "1"},
        timeout=200,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Total prefill chunks processed:          8" in done.stdout
    assert "Mean Chunk Prefill Latency (ms):         100.00" in done.stdout
    assert "Mean Decode Step Latency (ms):           50.00" in done.stdout
    result = json.loads((tmp_path / "u.json").read_text())
    assert [len(latencies) for latencies in result["spyre_decode_latencies_s"]] == [7] * 4


def _tokenizer() -> str:
    from sendnn_bench import models

    return models.resolve("sim-granite-8b")
