"""Metrics as data: one declaration each (`builtin`), what a declaration is (`spec`), and the
statistics made from them (`stats`)."""

from sendnn_bench.metrics.builtin import METRICS
from sendnn_bench.metrics.spec import COLUMN_PREFIX, Metric, Per, Record, Show, Unit
from sendnn_bench.metrics.stats import Summary, percentile_word, samples, summarise

__all__ = [
    "COLUMN_PREFIX",
    "METRICS",
    "Metric",
    "Per",
    "Record",
    "Show",
    "Summary",
    "Unit",
    "percentile_word",
    "samples",
    "summarise",
]
