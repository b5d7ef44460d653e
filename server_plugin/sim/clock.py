"""Clocks: three paces of one interface. The only module of the simulation that reads host time.

All times are integer nanoseconds. Within one session time never goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NS_PER_S = 1_000_000_000


class VirtualClock:
    """Time moves only when a step is charged or an idle engine jumps (`virtual` and `free`)."""

    def __init__(self) -> None:
        self.now_ns = 0

    def reset(self) -> None:
        """Back to zero, for a new session."""
        self.now_ns = 0

    def arrival_ns(self) -> int:
        """Time at which a request that comes in now has arrived."""
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


class PacedClock(VirtualClock):
    """Each step really lasts its cost divided by ``speed``.

    Steps that follow each other without idling are timed by deadlines, so that a late step is
    caught up and nothing drifts. ``late_ns`` is the worst lateness seen, in real nanoseconds.
    """

    def __init__(
        self,
        speed: float,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._speed = speed
        self._monotonic_ns = monotonic_ns
        self._sleep = sleep
        self._origin_ns = monotonic_ns()
        self._busy = False
        self.late_ns = 0

    def reset(self) -> None:
        """Back to zero, for a new session."""
        super().reset()
        self._origin_ns = self._monotonic_ns()
        self._busy = False
        self.late_ns = 0

    def _wall_ns(self) -> int:
        return int((self._monotonic_ns() - self._origin_ns) * self._speed)

    def arrival_ns(self) -> int:
        """Wall time since the origin, on the paced scale."""
        return self._wall_ns()

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
        else:
            self.late_ns = max(self.late_ns, int(-remaining_ns))
        return end_ns

    def idle(self) -> None:
        """The next step starts at the present, not at the last deadline."""
        self._busy = False
