"""Stand-ins for the kernels that quantized layers pick by the device, so that they can be laid out.

vLLM keeps a table of kernels per kind of quantization, by platform. Ours is given the first one
of the CUDA column, told to accept every layer; only the layer's tensors matter, none is run.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.kernels import linear
from vllm.platforms.interface import PlatformEnum

PREFIX = "_POSSIBLE_"


def offer_kernels() -> None:
    """Fill our platform's column in every table that has none. Does nothing the second time."""
    for name, table in vars(linear).items():
        if name.startswith(PREFIX) and isinstance(table, dict) and table.get(PlatformEnum.CUDA):
            table.setdefault(PlatformEnum.OOT, [willing(table[PlatformEnum.CUDA][0])])


def willing(kernel: type) -> type:
    """A kernel class that accepts every layer and prepares nothing."""
    return type(
        f"Sim{kernel.__name__}",
        (kernel,),
        {
            "is_supported": classmethod(_yes),
            "can_implement": classmethod(_yes),
            "__init__": _keep_configuration,
            "process_weights_after_loading": lambda *_: None,
            "apply_weights": _never,
            "apply_scaled_mm": _never,
            "__abstractmethods__": frozenset(),
        },
    )


def _yes(*_: Any) -> tuple[bool, None]:
    return True, None


def _keep_configuration(self: Any, config: Any, *_: Any, **__: Any) -> None:
    self.config = config


def _never(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("no model runs in a simulation")
