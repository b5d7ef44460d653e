"""Bootstrap confidence intervals of a difference between two runs.

Requests are drawn, not samples: tokens of one request are no independent witnesses. Where both
runs have the same requests, the same ones are drawn from both, which is the sharper test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sendnn_bench.report.compare_samples import Floats, Samples

LEVEL = 0.95
MAX_TABLE = 4_000_000
"""Entries of the table of requests by values, which bounds time and memory."""

MAX_VALUES, MIN_VALUES = 1024, 128
"""Different values kept apart; nearer ones are put together, for the interval only."""

Interval = tuple[float, float]


def intervals(
    base: Samples,
    other: Samples,
    percentiles: Sequence[float | None],
    *,
    paired: bool,
    replicates: int,
    seed: int,
) -> list[Interval | None]:
    """95 % interval of other less base for each statistic (None: the mean).

    None where either run has no samples.
    """
    if not len(base.values) or not len(other.values):
        return [None] * len(percentiles)
    draws = np.random.default_rng(seed)
    weights = _draw(draws, base.requests, replicates)
    base_found = _replicates(base, weights, percentiles)
    if not paired:
        weights = _draw(draws, other.requests, replicates)
    difference = _replicates(other, weights, percentiles) - base_found
    tail = 100 * (1 - LEVEL) / 2
    return [_interval(row, tail) for row in difference]


def _interval(differences: Floats, tail: float) -> Interval | None:
    """None where no replicate held a sample in both runs."""
    known = differences[np.isfinite(differences)]
    if not len(known):
        return None
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)


def _draw(draws: np.random.Generator, requests: int, replicates: int) -> Floats:
    """How often each request is drawn; one row a replicate."""
    shares = np.full(requests, 1.0 / requests)
    return draws.multinomial(requests, shares, size=replicates).astype(np.float64)


def _replicates(samples: Samples, weights: Floats, percentiles: Sequence[float | None]) -> Floats:
    """One row a statistic, one column a replicate; NaN where a replicate drew no sample."""
    values, table = _table(samples)
    counts = weights @ table
    total = counts.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (counts @ values) / total
    ordered = counts.cumsum(axis=1)
    found = [mean if p is None else _quantile(values, ordered, p / 100) for p in percentiles]
    return np.where(total > 0, np.array(found), np.nan)


def _table(samples: Samples) -> tuple[Floats, Floats]:
    """Values in order, and how often each request has each of them."""
    values, index = np.unique(samples.values, return_inverse=True)
    limit = max(MIN_VALUES, min(MAX_VALUES, MAX_TABLE // samples.requests))
    if len(values) > limit:
        rank = np.argsort(np.argsort(samples.values, kind="stable"))
        index = rank * limit // len(rank)
        values = np.bincount(index, samples.values) / np.bincount(index)
    table = np.zeros((samples.requests, len(values)))
    np.add.at(table, (samples.owner, index), 1.0)
    return values, table


def _quantile(values: Floats, ordered: Floats, share: float) -> Floats:
    """Linear percentile of counted values, as numpy's of the samples written out."""
    place = np.maximum(ordered[:, -1] - 1, 0) * share
    below = np.floor(place)
    low, high = (values[_at(ordered, rank)] for rank in (below, np.ceil(place)))
    return np.asarray(low + (place - below) * (high - low))


def _at(ordered: Floats, rank: Floats) -> NDArray[np.intp]:
    """Index of the value that holds a rank."""
    index = (ordered <= rank[:, None]).sum(axis=1)
    return np.asarray(np.minimum(index, ordered.shape[1] - 1))
