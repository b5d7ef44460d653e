"""Fit of the table profile: a grid that follows the data, and the linear fit where it has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sendnn_bench.calibrate.data import Cells, Floats, solve
from sendnn_bench.cost_formula import NS_PER_MS, Work, formula_of
from sendnn_bench.profile_spec import DecodeTable, LinearCosts, PrefillTable, TableCosts

MAX_ROWS = 8
MAX_COLUMNS = 5
PRIOR_STEPS = 1.0
"""Each cell of the grid leans on the linear fit as if that were so many measured steps."""

LEAST_SHARE = 0.1
"""Of a mixed step, at least this share is the prefill's, whatever decoding costs by the table."""


def fit_table(cells: Cells, line: LinearCosts) -> TableCosts:
    """Decode grid from steps that only decode, then prefill grid from all with a chunk."""
    decode = _decode(cells.where(~cells.prefill), line)
    prefill_cells = _without_decode(cells.where(cells.prefill), decode)
    return TableCosts(_prefill(prefill_cells, line), decode)


def _decode(cells: Cells, line: LinearCosts) -> DecodeTable:
    batch = _knots(cells.batch, cells.count, MAX_ROWS)
    tkv = _knots(cells.tkv, cells.count, MAX_COLUMNS)
    prior_ms = _predict_ms(line, [Work(0, 0, round(b), round(t)) for b in batch for t in tkv])
    shares = _shares(batch, cells.batch), _shares(tkv, cells.tkv)
    return DecodeTable(tuple(batch), tuple(tkv), _grid(*shares, cells, prior_ms))


def _prefill(cells: Cells, line: LinearCosts) -> PrefillTable:
    tokens = _knots(cells.chunk_tokens, cells.count, MAX_ROWS)
    context = _knots(cells.context, cells.count, MAX_COLUMNS)
    works = [Work(round(t), round(t * c), 0, 0) for t in tokens for c in context]
    shares = _shares(tokens, cells.chunk_tokens), _shares(context, cells.context)
    grid = _grid(*shares, cells, _predict_ms(line, works))
    return PrefillTable(tuple(tokens), tuple(context), grid)


def _without_decode(cells: Cells, decode: DecodeTable) -> Cells:
    """Mixed steps less what the decoding in them adds by the table."""
    bare = PrefillTable((0.0,), (0.0,), ((0.0,),))
    formula = formula_of(TableCosts(bare, decode))
    added = np.array(
        [
            formula(Work(1, 0, int(batch), int(tkv))) / NS_PER_MS if batch else 0.0
            for batch, tkv in zip(cells.batch, cells.tkv, strict=True)
        ]
    )
    return replace(cells, mean_ms=np.maximum(cells.mean_ms - added, LEAST_SHARE * cells.mean_ms))


def _knots(values: Floats, count: Floats, limit: int) -> list[float]:
    """All values where they are few, else values at equal shares of the steps, ends included."""
    distinct = np.unique(values)
    if len(distinct) <= limit:
        return [float(value) for value in distinct]
    order = np.argsort(values)
    share = np.cumsum(count[order]) / count.sum()
    picks = [values[order][np.searchsorted(share, q)] for q in np.linspace(0, 1, limit)[1:-1]]
    return [float(value) for value in np.unique([distinct[0], *picks, distinct[-1]])]


def _grid(
    row_shares: Floats, column_shares: Floats, cells: Cells, prior_ms: Floats
) -> tuple[tuple[float, ...], ...]:
    """Cost in ms at each pair of knots; shares have one row a cell and one column a knot."""
    shape = (row_shares.shape[1], column_shares.shape[1])
    matrix = np.einsum("ni,nj->nij", row_shares, column_shares).reshape(len(row_shares), -1)
    weights = np.sqrt(PRIOR_STEPS) / np.maximum(prior_ms, 1e-9)
    found = solve(matrix, cells, prior=(prior_ms, weights)).reshape(shape)
    return tuple(tuple(float(value) for value in row) for row in found)


def _shares(knots: Sequence[float], values: Floats) -> Floats:
    """Weight of each knot in the linear interpolation at each value; rows add up to 1."""
    units = np.eye(len(knots))
    return np.column_stack([np.interp(values, knots, unit) for unit in units])


def _predict_ms(line: LinearCosts, works: Sequence[Work]) -> Floats:
    formula = formula_of(line)
    return np.array([formula(work) / NS_PER_MS for work in works])
