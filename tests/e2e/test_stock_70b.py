"""A 70B model on eight simulated devices, served from a machine that could not hold its weights."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sendnn_bench.serve_command import run_serve
from tests.e2e.conftest import Server, start_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

SHAPE_70B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
PEAK_LIMIT_KIB = 6 * 1024**2


@pytest.fixture(scope="module")
def server_70b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The published shape of Llama 3.1 70B on 8 devices of 80 GiB."""
    log = tmp_path_factory.mktemp("stock-70b") / "server.log"
    server = start_server(
        log,
        *("--target", "stock"),
        *("--hf-overrides", json.dumps(SHAPE_70B)),
        *("--tensor-parallel-size", "8"),
        *("--max-model-len", "8192"),
    )
    yield server
    server.stop()


def process_tree(pid: int) -> list[int]:
    """A process and all its descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *itertools.chain.from_iterable(process_tree(int(child)) for child in children)]


def peak_kib(pid: int) -> int:
    """Largest resident size that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def test_a_70b_model_on_eight_devices_serves_500_requests(
    server_70b: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    run_serve(
        [
            *("--model", "sim-granite-8b", "--base-url", server_70b.url),
            *("--dataset-name", "random", "--num-prompts", "500", "--request-rate", "8"),
            *("--random-input-len", "512", "--random-output-len", "64"),
            *("--disable-tqdm", "--save-result", "--result-dir", str(tmp_path)),
            *("--result-filename", "70b.json"),
        ]
    )
    result = json.loads((tmp_path / "70b.json").read_text())
    assert (result["completed"], result["failed"]) == (500, 0)
    assert result["median_ttft_ms"] >= 100  # a prefill chunk on the virtual clock
    peaks = [peak_kib(pid) for pid in process_tree(server_70b.process.pid)]
    record_property("peak_memory_mib", sum(peaks) // 1024)
    print(f"peak resident memory of the server's {len(peaks)} processes: {sum(peaks) >> 10} MiB")
    # No weights: 131 GiB of them would be needed, and no KV cache.
    assert sum(peaks) < PEAK_LIMIT_KIB
    log = server_70b.log.read_text()
    assert "Model weights of one simulated device: 16.46 GiB" in log
