"""Published model shapes, as model directories, and what vLLM logged for them on real GPUs.

Logged figures: accuracy report of https://github.com/llm-d-incubation/llm-d-planner (`accuracy/`),
parsed from the start-up logs of vLLM 0.19.0 on an H100 (79.19 GiB) at
`--gpu-memory-utilization 0.95`, `--max-model-len 8192`. They are rounded to 0.01 GiB.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sendnn_bench import models

GPU_GIB = 79.19
UTILIZATION = 0.95

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {
        **LLAMA,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
    },
    "llama-3.1-70b": {
        **LLAMA,
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 80,
    },
    "qwen2.5-7b": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
    },
    "mistral-7b-v0.1": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 27,
        "vocab_size": 102400,
        "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "scoring_func": "softmax",
        "topk_method": "greedy",
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False,
    },
    "granite-4.0-h-micro": {
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "shared_intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 40,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
        "vocab_size": 100352,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000,
        "position_embedding_type": "nope",
        "mamba_n_heads": 64,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 256,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "embedding_multiplier": 12,
        "attention_multiplier": 0.015625,
        "residual_multiplier": 0.22,
        "logits_scaling": 8,
        "tie_word_embeddings": True,
    },
}


@dataclass(frozen=True)
class Logged:
    """One logged start of vLLM: GiB of weights and of KV cache on one GPU, and what else took
    memory (activations, CUDA context), and tokens of KV cache."""

    model: str
    weights_gib: float
    kv_gib: float
    other_gib: float
    kv_tokens: int
    kv_cache_dtype: str = "auto"


LOGGED = (
    Logged("llama-3.1-8b", 14.99, 58.11, 1.89 + 0.25, 476_016),
    Logged("llama-3.1-8b", 14.99, 58.11, 1.89 + 0.25, 952_032, "fp8"),
    Logged("qwen2.5-7b", 14.25, 58.53, 2.21 + 0.24, 1_096_000),
)


def write_model(folder: Path, name: str, **changes: Any) -> Path:
    """A model directory with a published shape and the built-in model's tokenizer."""
    target = folder / name
    target.mkdir(parents=True)
    for path in Path(models.resolve(models.BUILTIN[0])).iterdir():
        if path.is_file() and path.name != "config.json":
            shutil.copy(path, target)
    config = {
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
        **CONFIGS[name],
        **changes,
    }
    (target / "config.json").write_text(json.dumps(config))
    return target
