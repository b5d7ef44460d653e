"""Result files: rows of good files, of upstream's, and of damaged ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sendnn_bench.errors import ResultError
from sendnn_bench.results import Result


def result(**changed: Any) -> Result:
    """Two requests, the second of which failed."""
    data: dict[str, Any] = {
        "start_times": [0.0, 1.0],
        "ttfts": [0.1, 0.0],
        "itls": [[0.05], []],
        "input_lens": [7, 7],
        "output_lens": [2, 0],
        "errors": ["", "boom"],
        "spyre_queued_time_s": [0.5, None],
        "spyre_token_times_ns": [[100, 150], None],
    }
    return Result(Path("x.json"), data | changed)


def test_rows_hold_what_the_columns_say() -> None:
    good, failed = result().rows()
    assert (good.ttft_s, good.itl_s, good.output_tokens, good.failed) == (0.1, [0.05], 2, False)
    assert good.record == {"queued_time_s": 0.5, "token_times_ns": [100, 150]}
    assert (failed.failed, failed.error, failed.record) == (True, "boom", None)


def test_zeros_that_upstream_puts_into_a_failed_row_are_no_record() -> None:
    columns = {
        "spyre_queued_time_s": [0.5, 0.0],
        "spyre_was_missing_blocks": [True, False],
        "spyre_decode_latencies_s": [[0.05], []],
    }
    good, failed = result(**columns).rows()
    assert good.record is not None
    assert good.record["was_missing_blocks"] is True
    assert failed.record is None


def test_a_row_of_nulls_and_empty_lists_is_no_record() -> None:
    rows = result(errors=["", ""], spyre_token_times_ns=[[100], []]).rows()
    assert [row.record is None for row in rows] == [False, True]


def test_columns_of_others_are_kept_as_they_are() -> None:
    record = result(spyre_of_the_future=[{"a": 1}, None]).rows()[0].record
    assert record is not None
    assert record["of_the_future"] == {"a": 1}


@pytest.mark.parametrize(
    ("column", "cell", "wanted"),
    [
        ("start_times", "soon", "a number"),
        ("ttfts", [0.1], "a number"),
        ("ttfts", True, "a number"),
        ("itls", 0.05, "a list of numbers"),
        ("itls", [0.05, "x"], "a list of numbers"),
        ("input_lens", "7", "a whole number"),
        ("output_lens", float("nan"), "a whole number"),
        ("output_lens", 2.5, "a whole number"),
        ("errors", 3, "a text"),
        ("spyre_queued_time_s", "0.5", "a number"),
        ("spyre_queued_time_s", [0.5], "a number"),
        ("spyre_token_times_ns", 100, "a list of numbers"),
        ("spyre_token_times_ns", [100, {}], "a list of numbers"),
        ("spyre_injected_output_source", 1, "a text"),
        ("start_times", 10**400, "a number"),
    ],
)
def test_damaged_cells_are_named(column: str, cell: Any, wanted: str) -> None:
    damaged = result(**{column: [cell, None]})
    with pytest.raises(ResultError, match=f"x.json: .* row 0 of '{column}' is .*not {wanted}"):
        damaged.rows()
