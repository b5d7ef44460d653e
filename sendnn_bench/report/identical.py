"""`compare --identical`: whether results are the same to the last digit.

What a repetition cannot repeat is left out: the date, the `wall` part (real times of client and
engine), and where the server was and the files went.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sendnn_bench.command_words import ADDRESS_FLAGS, RESULT_FLAGS, without
from sendnn_bench.launch_flags import METRICS_FILE
from sendnn_bench.report.compare_command import check_count
from sendnn_bench.results import BLOCK_KEY, Result, load

WALL = ("date",)
WALL_IN_BLOCK = ("wall",)
PLACES = ADDRESS_FLAGS | RESULT_FLAGS
"""Flags that say where a run took place, not what was run."""

SHOWN_CHARS = 60


def canonical(result: Result) -> dict[str, Any]:
    """What two runs of one seed have in common, as JSON."""
    data = {key: value for key, value in result.data.items() if key not in WALL}
    if not result.block:
        return data
    block = {key: value for key, value in result.block.items() if key not in WALL_IN_BLOCK}
    if isinstance(block.get("command"), list):
        block["command"] = without([str(word) for word in block["command"]], PLACES)
    if isinstance(block.get("settings"), dict):
        settings = block["settings"].items()
        block["settings"] = {key: value for key, value in settings if key != METRICS_FILE}
    return data | {BLOCK_KEY: block}


def first_difference(a: Any, b: Any, place: str = "") -> str | None:
    """Where two JSON values differ first, with both values; None where they are the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        return _of_objects(a, b, place)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            if found := first_difference(left, right, f"{place}[{index}]"):
                return found
        return None
    if isinstance(a, list) and isinstance(b, list):
        return f"{place}: {len(a)} entries and {len(b)}"
    if json.dumps(a) == json.dumps(b):
        return None
    return f"{place}: {_short(a)} and {_short(b)}"


def _of_objects(a: Mapping[str, Any], b: Mapping[str, Any], place: str) -> str | None:
    for key in [*a, *(key for key in b if key not in a)]:
        where = f"{place}.{key}" if place else key
        if key not in a or key not in b:
            return f"{where} is only in {'the second' if key not in a else 'the first'}"
        if found := first_difference(a[key], b[key], where):
            return found
    return None


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


def run_identical(paths: Sequence[Path]) -> int:
    """Compare every result with the first; 0 where all are identical, 1 otherwise.

    Raises:
        ResultError: a file cannot be read.
        UsageError: fewer than two results.
    """
    check_count(paths)
    base, *others = [canonical(load(path)) for path in paths]
    different = 0
    for path, other in zip(paths[1:], others, strict=True):
        found = first_difference(base, other)
        if found is not None:
            different += 1
            sys.stdout.write(f"{path} differs from {paths[0]}: {found}\n")
    if not different:
        sys.stdout.write(f"{len(paths)} results are identical to the last digit.\n")
    return int(different > 0)
