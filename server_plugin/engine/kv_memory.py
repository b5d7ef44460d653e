"""Weights and KV cache of one simulated device, from the model class itself.

vLLM's own model class is built on torch's meta device, where tensors have shapes and no storage:
every attention layer then tells its KV cache, and every parameter its bytes, exactly as in a real
deployment, within seconds and a few megabytes for any size of model. The parallel groups that the
layers divide themselves by are stand-ins that only know their sizes.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

from sendnn_bench.errors import UsageError


@dataclass(frozen=True)
class Rank:
    """What one pipeline stage, divided by the tensor parallel size, keeps on its device.

    ``layers`` are vLLM's layer objects by name, which answer with their KV cache specification
    once the block size is settled.
    """

    weights_bytes: int
    layers: dict[str, Any]
    pipeline: int
    stage: int

    def kv_cache_spec(self, vllm_config: Any) -> dict[str, Any]:
        """Specification by layer; layers without a KV cache of their own are left out."""
        tensor = vllm_config.parallel_config.tensor_parallel_size
        with (
            set_current_vllm_config(vllm_config),
            parallel_groups(tensor, self.pipeline, self.stage),
        ):
            specs = {
                name: layer.get_kv_cache_spec(vllm_config) for name, layer in self.layers.items()
            }
        return {name: spec for name, spec in specs.items() if spec is not None}

    def kv_bytes_per_block(self, vllm_config: Any) -> int:
        """Bytes of one block in every layer."""
        return sum(spec.page_size_bytes for spec in self.kv_cache_spec(vllm_config).values())


class ParallelGroup:
    """Stands in for vLLM's `GroupCoordinator`: a size and a place, no communication."""

    def __init__(self, world_size: int, rank: int = 0) -> None:
        self.world_size = world_size
        self.rank_in_group = self.rank = self.local_rank = rank
        self.ranks = list(range(world_size))
        self.first_rank, self.last_rank = 0, world_size - 1
        self.is_first_rank = rank == 0
        self.is_last_rank = rank == world_size - 1
        self.next_rank = (rank + 1) % world_size
        self.prev_rank = (rank - 1) % world_size
        self.cpu_group = self.device_group = self
        self.device_communicator = None
        self.device = torch.device("meta")
        self.unique_name = "simulated"

    def size(self) -> int:
        """As torch's process groups tell it."""
        return self.world_size


class NoKernel:
    """Stands in for a kernel that a layer picks by the device; is never run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


@contextlib.contextmanager
def replaced(module: Any, values: dict[str, Any]) -> Iterator[None]:
    """Give a module's names other values for a while."""
    before = {name: getattr(module, name, None) for name in values}
    for name, value in values.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextlib.contextmanager
def parallel_groups(tensor: int, pipeline: int, stage: int) -> Iterator[None]:
    """Let vLLM's layers see rank 0 of a tensor parallel group, in one stage of a pipeline."""
    alone = ParallelGroup(1)
    groups = {
        "_WORLD": ParallelGroup(tensor),
        "_TP": ParallelGroup(tensor),
        "_EP": ParallelGroup(tensor),
        "_EPLB": ParallelGroup(tensor),
        "_PP": ParallelGroup(pipeline, stage),
        **dict.fromkeys(("_DP", "_DCP", "_PCP"), alone),
    }
    with replaced(parallel_state, groups):
        yield


def build_rank(vllm_config: Any, pipeline: int = 1, stage: int = 0) -> Rank:
    """Build the model of one rank without storage.

    Raises:
        UsageError: vLLM's model class cannot be built on the meta device.
    """
    model_config, parallel = vllm_config.model_config, vllm_config.parallel_config
    if vllm_config.quant_config is not None:
        # Here, not at import: it imports every kernel of every device, which can fail without one.
        from server_plugin.engine.stock_kernels import offer_kernels

        offer_kernels()
    # The layers register themselves here by name; each rank is a registry of its own.
    vllm_config.compilation_config.static_forward_context.clear()
    try:
        with (
            set_current_vllm_config(vllm_config),
            parallel_groups(parallel.tensor_parallel_size, pipeline, stage),
            set_default_torch_dtype(model_config.dtype),
            replaced(mla_attention, {"get_mla_prefill_backend": lambda _: NoKernel}),
            torch.device("meta"),
        ):
            model = initialize_model(vllm_config)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"cannot lay out {model_config.model} without its weights: vLLM's class for "
            f"{model_config.architectures} failed with {type(error).__name__}: {str(error)[:400]}"
        ) from error
    check_quantized(model, vllm_config)
    context = vllm_config.compilation_config.static_forward_context
    layers = {
        name: layer for name, layer in context.items() if isinstance(layer, AttentionLayerBase)
    }
    return Rank(tensor_bytes(model), layers, pipeline, stage)


def check_quantized(model: Any, vllm_config: Any) -> None:
    """See that a quantized model was laid out with its quantized weights.

    Raises:
        UsageError: what is quantized shows in the weight files only, or happens while loading.
    """
    name = vllm_config.model_config.quantization
    if vllm_config.quant_config is None:
        return
    methods = {type(getattr(module, "quant_method", None)) for module in model.modules()}
    if any(".online." in method.__module__ for method in methods):
        raise UsageError(
            f"--quantization {name} quantizes weights while they are loaded, which is not "
            "simulated. Describe the quantized model instead, such as --hf-overrides "
            '\'{"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}\'.'
        )
    if not any(".quantization." in method.__module__ for method in methods):
        raise UsageError(
            f"quantization {name}: vLLM reads from the weight files which layers are quantized, "
            "and there are none here. Formats that config.json describes whole, such as fp8 and "
            "compressed-tensors, are simulated."
        )


def tightest_rank(vllm_config: Any, pipeline: int, memory_bytes: int) -> Rank:
    """The pipeline stage with room for the fewest KV blocks, which limits all others.

    Raises:
        UsageError: the model cannot be laid out, or its weights do not fit into ``memory_bytes``.
    """
    ranks = [build_rank(vllm_config, pipeline, stage) for stage in range(pipeline)]

    def blocks(rank: Rank) -> float:
        per_block = rank.kv_bytes_per_block(vllm_config)
        return available_bytes(rank, memory_bytes) / per_block if per_block else float("inf")

    return min(ranks, key=blocks)


def available_bytes(rank: Rank, memory_bytes: int) -> int:
    """Bytes left for the KV cache.

    Raises:
        UsageError: the weights alone do not fit.
    """
    left = memory_bytes - rank.weights_bytes
    if left <= 0:
        raise UsageError(
            f"the weights take {rank.weights_bytes / 2**30:.2f} GiB of a device that offers "
            f"{memory_bytes / 2**30:.2f} GiB. Raise --sim-memory-gb, --gpu-memory-utilization, "
            "--tensor-parallel-size or --pipeline-parallel-size."
        )
    return left


def tensor_bytes(model: Any) -> int:
    """Bytes of all parameters and buffers, shared ones once."""
    tensors = {id(t): t for t in itertools.chain(model.parameters(), model.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
