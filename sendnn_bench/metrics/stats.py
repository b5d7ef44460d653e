"""Pure statistics over the samples of a metric. No printing, no files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sendnn_bench.metrics.spec import Metric, Per, Record, Unit


@dataclass(frozen=True)
class Summary:
    """Mean, median and percentiles of one metric, in its printed unit."""

    mean: float
    median: float
    percentiles: tuple[tuple[float, float], ...]
    count: int


def samples(metric: Metric, records: Iterable[Record | None]) -> list[float]:
    """All samples of a metric, scaled to its printed unit; missing values give none.

    Raises nothing for odd data: a value that is no number gives no sample.
    """
    if metric.unit is Unit.TEXT:
        return []
    values: list[float] = []
    for record in records:
        value = metric.read(record)
        candidates = [value] if metric.per is Per.REQUEST else value or []
        values.extend(
            float(v) * metric.unit.scale for v in candidates if isinstance(v, (int, float))
        )
    return values


def summarise(values: Sequence[float], percentiles: Sequence[float]) -> Summary | None:
    """Summary of samples, or None where there are none (never zeros for missing data).

    Percentiles interpolate linearly, as `vllm bench serve` does.
    """
    if not values:
        return None
    import numpy as np  # slow to import, and not needed to describe metrics

    array = np.asarray(values, dtype=np.float64)
    return Summary(
        mean=float(array.mean()),
        median=float(np.median(array)),
        percentiles=tuple((p, float(np.percentile(array, p))) for p in percentiles),
        count=len(values),
    )


def percentile_word(percentile: float) -> str:
    """`99` for 99.0 and `99.9` for 99.9, as vLLM words it."""
    return str(int(percentile)) if int(percentile) == percentile else str(percentile)
