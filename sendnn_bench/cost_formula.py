"""What a step costs by a profile: the simulator charges it, `calibrate` measures against it.

Plain Python on numbers that were scaled to ns beforehand, as it runs once per engine step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import NamedTuple

from sendnn_bench.profile_spec import (
    ConstantCosts,
    Costs,
    DecodeTable,
    LinearCosts,
    PrefillTable,
    TableCosts,
)

NS_PER_MS = 1e6


class Work(NamedTuple):
    """What a step computes, as the formulas want it.

    ``chunk_tokens`` is the sum over the prefill chunks, ``token_context`` the sum of chunk tokens
    times context tokens.
    """

    chunk_tokens: int
    token_context: int
    batch: int
    tkv: int


Formula = Callable[[Work], float]
"""Cost in ns of a step, before noise and host term."""


def work_of(
    chunks: Sequence[tuple[int, int]],
    decode_batch: int,
    tkv: int,
    padded_chunk_tokens: int | None = None,
) -> Work:
    """The work in a step; ``chunks`` holds (chunk tokens, context tokens).

    With ``padded_chunk_tokens`` the model computes whole chunks of that size: the one chunk of the
    step counts as such, and its context as the whole chunks before it in its prompt, whose length
    is then what ``tkv`` tells (sendnn-inference 2.6.3 prefills one request at a time).
    """
    size = padded_chunk_tokens
    if size is not None:
        chunks = [
            (size, size * (-(-tkv // size) + (context - tkv) // size)) for _, context in chunks
        ]
    tokens = sum(tokens for tokens, _ in chunks)
    product = sum(tokens * context for tokens, context in chunks)
    return Work(tokens, product, decode_batch, tkv)


def formula_of(costs: Costs) -> Formula:
    """The formula of a profile's costs."""
    if isinstance(costs, ConstantCosts):
        return _constant(costs)
    return _linear(costs) if isinstance(costs, LinearCosts) else _table(costs)


def _constant(costs: ConstantCosts) -> Formula:
    prefill_ns, decode_ns = costs.prefill_ms * NS_PER_MS, costs.decode_ms * NS_PER_MS
    return lambda work: prefill_ns if work.chunk_tokens else decode_ns


def _linear(costs: LinearCosts) -> Formula:
    """A step with a chunk has p0 for its fixed part, d0 comes only with steps without."""
    p0, p1, p2 = _scaled(astuple(costs.prefill))
    d0, d1, d2 = _scaled(astuple(costs.decode))

    def cost_ns(work: Work) -> float:
        decode = d1 * work.batch + d2 * (work.batch * work.tkv)
        if not work.chunk_tokens:
            return d0 + decode
        return p0 + p1 * work.chunk_tokens + p2 * work.token_context + decode

    return cost_ns


def _scaled(values_ms: Sequence[float]) -> list[float]:
    return [value * NS_PER_MS for value in values_ms]


def _table(costs: TableCosts) -> Formula:
    """Several chunks count as one of their total tokens at their mean context. What decodes beside
    them adds its cost above the table's lowest cell, which stands for a step's fixed part."""
    prefill, decode = _prefill_grid(costs.prefill), _decode_grid(costs.decode)
    floor_ns = min(min(row) for row in costs.decode.step_ms) * NS_PER_MS

    def cost_ns(work: Work) -> float:
        if not work.chunk_tokens:
            return decode.at(work.batch, work.tkv)
        chunks = prefill.at(work.chunk_tokens, work.token_context / work.chunk_tokens)
        return chunks + (decode.at(work.batch, work.tkv) - floor_ns if work.batch else 0.0)

    return cost_ns


class _Grid:
    """Bilinear interpolation; beyond the edge the value at the edge."""

    def __init__(
        self, rows: Sequence[float], columns: Sequence[float], step_ms: Sequence[Sequence[float]]
    ) -> None:
        self._rows, self._columns = rows, columns
        self._ns = [[value * NS_PER_MS for value in row] for row in step_ms]

    def at(self, row: float, column: float) -> float:
        """Value in ns."""
        i, low = _place(self._rows, row)
        j, left = _place(self._columns, column)
        upper, lower = self._ns[i], self._ns[min(i + 1, len(self._ns) - 1)]
        k = min(j + 1, len(upper) - 1)
        above = upper[j] + left * (upper[k] - upper[j])
        below = lower[j] + left * (lower[k] - lower[j])
        return above + low * (below - above)


def _place(knots: Sequence[float], value: float) -> tuple[int, float]:
    """Index of the knot at or below a value, and the fraction of the way to the next one."""
    index = bisect_right(knots, value) - 1
    if index < 0:
        return 0, 0.0
    if index >= len(knots) - 1:
        return len(knots) - 1, 0.0
    return index, (value - knots[index]) / (knots[index + 1] - knots[index])


def _prefill_grid(table: PrefillTable) -> _Grid:
    return _Grid(table.chunk_tokens, table.context_tokens, table.step_ms)


def _decode_grid(table: DecodeTable) -> _Grid:
    return _Grid(table.batch, table.tkv_tokens, table.step_ms)
