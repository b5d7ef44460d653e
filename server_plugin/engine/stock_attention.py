"""Attention backends of the stock target: they describe a KV cache and compute nothing.

vLLM asks the backend which block sizes it takes, and builds one implementation per layer.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    MLAAttentionImpl,
    MultipleOf,
)

BLOCK_TOKENS = 16
"""Block sizes are multiples of this, as with FlashAttention."""

MLA_BLOCK_TOKENS = 64
"""As with FlashMLA."""


class SimAttentionImpl(AttentionImpl[Any]):
    """Takes what a layer tells it; is never run."""

    def __init__(
        self, num_heads: int, head_size: int, scale: float, *args: Any, **kwargs: Any
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("no model runs in a simulation")


class SimMLAImpl(MLAAttentionImpl[Any]):
    """Takes what a layer tells it; is never run."""

    def __init__(
        self, num_heads: int, head_size: int, scale: float, *args: Any, **kwargs: Any
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, scale

    def forward_mqa(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("no model runs in a simulation")

    def forward_mha(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("no model runs in a simulation")


class SimAttentionBackend(AttentionBackend):
    """Heads, paged."""

    @staticmethod
    def get_name() -> str:
        # Not our own: vLLM looks names up in an enumeration.
        return "FLASH_ATTN"

    @staticmethod
    def get_impl_cls() -> Any:
        return SimAttentionImpl

    @staticmethod
    def get_builder_cls() -> Any:
        raise NotImplementedError("no model runs in a simulation")

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[Any]:
        return [MultipleOf(BLOCK_TOKENS)]

    @staticmethod
    def get_kv_cache_shape(*args: Any, **kwargs: Any) -> tuple[int, ...]:
        raise NotImplementedError("no KV cache is kept in a simulation")

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        return (1, 0, 2, 3, 4) if include_num_layers_dimension else (0, 1, 2, 3)


class SimMLABackend(SimAttentionBackend):
    """Latent attention, paged."""

    @staticmethod
    def get_name() -> str:
        return "FLASHMLA"

    @staticmethod
    def get_impl_cls() -> Any:
        return SimMLAImpl

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[Any]:
        return [MLA_BLOCK_TOKENS]

    @classmethod
    def is_mla(cls) -> bool:
        return True
