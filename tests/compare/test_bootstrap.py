"""Intervals against the same bootstrap written out sample by sample."""

from __future__ import annotations

import numpy as np
import pytest

from sendnn_bench.report.compare_bootstrap import intervals
from sendnn_bench.report.compare_samples import Samples, point

WANTED = (None, 50.0, 90.0, 99.0)


def samples(parts: list[list[float]]) -> Samples:
    return Samples(
        values=np.array([value for part in parts for value in part], dtype=np.float64),
        owner=np.repeat(np.arange(len(parts)), [len(part) for part in parts]),
        requests=len(parts),
    )


def made(requests: int, tokens: int, scale: float, seed: int = 1) -> list[list[float]]:
    draws = np.random.default_rng(seed)
    return [list(draws.gamma(2.0, scale, tokens)) for _ in range(requests)]


def written_out(base: list[list[float]], other: list[list[float]], replicates: int, seed: int):
    """Paired: draws requests, writes their samples out, takes numpy's statistics."""
    draws = np.random.default_rng(seed)
    count = len(base)
    weights = draws.multinomial(count, np.full(count, 1 / count), size=replicates)
    differences = []
    for row in weights:
        one, two = (
            [value for part, times in zip(parts, row, strict=True) for value in part * times]
            for parts in (base, other)
        )
        differences.append(
            [np.mean(two) - np.mean(one)]
            + [np.percentile(two, p) - np.percentile(one, p) for p in WANTED[1:]]
        )
    return [tuple(np.percentile(column, [2.5, 97.5])) for column in zip(*differences, strict=True)]


def test_paired_intervals_are_those_of_samples_written_out() -> None:
    base, other = made(12, 5, 10.0), made(12, 5, 11.0, seed=2)
    found = intervals(samples(base), samples(other), WANTED, paired=True, replicates=50, seed=3)
    for interval, expected in zip(found, written_out(base, other, 50, 3), strict=True):
        assert interval == pytest.approx(expected)


def test_equal_runs_have_no_width() -> None:
    parts = samples(made(30, 4, 10.0))
    found = intervals(parts, parts, WANTED, paired=True, replicates=100, seed=0)
    assert found == [(0.0, 0.0)] * 4


def test_unpaired_intervals_hold_zero_for_two_draws_of_one_law() -> None:
    one, two = samples(made(200, 3, 10.0)), samples(made(150, 3, 10.0, seed=9))
    found = intervals(one, two, (None, 50.0), paired=False, replicates=300, seed=0)
    for interval in found:
        assert interval is not None
        assert interval[0] < 0 < interval[1]


def test_a_shift_lies_outside_zero() -> None:
    one, two = samples(made(200, 3, 10.0)), samples(made(200, 3, 20.0, seed=9))
    (interval,) = intervals(one, two, (None,), paired=False, replicates=300, seed=0)
    assert interval is not None
    assert interval[0] > 0


def test_same_seed_same_interval() -> None:
    one, two = samples(made(40, 3, 10.0)), samples(made(40, 3, 11.0, seed=2))
    first, again, other = (
        intervals(one, two, WANTED, paired=True, replicates=100, seed=seed) for seed in (4, 4, 5)
    )
    assert first == again
    assert first != other


def test_many_samples_are_put_together_and_stay_near() -> None:
    one, two = samples(made(50, 400, 10.0)), samples(made(50, 400, 12.0, seed=2))
    found = intervals(one, two, WANTED, paired=True, replicates=200, seed=0)
    for interval, percentile in zip(found, WANTED, strict=True):
        high, low = point(two, percentile), point(one, percentile)
        assert interval is not None
        assert interval[0] < high - low < interval[1]


def test_no_samples_no_interval() -> None:
    some, none = samples(made(4, 2, 1.0)), samples([[], []])
    assert intervals(some, none, (None,), paired=False, replicates=10, seed=0) == [None]
    # a replicate may draw only requests without samples
    thin = samples([[1.0], [], [], []])
    (interval,) = intervals(thin, thin, (None,), paired=True, replicates=50, seed=0)
    assert interval == (0.0, 0.0)
