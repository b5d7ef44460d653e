"""How many requests wait, run and are paused over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sendnn_bench.report.timeline.segments import Kind, Life

_WAITS_FIRST = (Kind.QUEUE, Kind.FIRST_TOKEN)


class Count(NamedTuple):
    """State from ``time_ns`` until the next count. A paused request is not a running one."""

    time_ns: int
    waiting: int
    running: int
    paused: int


def counts(lives: Iterable[Life]) -> list[Count]:
    """Counts at each change, in order of time; one entry a time, the state after all changes."""
    changes: dict[int, list[int]] = {}

    def change(time_ns: int, waiting: int, running: int, paused: int) -> None:
        entry = changes.setdefault(time_ns, [0, 0, 0])
        entry[0] += waiting
        entry[1] += running
        entry[2] += paused

    for life in lives:
        first_ns = _first_step_ns(life)
        change(life.arrival_ns, 1, 0, 0)
        change(first_ns, -1, 1, 0)
        change(life.finish_ns, 0, -1, 0)
        for segment in life.segments:
            if segment.kind is Kind.PAUSE:
                change(segment.start_ns, 0, -1, 1)
                change(segment.end_ns, 0, 1, -1)
    return _running_sums(changes)


def _first_step_ns(life: Life) -> int:
    """End of the wait that every life begins with, if it has one."""
    if life.segments and life.segments[0].kind in _WAITS_FIRST:
        return life.segments[0].end_ns
    return life.arrival_ns


def _running_sums(changes: dict[int, list[int]]) -> list[Count]:
    waiting = running = paused = 0
    series = []
    for time_ns, (d_waiting, d_running, d_paused) in sorted(changes.items()):
        waiting += d_waiting
        running += d_running
        paused += d_paused
        series.append(Count(time_ns, waiting, running, paused))
    return series
