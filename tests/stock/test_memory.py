"""KV cache and weights of the stock target against arithmetic and against logs of real GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stock.published import GPU_GIB, LOGGED, UTILIZATION, write_model

pytestmark = pytest.mark.e2e  # lays out models with vLLM, which takes a minute

GIB = 1024**3
GPU_BYTES = int(GPU_GIB * UTILIZATION * GIB)
ROUNDING_GIB = 0.005

CASES: dict[str, dict[str, Any]] = {
    **{
        f"{log.model} {log.kv_cache_dtype}": {
            "model": log.model,
            "kv_cache_dtype": log.kv_cache_dtype,
            "kv_bytes": int(log.kv_gib * GIB),
        }
        for log in LOGGED
    },
    "free": {"model": "llama-3.1-8b"},
    "qwen free": {"model": "qwen2.5-7b"},
    "tp2": {"model": "llama-3.1-8b", "tensor_parallel_size": 2},
    "tp4": {"model": "llama-3.1-8b", "tensor_parallel_size": 4},
    "pp2": {"model": "llama-3.1-8b", "pipeline_parallel_size": 2},
    "pp4": {"model": "llama-3.1-8b", "pipeline_parallel_size": 4},
    "fp8 weights": {
        "model": "llama-3.1-8b",
        "hf_overrides": {
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}
        },
    },
    "online": {"model": "llama-3.1-8b", "quantization": "fp8"},
    "70b": {"model": "llama-3.1-70b"},
    "70b tp8": {"model": "llama-3.1-70b", "tensor_parallel_size": 8},
    "70b tp16": {"model": "llama-3.1-70b", "tensor_parallel_size": 16},
    "mla": {"model": "deepseek-v2-lite"},
    "mla tp2": {"model": "deepseek-v2-lite", "tensor_parallel_size": 2},
    "window": {"model": "mistral-7b-v0.1"},
    "hybrid": {"model": "granite-4.0-h-micro"},
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All cases, laid out in one process: importing vLLM is what takes time."""
    folder = tmp_path_factory.mktemp("models")
    paths = {case["model"]: "" for case in CASES.values()}
    paths = {name: str(write_model(folder, name)) for name in paths}
    cases = [
        {"memory_bytes": GPU_BYTES, **case, "model": paths[case["model"]]}
        for case in CASES.values()
    ]
    asked, answered = folder / "asked.json", folder / "answered.json"
    asked.write_text(json.dumps(cases))
    done = subprocess.run(
        [sys.executable, "-m", "tests.stock.layout", str(asked), str(answered)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            "SENDNN_INFERENCE_SIM_MODE": "1",
            "SENDNN_INFERENCE_SIM_TARGET": "stock",
            "VLLM_PLUGINS": "sendnn_bench_sim",
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(CASES, json.loads(answered.read_text()), strict=True))


@pytest.mark.parametrize("log", LOGGED, ids=lambda log: f"{log.model} {log.kv_cache_dtype}")
def test_tokens_in_the_kv_memory_that_vllm_logged(layouts: Any, log: Any) -> None:
    layout = layouts[f"{log.model} {log.kv_cache_dtype}"]
    tokens = layout["blocks"] * layout["block_size"]
    # The log rounds the KV memory to 0.01 GiB; beside that, only one block may differ.
    tolerance = ROUNDING_GIB / log.kv_gib + layout["block_size"] / log.kv_tokens
    assert tokens == pytest.approx(log.kv_tokens, rel=tolerance)


@pytest.mark.parametrize(
    ("case", "logged_gib"),
    [
        ("free", 14.99),
        ("tp2", 7.51),
        ("tp4", 3.77),
        ("pp2", 7.51),
        ("pp4", 4.26),
        ("fp8 weights", 8.49),
        ("qwen free", 14.25),
    ],
)
def test_weights_that_vllm_logged(layouts: Any, case: str, logged_gib: float) -> None:
    # vLLM logs the growth of the allocator, which rounds up: within 1 %.
    assert layouts[case]["weights_bytes"] / GIB == pytest.approx(logged_gib, rel=0.01)


@pytest.mark.parametrize(("case", "log"), [("free", LOGGED[0]), ("qwen free", LOGGED[2])])
def test_what_the_simulation_leaves_out_is_what_vllm_logs_beside_weights(
    layouts: Any, case: str, log: Any
) -> None:
    left_gib = layouts[case]["left_bytes"] / GIB
    assert left_gib - log.kv_gib == pytest.approx(log.other_gib, abs=0.1)
    # Which is the tolerance of the block count itself: at most 5 % too many.
    assert 1 < layouts[case]["blocks"] * layouts[case]["block_size"] / log.kv_tokens < 1.05


def test_a_70b_model_needs_parallel_devices(layouts: Any) -> None:
    assert (
        "the weights take 131.45 GiB of a device that offers 75.23 GiB" in layouts["70b"]["error"]
    )
    tp8 = layouts["70b tp8"]
    # 8 KV heads over 8 ranks: one head of 128 values, keys and values, 2 bytes, 80 layers.
    assert tp8["blocks"] == tp8["left_bytes"] // (16 * 1 * 128 * 2 * 2 * 80)
    # Beyond the number of KV heads they are kept twice, so a block stays as large.
    tp16 = layouts["70b tp16"]
    assert tp16["blocks"] == tp16["left_bytes"] // (16 * 1 * 128 * 2 * 2 * 80)


def test_latent_attention_is_not_divided(layouts: Any) -> None:
    for case in ("mla", "mla tp2"):
        layout = layouts[case]
        assert layout["kinds"] == ["MLAAttentionSpec"]
        # One latent of 512 + 64 values of 2 bytes a token and layer, whatever the ranks.
        assert layout["blocks"] == layout["left_bytes"] // (64 * 576 * 2 * 27)


def test_sliding_windows_and_hybrids_keep_vllms_own_specifications(layouts: Any) -> None:
    assert layouts["window"]["kinds"] == ["SlidingWindowSpec"]
    assert layouts["hybrid"]["kinds"] == ["FullAttentionSpec", "MambaSpec"]
    assert layouts["hybrid"]["layers"] == 40


def test_pipeline_stages_divide_layers_and_run_one_batch_at_a_time(layouts: Any) -> None:
    assert (layouts["pp2"]["layers"], layouts["pp4"]["layers"]) == (16, 8)
    assert layouts["pp2"]["batches"] == 1


def test_quantization_while_loading_is_refused(layouts: Any) -> None:
    assert (
        "--quantization fp8 quantizes weights while they are loaded" in layouts["online"]["error"]
    )
