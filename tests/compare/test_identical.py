"""`compare --identical`: the same to the last digit, or the first place where not."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sendnn_bench.errors import UsageError
from sendnn_bench.report.identical import run_identical

BASE: dict[str, Any] = {
    "date": "20260101-000000",
    "completed": 2,
    "ttfts": [0.1, 0.2],
    "itls": [[0.05, 0.05], []],
    "sendnn": {
        "command": ["sendnn-bench", "serve", "--seed", "1", "--base-url", "http://a", "--warm"],
        "settings": {"SENDNN_INFERENCE_SIM_METRICS_FILE": "a", "X": 1},
        "wall": {"started": "now", "duration_s": 3.0, "engine": {"mock": 1.0}},
    },
}

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[Change], list[Path]]:
    """BASE, and BASE with a change."""

    def make(change: Change) -> list[Path]:
        other = copy.deepcopy(BASE)
        change(other)
        paths = [tmp_path / "a.json", tmp_path / "b.json"]
        for path, data in zip(paths, (BASE, other), strict=True):
            path.write_text(json.dumps(data))
        return paths

    return make


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(date="20270101-000000"),
        lambda data: data["sendnn"].update(wall={}),
        lambda data: data["sendnn"]["settings"].update(SENDNN_INFERENCE_SIM_METRICS_FILE="b"),
        lambda data: data["sendnn"]["command"].__setitem__(5, "http://b"),
    ],
)
def test_dates_real_times_and_places_do_not_count(pair, capsys, change: Change) -> None:
    assert run_identical(pair(change)) == 0
    assert capsys.readouterr().out == "2 results are identical to the last digit.\n"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data["ttfts"].__setitem__(1, 0.20000000000000004), "ttfts[1]: 0.2 and 0.200"),
        (lambda data: data["itls"][0].append(0.05), "itls[0]: 2 entries and 3"),
        (lambda data: data.update(completed=2.0), "completed: 2 and 2.0"),
        (lambda data: data.update(more=1), "more is only in the second"),
        (lambda data: data.pop("completed"), "completed is only in the first"),
        (lambda data: data["sendnn"]["command"].__setitem__(3, "2"), "sendnn.command[3]"),
    ],
)
def test_the_first_difference_is_named(pair, capsys, change: Change, told: str) -> None:
    paths = pair(change)
    assert run_identical(paths) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"{paths[1]} differs from {paths[0]}: {told}"), out


def test_one_result_is_too_few(pair) -> None:
    with pytest.raises(UsageError, match="at least two"):
        run_identical(pair(lambda _: None)[:1])


def test_the_command(pair) -> None:
    paths = pair(lambda data: data.update(completed=3))
    command = [sys.executable, "-m", "sendnn_bench", "compare", "--identical", *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "completed: 2 and 3" in ended.stdout
