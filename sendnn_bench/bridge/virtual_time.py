"""Virtual time inside the client: a clock, its timers, and stand-ins for `time` and `asyncio`.

The load generator reads time and sleeps through the module names `time` and `asyncio`. For a
simulated run those names are replaced by :func:`time_stand_in` and :func:`asyncio_stand_in`;
everything else about the modules, and all network traffic, stays in real time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sendnn_bench.errors import SimError

NS_PER_S = 1_000_000_000


@dataclass(order=True)
class _Timer:
    time_ns: int
    sequence: int
    future: asyncio.Future[None] = field(compare=False)


class VirtualClock:
    """Time since the session began, in integer nanoseconds; only the grant loop moves it.

    ``on_timer`` is called whenever somebody begins to sleep.
    """

    def __init__(self, on_timer: Callable[[], None] = lambda: None) -> None:
        self.now_ns = 0
        self._on_timer = on_timer
        self._timers: list[_Timer] = []
        self._sequence = itertools.count()

    def seconds(self) -> float:
        """What `time.time()` and its like answer in virtual time."""
        return self.now_ns / NS_PER_S

    def nanoseconds(self) -> int:
        """What `time.time_ns()` and its like answer in virtual time."""
        return self.now_ns

    async def sleep(self, delay: float, result: Any = None) -> Any:
        """What `asyncio.sleep` does in virtual time; ``delay`` in seconds."""
        if delay <= 0:
            return await asyncio.sleep(0, result)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        time_ns = self.now_ns + round(delay * NS_PER_S)
        heapq.heappush(self._timers, _Timer(time_ns, next(self._sequence), future))
        self._on_timer()
        await future
        return result

    def next_timer_ns(self) -> int | None:
        """Time of the earliest timer that somebody still waits for."""
        while self._timers and self._timers[0].future.done():
            heapq.heappop(self._timers)
        return self._timers[0].time_ns if self._timers else None

    def timers_ns(self) -> list[int]:
        """Times of all timers, for the dump of a stall."""
        return sorted(timer.time_ns for timer in self._timers if not timer.future.done())

    def move_to(self, time_ns: int) -> None:
        """Set the clock.

        Raises:
            SimError: the time lies in the past.
        """
        if time_ns < self.now_ns:
            raise SimError(
                f"the simulated server's clock went back from {self.now_ns} to {time_ns} ns; was "
                "the server restarted in mid-run?"
            )
        self.now_ns = time_ns

    def fire_next(self) -> None:
        """Move to the earliest timer and wake everybody who sleeps until that very time."""
        time_ns = self.next_timer_ns()
        if time_ns is None:
            return
        self.move_to(time_ns)
        while self.next_timer_ns() == time_ns:
            heapq.heappop(self._timers).future.set_result(None)


class StandIn:
    """A module with some of its names replaced; all others are the module's own."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def time_stand_in(clock: VirtualClock) -> StandIn:
    """The module `time`, on the virtual clock."""
    names = ("time", "perf_counter", "monotonic")
    seconds = dict.fromkeys(names, clock.seconds)
    nanoseconds = dict.fromkeys((f"{name}_ns" for name in names), clock.nanoseconds)
    return StandIn(time, **seconds, **nanoseconds)


def asyncio_stand_in(clock: VirtualClock) -> StandIn:
    """The module `asyncio`, whose `sleep` waits on the virtual clock."""
    return StandIn(asyncio, sleep=clock.sleep)


def check_loop() -> None:
    """Make sure that :func:`settle` can see the running loop's queue.

    Raises:
        SimError: the loop keeps its queue elsewhere (uvloop, for one).
    """
    loop = asyncio.get_running_loop()
    if not hasattr(loop, "_ready"):
        raise SimError(
            f"virtual time needs asyncio's own event loop, but a {type(loop).__name__} is running. "
            "Don't install another event loop policy."
        )


async def settle() -> None:
    """Return when nothing in the event loop is runnable but the caller.

    What waits for the network or for a timer may still be pending; what was woken has run on to
    its next wait.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    while True:
        await asyncio.sleep(0)
        if not ready:
            return
