"""The cells of a result's per-request columns: what each column holds, and the check of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sendnn_bench.metrics import METRICS, Metric, Per, Unit


def read_cell(key: str, value: Any) -> Any:
    """The cell of column ``key``, None where it is null; a column of others is read as it is.

    Raises:
        TypeError: another type; the message says what it should be.
    """
    read, wanted = _CELLS.get(key, (None, ""))
    if value is None or read is None:
        return value
    try:
        return read(value)
    except (TypeError, OverflowError) as error:
        raise TypeError(wanted) from error


def short(value: Any) -> str:
    """The value for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)


def _count(value: Any) -> int:
    if not _number(value).is_integer():
        raise TypeError
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _numbers(value: Any) -> list[float]:
    if not isinstance(value, list):
        raise TypeError
    return [_number(item) for item in value]


def _measured(value: Any) -> Any:
    """A number or true/false, kept as it is: integers stay exact."""
    if not isinstance(value, (int, float)):
        raise TypeError
    return value


def _all_measured(value: Any) -> Any:
    """A list of numbers; null stands for what had not ended."""
    if not isinstance(value, list):
        raise TypeError
    for item in value:
        if item is not None:
            _measured(item)
    return value


_Cell = tuple[Callable[[Any], Any], str]


def _cell_of(metric: Metric) -> _Cell:
    if metric.per is not Per.REQUEST:
        return _all_measured, "a list of numbers"
    return (_text, "a text") if metric.unit is Unit.TEXT else (_measured, "a number")


VLLM_CELLS: dict[str, _Cell] = {
    "start_times": (_number, "a number"),
    "ttfts": (_number, "a number"),
    "itls": (_numbers, "a list of numbers"),
    "input_lens": (_count, "a whole number"),
    "output_lens": (_count, "a whole number"),
    "errors": (_text, "a text"),
}
"""vLLM's columns that a row is made of: how to read a cell, and what it should be."""

_CELLS = VLLM_CELLS | {metric.column: _cell_of(metric) for metric in METRICS}
