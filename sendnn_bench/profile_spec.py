"""What a cost profile says, as frozen values: times in ms, lengths in tokens.

The fields of each class are the keys of one section of the file, and ``PARSERS`` says which of
them are no plain numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

Range = tuple[float, float]
Parser = Callable[[Any], Any]


def number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError("a finite number that is not negative")
    return float(value)


def whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number that is not negative")
    return value


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of at least one number")
    return tuple(number(item) for item in value)


def _knots(value: Any) -> tuple[float, ...]:
    knots = _numbers(value)
    if any(low >= high for low, high in itertools.pairwise(knots)):
        raise ValueError("a list of rising numbers")
    return knots


def _rows(value: Any) -> tuple[tuple[float, ...], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of rows")
    return tuple(_numbers(row) for row in value)


def _range(value: Any) -> Range:
    numbers = _numbers(value)
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ValueError("[lowest, highest]")
    return numbers[0], numbers[1]


@dataclass(frozen=True)
class ConstantCosts:
    """One cost for steps with a prefill chunk, one for all others."""

    prefill_ms: float
    decode_ms: float


@dataclass(frozen=True)
class PrefillLine:
    """``p0 + p1 * chunk tokens + p2 * chunk tokens * context tokens``."""

    p0_ms: float
    p1_ms_per_token: float = 0.0
    p2_ms_per_token_per_context_token: float = 0.0


@dataclass(frozen=True)
class DecodeLine:
    """``d0 + d1 * batch + d2 * batch * tkv``."""

    d0_ms: float
    d1_ms_per_request: float = 0.0
    d2_ms_per_request_per_tkv_token: float = 0.0


@dataclass(frozen=True)
class PrefillTable:
    """``step_ms[i][j]`` is the cost at ``chunk_tokens[i]`` and ``context_tokens[j]``."""

    chunk_tokens: tuple[float, ...]
    context_tokens: tuple[float, ...]
    step_ms: tuple[tuple[float, ...], ...]
    PARSERS: ClassVar[dict[str, Parser]] = {
        "chunk_tokens": _knots,
        "context_tokens": _knots,
        "step_ms": _rows,
    }


@dataclass(frozen=True)
class DecodeTable:
    """``step_ms[i][j]`` is the cost at ``batch[i]`` and ``tkv_tokens[j]``."""

    batch: tuple[float, ...]
    tkv_tokens: tuple[float, ...]
    step_ms: tuple[tuple[float, ...], ...]
    PARSERS: ClassVar[dict[str, Parser]] = {
        "batch": _knots,
        "tkv_tokens": _knots,
        "step_ms": _rows,
    }


@dataclass(frozen=True)
class LinearCosts:
    """Straight lines in the shape of a step."""

    prefill: PrefillLine
    decode: DecodeLine


@dataclass(frozen=True)
class TableCosts:
    """Measured grids, interpolated in between."""

    prefill: PrefillTable
    decode: DecodeTable


Costs = ConstantCosts | LinearCosts | TableCosts
KINDS: dict[str, type[ConstantCosts] | type[LinearCosts] | type[TableCosts]] = {
    "constant": ConstantCosts,
    "linear": LinearCosts,
    "table": TableCosts,
}


@dataclass(frozen=True)
class Host:
    """Time between two steps, ``h0 + h1 * batch``, added to every step."""

    h0_ms: float
    h1_ms_per_request: float = 0.0


@dataclass(frozen=True)
class Frontend:
    """Time outside the engine: a request's arrival to the engine, a token's engine to client."""

    request_ms: float = 0.0
    token_ms: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Measured over modelled cost of steps; one is drawn for each step and multiplies its cost."""

    seed: int
    prefill_ratio: tuple[float, ...] = ()
    decode_ratio: tuple[float, ...] = ()
    PARSERS: ClassVar[dict[str, Parser]] = {
        "seed": whole,
        "prefill_ratio": _numbers,
        "decode_ratio": _numbers,
    }


@dataclass(frozen=True)
class Domain:
    """What was measured, lowest to highest; None where nothing is known."""

    chunk_tokens: Range | None = None
    context_tokens: Range | None = None
    batch: Range | None = None
    tkv_tokens: Range | None = None
    PARSERS: ClassVar[dict[str, Parser]] = dict.fromkeys(
        ("chunk_tokens", "context_tokens", "batch", "tkv_tokens"), _range
    )


@dataclass(frozen=True)
class Profile:
    """A cost profile, validated. Times in ms, lengths in tokens.

    ``padded_chunk_tokens``: the model computes whole chunks of this many tokens, so a prefill
    chunk counts as that many, and its context as the whole chunks before it.
    """

    name: str
    source: str
    costs: Costs
    padded_chunk_tokens: int | None = None
    host: Host | None = None
    frontend: Frontend | None = None
    noise: Noise | None = None
    domain: Domain | None = None

    @property
    def kind(self) -> str:
        """`constant`, `linear` or `table`."""
        return next(kind for kind, costs in KINDS.items() if isinstance(self.costs, costs))
