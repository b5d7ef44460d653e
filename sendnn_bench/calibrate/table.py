"""Fit of the table profile: a grid that follows the data, and the linear fit where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sendnn_bench.calibrate.data import Floats, Observed, mean_ratio, solve, tidy
from sendnn_bench.cost_formula import NS_PER_MS, Work, formula_of
from sendnn_bench.profile_spec import DecodeTable, LinearCosts, PrefillTable, TableCosts

MAX_ROWS = 8
MAX_COLUMNS = 5
PRIOR_STEPS = 1.0
"""Each cell of the grid leans on the linear fit as if that were so many measured steps."""

LEAST_SHARE = 0.1
"""Of a mixed step, at least this share is the prefill's, whatever decoding costs by the table."""


def fit_table(observed: Observed, line: LinearCosts) -> TableCosts:
    """Decode grid from steps that only decode, then prefill grid from all with a chunk."""
    decode = _decode(observed.where(~observed.prefill), line)
    with_chunk = _without_decode(observed.where(observed.prefill), decode)
    return TableCosts(_prefill(with_chunk, line), decode)


def _decode(observed: Observed, line: LinearCosts) -> DecodeTable:
    batch = _knots(observed.batch, MAX_ROWS)
    tkv = _knots(observed.tkv, MAX_COLUMNS)
    prior_ms = _predict_ms(line, [Work(0, 0, round(b), round(t)) for b in batch for t in tkv])
    shares = _shares(batch, observed.batch), _shares(tkv, observed.tkv)
    return DecodeTable(tuple(batch), tuple(tkv), _grid(*shares, observed, prior_ms))


def _prefill(observed: Observed, line: LinearCosts) -> PrefillTable:
    tokens = _knots(observed.chunk_tokens, MAX_ROWS)
    context = _knots(observed.context, MAX_COLUMNS)
    works = [Work(round(t), round(t * c), 0, 0) for t in tokens for c in context]
    shares = _shares(tokens, observed.chunk_tokens), _shares(context, observed.context)
    grid = _grid(*shares, observed, _predict_ms(line, works))
    return PrefillTable(tuple(tokens), tuple(context), grid)


def _without_decode(observed: Observed, decode: DecodeTable) -> Observed:
    """Mixed steps less what the decoding in them adds by the table."""
    bare = PrefillTable((0.0,), (0.0,), ((0.0,),))
    formula = formula_of(TableCosts(bare, decode))
    added = np.array(
        [
            formula(Work(1, 0, int(batch), int(tkv))) / NS_PER_MS if batch else 0.0
            for batch, tkv in zip(observed.batch, observed.tkv, strict=True)
        ]
    )
    return replace(observed, ms=np.maximum(observed.ms - added, LEAST_SHARE * observed.ms))


def _knots(values: Floats, limit: int) -> list[float]:
    """All values where they are few, else values at equal shares of the steps, ends included."""
    distinct = np.unique(values)
    if len(distinct) > limit:
        shares = np.linspace(0, 100, limit)
        distinct = np.unique(np.percentile(values, shares, method="nearest"))
    return [float(value) for value in distinct]


def _grid(
    row_shares: Floats, column_shares: Floats, observed: Observed, prior_ms: Floats
) -> tuple[tuple[float, ...], ...]:
    """Cost in ms at each pair of knots; shares have one row a cell and one column a knot."""
    shape = (row_shares.shape[1], column_shares.shape[1])
    matrix = np.einsum("ni,nj->nij", row_shares, column_shares).reshape(len(row_shares), -1)
    weights = np.sqrt(PRIOR_STEPS) / np.maximum(prior_ms, 1e-9)
    found = solve(matrix, observed, prior=(prior_ms, weights))
    found = (found * mean_ratio(observed, matrix @ found)).reshape(shape)
    return tuple(tuple(tidy(value) for value in row) for row in found)


def _shares(knots: Sequence[float], values: Floats) -> Floats:
    """Weight of each knot in the linear interpolation at each value; rows add up to 1."""
    units = np.eye(len(knots))
    return np.column_stack([np.interp(values, knots, unit) for unit in units])


def _predict_ms(line: LinearCosts, works: Sequence[Work]) -> Floats:
    formula = formula_of(line)
    return np.array([formula(work) / NS_PER_MS for work in works])
