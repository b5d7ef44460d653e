"""Measured steps as arrays: one cell for each different work, with how often and how long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sendnn_bench.calibrate.steps import MeasuredStep
from sendnn_bench.cost_formula import Work, work_of

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
MS_PER_S = 1e3


@dataclass(frozen=True)
class Cells:
    """Parallel arrays, one entry a work: its quantities, mean cost in ms, number of steps."""

    chunk_tokens: Floats
    token_context: Floats
    batch: Floats
    tkv: Floats
    mean_ms: Floats
    count: Floats

    @property
    def prefill(self) -> Mask:
        """True where the step has a prefill chunk."""
        return np.asarray(self.chunk_tokens > 0)

    @property
    def context(self) -> Floats:
        """Mean context of the chunk tokens; 0 without a chunk."""
        return np.asarray(self.token_context / np.maximum(self.chunk_tokens, 1.0))

    def where(self, mask: Mask) -> Cells:
        """The cells that a mask selects."""
        return Cells(**{field.name: getattr(self, field.name)[mask] for field in fields(self)})

    @property
    def steps(self) -> int:
        """Number of steps in all cells."""
        return int(self.count.sum())


def works_of(steps: Sequence[MeasuredStep], padded_chunk_tokens: int | None) -> list[Work]:
    """What each step computes."""
    return [
        work_of(step.chunks, step.decode_batch, step.tkv, padded_chunk_tokens) for step in steps
    ]


def cells_of(steps: Sequence[MeasuredStep], works: Sequence[Work]) -> Cells:
    """Steps of equal work, put together."""
    groups: dict[Work, list[float]] = defaultdict(list)
    for step, work in zip(steps, works, strict=True):
        groups[work].append(step.duration_s * MS_PER_S)
    order = sorted(groups)
    quantities = np.array(order, dtype=np.float64).reshape(len(order), 4).T
    means = np.array([np.mean(groups[work]) for work in order], dtype=np.float64)
    counts = np.array([len(groups[work]) for work in order], dtype=np.float64)
    chunk_tokens, token_context, batch, tkv = quantities
    return Cells(chunk_tokens, token_context, batch, tkv, means, counts)


def solve(
    matrix: Floats, cells: Cells, prior: tuple[Floats, Floats] | None = None, rounds: int = 8
) -> Floats:
    """Non-negative coefficients of least relative error.

    Errors relative to the measured value alone would favour low predictions, so that the fit is
    repeated with errors relative to the prediction before.

    Args:
        matrix: one row a cell, one column a coefficient.
        prior: values and weights that pull each coefficient where data are thin.
    """
    from scipy.optimize import nnls

    scale = np.where(matrix.any(axis=0), np.linalg.norm(matrix, axis=0), 1.0)
    reference = cells.mean_ms
    found = np.zeros(matrix.shape[1])
    for _ in range(rounds):
        weight = np.sqrt(cells.count) / reference
        left, right = (matrix / scale) * weight[:, None], cells.mean_ms * weight
        if prior is not None:
            values, weights = prior
            left = np.vstack([left, np.diag(weights / scale)])
            right = np.concatenate([right, values * weights])
        found = np.asarray(nnls(left, right)[0]) / scale
        predicted = matrix @ found
        reference = np.where(predicted > 0, predicted, cells.mean_ms)
    return np.array([tidy(value) for value in found])


def tidy(value: float) -> float:
    """Without the digits that are rounding: a profile is read by people too."""
    return float(f"{value:.9g}")
