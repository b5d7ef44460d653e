"""What a metric declaration is. Nothing here knows any particular metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

COLUMN_PREFIX = "spyre_"
"""Prefix of every key that this project adds to vLLM's result JSON; upstream's, kept."""

Record = dict[str, Any]
"""One request's metrics as they travel on the wire: metric key -> value. Keys may be missing
(an older server) or unknown (a newer one)."""


class Unit(Enum):
    """Unit in which a value is stored; ``printed`` and ``scale`` are what the report shows."""

    SECONDS = ("s", "ms", 1e3)
    NANOSECONDS = ("ns", "ms", 1e-6)
    FRACTION = ("fraction 0..1", "%", 100.0)
    COUNT = ("count", "", 1.0)
    TOKENS = ("tokens", "tokens", 1.0)
    BLOCKS = ("blocks", "blocks", 1.0)
    FLAG = ("true/false", "", 1.0)
    TEXT = ("text", "", 1.0)

    def __init__(self, stored: str, printed: str, scale: float) -> None:
        self.stored = stored
        self.printed = printed
        self.scale = scale


class Per(Enum):
    """How many samples a request gives: one, or one for each of these."""

    REQUEST = "request"
    CHUNK = "prefill chunk"
    DECODE_STEP = "decode step"
    STEP = "scheduler step the request took part in"
    TOKEN = "output token"
    PAUSE = "pause"


class Show(Enum):
    """How the report shows a metric."""

    SECTION = "mean, median and the percentiles asked for"
    COLUMN = "only in the detailed JSON"


@dataclass(frozen=True)
class Metric:
    """One metric, declared once; console, JSON, `describe-metrics`, docs and tests read this.

    ``key`` is the name on the wire; the JSON column is ``spyre_<key>``. ``value`` reads or derives
    the metric from a request's record and returns None when the record cannot give it (the report
    then leaves the metric out, and the column holds null). It returns a list exactly when ``per``
    is not ``Per.REQUEST``.
    """

    key: str
    title: str
    unit: Unit
    per: Per
    show: Show
    description: str
    computed: str
    """Where the value comes from: module and function, or upstream's."""
    label: str = ""
    """Text before the colon of a printed line; the title where empty."""
    value: Callable[[Record], Any] | None = None
    total_title: str = ""
    """Text of the line with the sum over all requests; no such line where empty."""
    total_key: str = ""
    """JSON key of that sum."""

    @property
    def column(self) -> str:
        """Key of the per-request column in the detailed JSON."""
        return COLUMN_PREFIX + self.key

    @property
    def printed_label(self) -> str:
        """Label with the printed unit, such as ``Queue Wait Time (ms)``."""
        return self.label or self.title

    def read(self, record: Record | None) -> Any:
        """Value of this metric for one request, or None where the record cannot give it."""
        if record is None:
            return None
        return record.get(self.key) if self.value is None else self.value(record)
