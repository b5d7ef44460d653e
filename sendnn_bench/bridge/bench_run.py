"""What a benchmark run leaves behind."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sendnn_bench.errors import BenchError
from sendnn_bench.protocol import Pace, ServerInfo, SessionClosed, SessionOpened
from sendnn_bench.reproducer import SentRequest


def percentiles_of(args: argparse.Namespace) -> list[float]:
    """--metric-percentiles as numbers; ValueError where they are none."""
    return [float(part) for part in args.metric_percentiles.split(",")]


@dataclass
class BenchRun:
    """One run, complete or not.

    ``args`` are the user's flags. ``result`` is vLLM's result with its per-request columns, or
    None where the run did not reach its end; ``error`` then says why. ``outputs`` are vLLM's
    output objects in the order of submission (None for pooling runs), those that had ended where
    the run did not. ``file_name`` is where the result belongs, or None.
    """

    args: argparse.Namespace
    info: ServerInfo | None
    result: dict[str, Any] | None = None
    outputs: list[Any] | None = None
    file_name: Path | None = None
    error: BenchError | None = None
    opened: SessionOpened | None = None
    closed: SessionClosed | None = None
    pace: Pace | None = None
    sent: list[SentRequest] = field(default_factory=list)
    virtual_s: float = 0.0
    wall_s: float = 0.0
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat())
    anchor: dict[str, float] = field(
        default_factory=lambda: {"time": time.time(), "perf_counter": time.perf_counter()}
    )

    @property
    def percentiles(self) -> list[float]:
        """--metric-percentiles as numbers."""
        return percentiles_of(self.args)

    @property
    def virtual(self) -> bool:
        """True where client and server shared a virtual clock."""
        return self.info is not None and self.info.clock == "virtual"

    @property
    def paced(self) -> bool:
        """True where the server's steps last their time, for any client."""
        return self.info is not None and self.info.clock == "paced"
