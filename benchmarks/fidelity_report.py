"""The error table of the fidelity experiment: repeated simulated against repeated real runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sendnn_bench.report.compare_samples import MEASURES, Measure, collect, number, point
from sendnn_bench.results import RequestRow, Result

STATISTICS: tuple[tuple[str, float | None, float], ...] = (
    ("mean", None, 0.02),
    ("median", 50.0, 0.02),
    ("P90", 90.0, 0.05),
    ("P99", 99.0, 0.05),
)
"""Name, percentile (None: the mean) and the error allowed, as a fraction."""

THROUGHPUT = (("request throughput", "request_throughput"), ("duration", "duration"))
THROUGHPUT_GOAL = 0.02


def _server_ttft(row: RequestRow) -> list[float]:
    """Arrival at the server to the first token, by the server's own clock, in ms."""
    record = row.record or {}
    queued, elapsed = record.get("queued_time_s"), record.get("prefill_elapsed_s")
    return [] if queued is None or elapsed is None else [1e3 * (queued + elapsed)]


SERVER_TTFT = Measure("server_ttft", "TTFT on the server", "ms", _server_ttft)
WANTED = (
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "queued_time",
    "chunk_prefill_latencies",
    "decode_latencies",
)
SHOWN = (*(measure for measure in MEASURES if measure.key in WANTED), SERVER_TTFT)


@dataclass(frozen=True)
class Line:
    """One number of one load: of all real runs, and of all simulated ones."""

    metric: str
    statistic: str
    real: tuple[float, ...]
    simulated: tuple[float, ...]
    goal: float

    @property
    def real_mean(self) -> float:
        """Mean of the real runs."""
        return float(np.mean(self.real))

    @property
    def simulated_mean(self) -> float:
        """Mean of the simulated runs, which differ in noise alone."""
        return float(np.mean(self.simulated))

    @property
    def spread(self) -> float:
        """Largest distance of a real run from their mean, as a fraction."""
        mean = self.real_mean
        return max(abs(value / mean - 1) for value in self.real) if mean else 0.0

    @property
    def error(self) -> float:
        """Simulated over real mean, less 1."""
        if not self.real_mean:
            return float(self.simulated_mean != 0)
        return self.simulated_mean / self.real_mean - 1

    @property
    def met(self) -> bool:
        """True within the goal, or within the real runs' own spread where that is wider."""
        return abs(self.error) <= max(self.goal, self.spread)


def lines_of(real: Sequence[Result], simulated: Sequence[Result]) -> list[Line]:
    """Every number that all runs have; each side holds repetitions of one load."""
    runs = [*real, *simulated]
    rows = [run.rows() for run in runs]
    lines: list[Line] = []

    def add(metric: str, statistic: str, values: Sequence[float | None], goal: float) -> None:
        known = tuple(value for value in values if value is not None)
        if len(known) == len(runs):
            sides = known[: len(real)], known[len(real) :]
            lines.append(Line(metric, statistic, *sides, goal))

    for title, key in THROUGHPUT:
        add(title, "", [number(run.data.get(key)) for run in runs], THROUGHPUT_GOAL)
    for measure in SHOWN:
        samples = [collect(measure, part) for part in rows]
        for name, percentile, goal in STATISTICS:
            add(measure.title, name, [point(s, percentile) for s in samples], goal)
    return lines


def load_table(lines: Sequence[Line]) -> str:
    """Markdown table of one load."""
    head = ("metric", "real", "spread", "simulated", "error", "goal", "")
    rule = ("---", *["---:"] * 5, "---")
    rows = [head, rule, *(_cells(line) for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _cells(line: Line) -> tuple[str, ...]:
    return (
        f"{line.statistic} {line.metric}".strip(),
        f"{line.real_mean:,.2f}",
        f"±{100 * line.spread:.2f} %",
        f"{line.simulated_mean:,.2f}",
        f"{100 * line.error:+.2f} %",
        f"{100 * line.goal:g} %",
        "met" if line.met else "**missed**",
    )


def summary(lines: Sequence[Line]) -> str:
    """How many numbers met their goal, by statistic."""
    parts = []
    groups: tuple[tuple[str, Callable[[Line], bool]], ...] = (
        ("throughput and duration", lambda line: not line.statistic),
        ("mean and median", lambda line: line.statistic in ("mean", "median")),
        ("P90 and P99", lambda line: line.statistic.startswith("P")),
    )
    for name, wanted in groups:
        chosen = [line for line in lines if wanted(line)]
        if chosen:
            worst = max(chosen, key=lambda line: abs(line.error))
            parts.append(
                f"- {name}: {sum(line.met for line in chosen)} of {len(chosen)} met, worst "
                f"{100 * worst.error:+.2f} % ({f'{worst.statistic} {worst.metric}'.strip()})"
            )
    return "\n".join(parts) + "\n"
