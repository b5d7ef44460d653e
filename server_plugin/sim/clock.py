"""Clocks: three paces of one interface. The only module of the simulation that reads host time.

All times are integer nanoseconds. Within one session time never goes back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

logger = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000

LATE_SHARE = 0.1
"""A paced step is late where its end comes later by more than this share of its length,"""

LATE_MIN_NS = 1_000_000
"""and by more than this: below it, it is the host's timer that is seen."""


@dataclass
class Pace:
    """How a paced clock kept its pace, in real time, since the server started."""

    steps: int = 0
    late_steps: int = 0
    late_total_ns: int = 0
    late_worst_ns: int = 0

    def step(self, length_ns: float, late_ns: int) -> bool:
        """Count a step; True where it was late."""
        self.steps += 1
        self.late_worst_ns = max(self.late_worst_ns, late_ns)
        if late_ns <= max(LATE_SHARE * length_ns, LATE_MIN_NS):
            return False
        self.late_steps += 1
        self.late_total_ns += late_ns
        return True

    def describe(self) -> dict[str, float]:
        """Counts, and lateness in real milliseconds, for a status call."""
        return {
            "steps": self.steps,
            "late_steps": self.late_steps,
            "late_total_ms": self.late_total_ns / 1e6,
            "late_worst_ms": self.late_worst_ns / 1e6,
        }


class VirtualClock:
    """Time moves only when a step is charged or an idle engine jumps (`virtual` and `free`)."""

    def __init__(self) -> None:
        self.now_ns = 0

    def reset(self) -> None:
        """Back to zero, for a new session."""
        self.now_ns = 0

    def arrival_ns(self, stamp_s: float | None = None) -> int:
        """Time at which a request has arrived that the engine hears of now.

        ``stamp_s`` is the API server's own stamp of it, as of `time.time`.
        """
        return self.now_ns

    def begin_step(self) -> int:
        """Start of a step that is scheduled now."""
        return self.now_ns

    def charge(self, cost_ns: int) -> int:
        """Let a step of this cost pass; returns its end."""
        if cost_ns < 0:
            raise ValueError(f"a step cannot cost {cost_ns} ns")
        self.now_ns += cost_ns
        return self.now_ns

    def jump(self, to_ns: int) -> None:
        """Let idle time pass."""
        if to_ns < self.now_ns:
            raise ValueError(f"time cannot go back from {self.now_ns} ns to {to_ns} ns")
        self.now_ns = to_ns

    def idle(self) -> None:
        """The engine has no work left."""

    def describe_pace(self) -> dict[str, float]:
        """How a paced clock keeps its pace; empty for the others."""
        return {}


class PacedClock(VirtualClock):
    """Each step really lasts its cost divided by ``speed``.

    Steps that follow each other without idling are timed by deadlines, so that a late step is
    caught up and nothing drifts. A host that is too slow for that is told in the log: once at the
    first late step, and whenever the engine falls idle after late ones.
    """

    def __init__(
        self,
        speed: float,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        epoch_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._speed = speed
        self._monotonic_ns = monotonic_ns
        self._sleep = sleep
        self._epoch_s = epoch_s
        self._origin_ns = monotonic_ns()
        self._busy = False
        self._pace = Pace()
        self._before = Pace()

    def reset(self) -> None:
        """Back to zero, for a new session."""
        super().reset()
        self._origin_ns = self._monotonic_ns()
        self._busy = False
        self._pace = Pace()
        self._before = Pace()

    def describe_pace(self) -> dict[str, float]:
        """How the pace was kept since the server started."""
        return {"speed": self._speed, **self._pace.describe()}

    def _wall_ns(self) -> int:
        return int((self._monotonic_ns() - self._origin_ns) * self._speed)

    def arrival_ns(self, stamp_s: float | None = None) -> int:
        """Wall time since the origin, on the paced scale.

        The engine hears of a request between two steps, so the stamp tells how long ago it came.
        """
        wall_ns = self._wall_ns()
        if stamp_s is None:
            return wall_ns
        age_ns = max(self._epoch_s() - stamp_s, 0.0) * NS_PER_S
        return max(wall_ns - int(age_ns * self._speed), 0)

    def begin_step(self) -> int:
        """The end of the step before, or the present after idling."""
        if not self._busy:
            self._busy = True
            self.now_ns = max(self.now_ns, self._wall_ns())
        return self.now_ns

    def charge(self, cost_ns: int) -> int:
        """Sleep until the step's deadline."""
        end_ns = super().charge(cost_ns)
        remaining_ns = (end_ns - self._wall_ns()) / self._speed
        if remaining_ns > 0:
            self._sleep(remaining_ns / NS_PER_S)
        late_ns = max(int((self._wall_ns() - end_ns) / self._speed), 0)
        if self._pace.step(cost_ns / self._speed, late_ns) and self._pace.late_steps == 1:
            logger.warning(
                "A step ended %.1f ms late: this machine is busy, or too slow for a speed of %g. "
                "The delay is caught up where the next steps leave room. GET /sim/status counts "
                "such steps. Lower --sim-speed, or use --sim-runner lean.",
                late_ns / 1e6,
                self._speed,
            )
        return end_ns

    def idle(self) -> None:
        """The next step starts at the present, not at the last deadline."""
        if not self._busy:
            return
        self._busy = False
        late_steps = self._pace.late_steps - self._before.late_steps
        if late_steps:
            logger.warning(
                "Idle again: %d of the last %d steps ended late, by %.1f ms on average.",
                late_steps,
                self._pace.steps - self._before.steps,
                (self._pace.late_total_ns - self._before.late_total_ns) / late_steps / 1e6,
            )
        self._before = replace(self._pace)
