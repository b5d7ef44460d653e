"""The stock target's platform: vLLM's own scheduler on a device that does not exist.

vLLM asks the platform for everything that depends on a device. This one names our worker and
scheduler, tells the memory that the settings give the simulated device, and refuses what is not
simulated.
"""

from __future__ import annotations

import os
from typing import Any

from vllm.platforms.interface import Platform, PlatformEnum

from server_plugin import settings as sim_settings
from server_plugin.engine import config
from server_plugin.refusal import stopping

ENGINE = "server_plugin.engine"
WORKER = f"{ENGINE}.stock.SimStockWorker"
SCHEDULER = f"{ENGINE}.stock.SimStockScheduler"
ATTENTION = f"{ENGINE}.stock_attention.SimAttentionBackend"
MLA_ATTENTION = f"{ENGINE}.stock_attention.SimMLABackend"

GIB = 1024**3

PIPELINE_KEY = "sendnn_sim_pipeline_parallel_size"
"""Where `additional_config` keeps the pipeline size that was asked for."""


class SimStockPlatform(Platform):
    """An out-of-tree platform of the device type that every torch build has."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"

    speculates = False
    """True where the deployment uses speculative decoding."""

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "sendnn-bench simulated device"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """Bytes of one device. vLLM derives its default batch limits from it."""
        return round(sim_settings.load(os.environ).memory_gb * GIB)

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        return MLA_ATTENTION if attn_selector_config.use_mla else ATTENTION

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return False

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        return False

    @classmethod
    def verify_quantization(cls, quant: str) -> None:
        """No kernel runs, so every format that vLLM can lay out is fine."""

    @classmethod
    def import_kernels(cls) -> None:
        """None are run."""

    @classmethod
    def inference_mode(cls) -> Any:
        import torch

        return torch.no_grad()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Put our classes in. The engine process runs it again on the same configuration.

        Raises:
            UsageError: a kind of model or deployment that the simulation does not cover.
        """
        if vllm_config.model_config is not None:
            with stopping():
                refuse_unsupported(vllm_config)
            configure(vllm_config)
            cls.speculates = vllm_config.speculative_config is not None
        from server_plugin.engine import install

        install.install_http()

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Refuse, with status 400, what a request may ask of the model that is not simulated.

        Raises:
            VLLMValidationError: which vLLM answers with its message.
        """
        from vllm.exceptions import VLLMValidationError

        reasons = {
            "prompt_logprobs": getattr(params, "prompt_logprobs", None) is not None,
            "logprobs of the whole vocabulary": getattr(params, "logprobs", None) == -1,
            "logit_bias": bool(getattr(params, "logit_bias", None)),
            "bad_words": bool(getattr(params, "bad_words", None)),
        }
        if cls.speculates and getattr(params, "structured_outputs", None) is not None:
            raise VLLMValidationError(
                "structured output together with speculative decoding is not simulated."
            )
        for what, asked in reasons.items():
            if asked:
                raise VLLMValidationError(f"{what} is not simulated: no logits are computed.")


def configure(vllm_config: Any) -> None:
    """Worker, scheduler and executor; no compilation; one process for all ranks."""
    from vllm.config import CompilationMode, CUDAGraphMode

    parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
    compilation.mode = CompilationMode.NONE
    compilation.cudagraph_mode = CUDAGraphMode.NONE
    compilation.cudagraph_capture_sizes = []
    parallel.worker_cls = WORKER
    parallel.disable_custom_all_reduce = True
    # A pipeline overlaps as many batches as it has stages. On one virtual clock each step is
    # charged whole and in order; the stages divide weights and KV cache only.
    if parallel.pipeline_parallel_size > 1:
        vllm_config.additional_config[PIPELINE_KEY] = parallel.pipeline_parallel_size
        parallel.pipeline_parallel_size = 1
    # Async scheduling hides the host's work behind the device's. Here the host's work takes no
    # virtual time, so there is nothing to hide, and scheduling a step ahead would only blur when
    # a request was seen.
    vllm_config.scheduler_config.async_scheduling = False
    vllm_config.scheduler_config.scheduler_cls = SCHEDULER
    config.adjust(vllm_config)


def refuse_unsupported(vllm_config: Any) -> None:
    """Stop the start with one clear message where a simulation would be wrong."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    context = (
        getattr(parallel, "prefill_context_parallel_size", 1),
        getattr(parallel, "decode_context_parallel_size", 1),
    )
    method = getattr(vllm_config.speculative_config, "method", None)
    reasons = {
        f"{model.model} is an encoder-decoder model": model.is_encoder_decoder,
        "context parallelism is not simulated": max(context) > 1,
        f"drafter {method!r}; name any drafter as ngram, such as --speculative-config "
        '\'{"method": "ngram", "num_speculative_tokens": 3}\', and describe it by '
        "SENDNN_INFERENCE_SIM_ACCEPTANCE_RATE and SENDNN_INFERENCE_SIM_DRAFT_MS": (
            method not in (None, "ngram")
        ),
        "KV transfer to other servers is not simulated": (
            vllm_config.kv_transfer_config is not None
        ),
        "prompt embeddings are not simulated": model.enable_prompt_embeds,
        "sleep mode has no meaning without a device": model.enable_sleep_mode,
    }
    config.refuse(vllm_config, reasons)
