"""What a sweep says on stderr while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sendnn_bench.sweep.grid import Point
from sendnn_bench.sweep.summary import Row


class Progress:
    """Counts points; ``say`` writes a line."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total, self._begun, self._say = total, 0, say

    def taken(self, count: int, directory: Path) -> None:
        """So many points had been measured before."""
        self._begun += count
        if count:
            self._say(f"{count} of {self._total} points are in {directory} already.")

    def starting(self, server: str, log: Path) -> None:
        """A server is needed."""
        self._say(f"Server{f' with {server}' if server else ''} (log: {log})")

    def running(self, point: Point) -> None:
        """A point begins."""
        self._begun += 1
        self._say(f"[{self._begun}/{self._total}] {point.label}")

    def ended(self, row: Row, wall_s: float | None) -> None:
        """A point is done or failed."""
        if row.status == "failed":
            self._say(f"  failed with exit code {row.exit_code}: {row.reason}")
            return
        numbers = row.numbers
        parts = [f"median TTFT {_shown(numbers.get('median_ttft_ms'))} ms"]
        parts.append(f"{_shown(numbers.get('output_throughput'))} tok/s")
        if numbers.get("request_goodput") is not None:
            parts.append(f"goodput {_shown(numbers['request_goodput'], 2)} req/s")
        duration_s = numbers.get("duration")
        if wall_s and duration_s:
            parts.append(
                f"{duration_s:.1f} s in {wall_s:.1f} s of wall time ({duration_s / wall_s:.1f}x)"
            )
        self._say("  " + ", ".join(parts))


def _shown(value: float | None, digits: int = 1) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
