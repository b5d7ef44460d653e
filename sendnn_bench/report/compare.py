"""Two results beside each other: every metric, its difference, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sendnn_bench.report.compare_bootstrap import Interval, intervals
from sendnn_bench.report.compare_samples import (
    MEASURES,
    SCALARS,
    Measure,
    aggregate,
    collect,
    number,
    point,
    statistics,
)
from sendnn_bench.report.compare_workload import (
    paired,
    setup_differences,
    workload_differences,
)
from sendnn_bench.results import RequestRow, Result


@dataclass(frozen=True)
class Options:
    """``tolerance`` is a fraction; percentiles are in percent."""

    tolerance: float = 0.05
    percentiles: tuple[float, ...] = (90.0, 99.0)
    replicates: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """One statistic of one metric, in its printed unit; None where a result has none.

    ``interval`` is the 95 % bootstrap interval of the difference, where samples are there.
    """

    key: str
    title: str
    statistic: str
    unit: str
    base: float | None
    other: float | None
    interval: Interval | None = None

    @property
    def difference(self) -> float | None:
        """Other less base."""
        return None if self.base is None or self.other is None else self.other - self.base

    @property
    def relative(self) -> float | None:
        """Difference over base, as a fraction; None where base is 0 and other is not."""
        if self.base is None or self.difference is None:
            return None
        if self.difference == 0:
            return 0.0
        return self.difference / abs(self.base) if self.base else None

    def beyond(self, tolerance: float) -> bool:
        """True where the difference is more than the tolerance, or only the base is 0."""
        if self.difference is None:
            return False
        return self.relative is None or abs(self.relative) > tolerance


@dataclass(frozen=True)
class Comparison:
    """``other`` against ``base``. ``workload`` says why they are not of the same load."""

    base: Result
    other: Result
    rows: tuple[Row, ...]
    workload: tuple[str, ...]
    setup: tuple[str, ...]
    paired: bool
    sampled: bool

    def beyond(self, tolerance: float) -> list[Row]:
        """Rows that differ by more than the tolerance."""
        return [row for row in self.rows if row.beyond(tolerance)]


def compare(base: Result, other: Result, options: Options) -> Comparison:
    """Compare two results.

    Samples are used where both have per-request data, else the aggregates that the files hold,
    then without intervals.

    Raises:
        ResultError: columns of unequal length.
    """
    sampled = base.detailed and other.detailed
    same = sampled and paired(base, other)
    rows = list(_scalars(base, other))
    if sampled:
        rows += _sampled(base.rows(), other.rows(), options, same)
    else:
        rows += _aggregated(base, other, options)
    return Comparison(
        base=base,
        other=other,
        rows=tuple(row for row in rows if row.base is not None or row.other is not None),
        workload=tuple(workload_differences(base, other)),
        setup=tuple(setup_differences(base, other)),
        paired=same,
        sampled=sampled,
    )


def _scalars(base: Result, other: Result) -> Iterator[Row]:
    for scalar in SCALARS:
        one, two = (number(result.data.get(scalar.key)) for result in (base, other))
        yield Row(scalar.key, scalar.title, "", scalar.unit, one, two)


def _sampled(
    base: Sequence[RequestRow], other: Sequence[RequestRow], options: Options, same: bool
) -> Iterator[Row]:
    wanted = statistics(options.percentiles)
    for measure in MEASURES:
        one, two = collect(measure, base), collect(measure, other)
        bounds = intervals(
            one,
            two,
            [percentile for _, percentile in wanted],
            paired=same,
            replicates=options.replicates,
            seed=options.seed,
        )
        for (statistic, percentile), interval in zip(wanted, bounds, strict=True):
            values = point(one, percentile), point(two, percentile)
            yield _row(measure, statistic, values, interval)


def _aggregated(base: Result, other: Result, options: Options) -> Iterator[Row]:
    for measure in MEASURES:
        for statistic, _ in statistics(options.percentiles):
            values = aggregate(base, measure, statistic), aggregate(other, measure, statistic)
            yield _row(measure, statistic, values, None)


def _row(
    measure: Measure,
    statistic: str,
    values: tuple[float | None, float | None],
    interval: Interval | None,
) -> Row:
    return Row(
        key=measure.prefix + measure.key,
        title=measure.title,
        statistic=statistic,
        unit=measure.unit,
        base=values[0],
        other=values[1],
        interval=interval,
    )
