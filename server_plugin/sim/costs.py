"""Cost models: what one engine step costs on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a cost model may know of one engine step.

    ``chunks`` holds (chunk tokens, context tokens) of each prefilling request, ``decode_batch``
    the number of decoding requests, ``tkv`` the padded length of the batch in tokens, ``index``
    the step's number within the session (0, 1, ...), which keys reproducible noise.
    """

    chunks: tuple[tuple[int, int], ...]
    decode_batch: int
    tkv: int
    index: int


class CostModel(Protocol):
    """One small class per model."""

    def step_ns(self, shape: StepShape) -> int:
        """Cost of a step in nanoseconds, never negative."""

    def describe(self) -> dict[str, Any]:
        """Kind and parameters, as recorded in results."""


@dataclass(frozen=True)
class ConstantCost:
    """A step with a prefill chunk costs ``prefill_ns``, any other ``decode_ns``."""

    prefill_ns: int
    decode_ns: int

    def step_ns(self, shape: StepShape) -> int:
        return self.prefill_ns if shape.chunks else self.decode_ns

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "constant",
            "prefill_ms": self.prefill_ns / 1e6,
            "decode_ms": self.decode_ns / 1e6,
        }
