"""What a sweep means: the Pareto front, the knee of every curve, the best goodput."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sendnn_bench.sweep.grid import Setting, label
from sendnn_bench.sweep.summary import Row, Summary

LOADS = ("request-rate", "max-concurrency")
"""What curves are drawn over, where it varies; else the first load setting with numbers."""

KNEE_OF = "p99_ttft_ms"
KNEE_MIN_POINTS = 4
KNEE_MIN_BEND = 0.15
"""How far below the straight line between its ends a curve must fall, as a share of its height."""


@dataclass(frozen=True)
class Curve:
    """Points that differ in the load alone, by rising load. ``knee`` is an index, or None."""

    name: str
    loads: tuple[float, ...]
    rows: tuple[Row, ...]
    knee: int | None


@dataclass(frozen=True)
class Analysis:
    """``pareto`` are indices of rows, by rising throughput; ``over`` names the load of curves."""

    pareto: tuple[int, ...]
    over: str
    curves: tuple[Curve, ...]
    best: tuple[Row, ...]
    """For each server setting, the row with the highest goodput."""

    def knees(self) -> list[Row]:
        """The rows at the knees."""
        return [curve.rows[curve.knee] for curve in self.curves if curve.knee is not None]


def analyse(summary: Summary) -> Analysis:
    """All of it."""
    over = load_name(summary.done)
    return Analysis(
        pareto=tuple(pareto_rows(summary.rows)),
        over=over,
        curves=tuple(curves(summary.done, over)),
        best=tuple(best_goodput(summary.done)),
    )


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other beats in one number without losing in the other.

    Both numbers are better when higher. Rising in the first; of equal points all are kept.
    """
    front: list[int] = []
    best_y = -math.inf
    best_x = math.inf
    for index in sorted(range(len(points)), key=lambda i: (-points[i][0], -points[i][1], i)):
        x, y = points[index]
        if y > best_y or (y == best_y and x == best_x):
            front.append(index)
            best_x, best_y = x, y
    return sorted(front, key=lambda i: (points[i][0], -points[i][1], i))


def pareto_rows(rows: Sequence[Row]) -> list[int]:
    """The front of total throughput and throughput per user."""
    known = [
        (index, x, y)
        for index, row in enumerate(rows)
        if row.status == "done"
        and (x := row.numbers.get("output_throughput")) is not None
        and (y := row.numbers.get("user_throughput")) is not None
    ]
    return [known[i][0] for i in pareto_front([(x, y) for _, x, y in known])]


def knee(xs: Sequence[float], ys: Sequence[float]) -> int | None:
    """Where a rising, convex curve turns up: the point farthest below the line between its ends.

    ``xs`` rise. None where there are too few points, or the curve does not bend.
    """
    if len(xs) < KNEE_MIN_POINTS or xs[-1] <= xs[0] or ys[-1] <= ys[0]:
        return None
    bends = [
        (x - xs[0]) / (xs[-1] - xs[0]) - (y - ys[0]) / (ys[-1] - ys[0])
        for x, y in zip(xs, ys, strict=True)
    ]
    place = max(range(len(bends)), key=bends.__getitem__)
    return place if bends[place] >= KNEE_MIN_BEND else None


def load_name(rows: Sequence[Row]) -> str:
    """What the curves are drawn over; empty where no load varies by number."""
    varying: dict[str, set[float]] = {}
    for row in rows:
        for name, value in row.load:
            if (found := finite(value)) is not None:
                varying.setdefault(name, set()).add(found)
    names = [name for name, values in varying.items() if len(values) > 1]
    return next((name for name in LOADS if name in names), names[0] if names else "")


def curves(rows: Sequence[Row], over: str) -> Iterator[Curve]:
    """Rows by everything that varies beside the load, and beside what goes with the load."""
    linked = _linked(rows, over)
    found: dict[tuple[Setting, ...], list[tuple[float, Row]]] = {}
    for row in rows:
        settings = dict(row.load)
        load = finite(settings.get(over, ""))
        if load is not None:
            rest = tuple(item for item in (*row.server, *row.load) if item[0] not in linked)
            found.setdefault(rest, []).append((load, row))
    for rest, pairs in found.items():
        pairs.sort(key=lambda pair: pair[0])
        loads = tuple(load for load, _ in pairs)
        ys = [row.numbers.get(KNEE_OF) for _, row in pairs]
        known = [y for y in ys if y is not None]
        turn = knee(loads, known) if len(known) == len(loads) else None
        yield Curve(label(rest) or "all runs", loads, tuple(row for _, row in pairs), turn)


def _linked(rows: Sequence[Row], over: str) -> set[str]:
    """The load, and load settings whose value it decides: they varied together."""
    linked = {over}
    for name in dict.fromkeys(name for row in rows for name, _ in row.load):
        pairs = {(dict(row.load).get(over), dict(row.load).get(name)) for row in rows}
        if len(pairs) == len({load for load, _ in pairs}) > 1:
            linked.add(name)
    return linked


def best_goodput(rows: Sequence[Row]) -> list[Row]:
    """For each server setting the first row with the highest goodput; none without objectives."""
    best: dict[tuple[Setting, ...], Row] = {}
    for row in rows:
        goodput = row.numbers.get("request_goodput")
        known = best.get(row.server)
        if goodput is not None and (known is None or goodput > _goodput(known)):
            best[row.server] = row
    return list(best.values())


def _goodput(row: Row) -> float:
    return row.numbers.get("request_goodput") or 0.0


def finite(text: str) -> float | None:
    """The text as a finite number, else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
