"""Measured steps as arrays, and the solver that both fits share."""

from __future__ import annotations

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

ROUNDS = 20
HUBER = 1.345
"""Errors beyond so many standard deviations count for less; the customary value."""

MEDIAN_OF_NORMAL = 0.6745
"""Median size of a normal error, in standard deviations."""

NOTHING_MS = 1e-12
"""A femtosecond: coefficients below are rounding."""

EXACT = 1e-9
"""Relative errors below are rounding."""


@dataclass(frozen=True)
class Observed:
    """Parallel arrays, one entry a step: what it computed, and what it cost in ms."""

    chunk_tokens: Floats
    token_context: Floats
    batch: Floats
    tkv: Floats
    ms: Floats

    @property
    def prefill(self) -> Mask:
        """True where the step has a prefill chunk."""
        return np.asarray(self.chunk_tokens > 0)

    @property
    def context(self) -> Floats:
        """Mean context of the chunk tokens; 0 without a chunk."""
        return np.asarray(self.token_context / np.maximum(self.chunk_tokens, 1.0))

    def where(self, mask: Mask) -> Observed:
        """The steps that a mask selects."""
        return Observed(**{field.name: getattr(self, field.name)[mask] for field in fields(self)})

    def __len__(self) -> int:
        return len(self.ms)


def works_of(steps: Sequence[MeasuredStep], padded_chunk_tokens: int | None) -> list[Work]:
    """What each step computes."""
    return [
        work_of(step.chunks, step.decode_batch, step.tkv, padded_chunk_tokens) for step in steps
    ]


def observe(steps: Sequence[MeasuredStep], works: Sequence[Work]) -> Observed:
    """The steps as arrays."""
    quantities = np.array(works, dtype=np.float64).reshape(len(works), 4).T
    chunk_tokens, token_context, batch, tkv = quantities
    ms = np.array([step.duration_s * MS_PER_S for step in steps], dtype=np.float64)
    return Observed(chunk_tokens, token_context, batch, tkv, ms)


def solve(matrix: Floats, observed: Observed, prior: tuple[Floats, Floats] | None = None) -> Floats:
    """Non-negative coefficients of least relative error.

    Repeated for two reasons. Errors relative to the measured value would favour low predictions,
    so that they are taken relative to the prediction before. And rare steps that took far too
    long would bend the coefficients, so that they count for less (Huber's weights); what they
    cost in all comes back with the scale, which keeps the total, and with the noise.

    Args:
        matrix: one row a step, one column a coefficient.
        prior: values and weights that pull each coefficient where data are thin. All steps then
            count alike: a region of its own would pass for outliers of a grid pulled elsewhere.
    """
    from scipy.optimize import nnls

    scale = np.where(matrix.any(axis=0), np.linalg.norm(matrix, axis=0), 1.0)
    reference: Floats = observed.ms
    trust: Floats = np.ones(len(observed))
    found = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        weight = np.sqrt(trust) / reference
        left, right = (matrix / scale) * weight[:, None], observed.ms * weight
        if prior is not None:
            values, weights = prior
            left = np.vstack([left, np.diag(weights / scale)])
            right = np.concatenate([right, values * weights])
        found = np.asarray(nnls(left, right)[0]) / scale
        predicted = matrix @ found
        reference = np.where(predicted > 0, predicted, observed.ms)
        if prior is None:
            trust = _trust(observed.ms / reference - 1.0, observed.prefill)
    return found


def _trust(error: Floats, prefill: Mask) -> Floats:
    """Huber's weights of relative errors, by the typical error of each phase."""
    trust = np.ones(len(error))
    for phase in (prefill, ~prefill):
        if phase.any():
            size = np.abs(error[phase])
            bound = HUBER * max(float(np.median(size)) / MEDIAN_OF_NORMAL, EXACT)
            trust[phase] = np.minimum(1.0, bound / np.maximum(size, EXACT))
    return trust


def mean_ratio(observed: Observed, predicted_ms: Floats) -> float:
    """What all steps took over what they were predicted to take; 1 without steps."""
    return float(observed.ms.sum() / predicted_ms.sum()) if predicted_ms.sum() > 0 else 1.0


def tidy(value: float) -> float:
    """Without the digits that are rounding: a profile is read by people too."""
    return float(f"{value:.9g}") if value > NOTHING_MS else 0.0
