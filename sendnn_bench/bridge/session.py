"""The client's half of the co-simulation: tickets of requests, and the grant loop.

The loop owns the client's virtual clock. It lets the event loop settle, promises the server to do
nothing before the next timer, and on the answer fires what became due, in order of time:
timers first, then the requests that finished, in the order in which they were submitted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sendnn_bench.bridge.control import Control
from sendnn_bench.bridge.virtual_time import NS_PER_S, VirtualClock, check_loop, settle
from sendnn_bench.errors import EngineFailed, SimError, SimStalled
from sendnn_bench.protocol import Advance, SessionClosed, SessionOpened

KEEP_ALIVE_S = 10.0
"""Real time after which an idle client says that it is still there."""

SHOWN = 20


@dataclass
class Ticket:
    """A request between its submission and its release to the benchmark.

    ``responded`` is done when the HTTP response is complete (and a failure told to the server),
    ``released`` when the virtual clock has reached the request's end.
    ``failed``: it ended without a complete answer.
    """

    seq: int
    arrival_ns: int
    responded: asyncio.Future[None]
    released: asyncio.Future[None]
    failed: bool = False
    finished: bool = False

    def describe(self) -> str:
        """One request in the dump of a stall."""
        if not self.responded.done():
            waits = "its HTTP response" + (", finished on the server" if self.finished else "")
        else:
            waits = "a grant's answer" + (", failed" if self.failed else "")
        return f"request {self.seq} (arrived at {self.arrival_ns} ns) waits for {waits}"


class SimSession:
    """One simulated run. ``run`` is the grant loop, to be run as a task beside the benchmark.

    ``announce``: how many requests may be sent ahead of the server's clock. Above 0 only while
    nothing that the server does can change when a request is sent: the client's clock then leads.
    """

    def __init__(self, control: Control, warm: bool, watchdog_s: float) -> None:
        self.clock = VirtualClock(on_timer=self._wake)
        self.announce = 0
        self.opened: SessionOpened | None = None
        self.closed: SessionClosed | None = None
        self._control = control
        self._warm = warm
        self._watchdog_s = watchdog_s
        self._in_flight: dict[int, Ticket] = {}
        self._failed: dict[int, Ticket] = {}
        self._submitted = 0
        self._answered = 0
        self._server_ns = 0
        self._announced_ns: deque[int] = deque()
        self._activity = asyncio.Event()
        self._progress: tuple[object, ...] = ()
        self._progress_s = time.monotonic()

    # For the backend

    def submit(self) -> Ticket:
        """Take a ticket for a request that arrives now."""
        loop = asyncio.get_running_loop()
        ticket = Ticket(
            seq=self._submitted,
            arrival_ns=self.clock.now_ns,
            responded=loop.create_future(),
            released=loop.create_future(),
        )
        self._submitted += 1
        self._in_flight[ticket.seq] = ticket
        self._announced_ns.append(ticket.arrival_ns)
        self._wake()
        return ticket

    @property
    def name(self) -> str:
        """Name of the session, which must be open."""
        return self._session().session

    async def complete(self, ticket: Ticket, failed: bool) -> None:
        """The request's HTTP response is complete; returns when its virtual end has come."""
        ticket.failed = failed
        if failed and not ticket.finished:
            self._failed[ticket.seq] = ticket
            await self._control.settle(self.name, ticket.seq)
        # Only now: from here on, a release wakes the benchmark without waiting for the network.
        ticket.responded.set_result(None)
        await ticket.released

    # The grant loop

    async def run(self) -> None:
        """Drive both clocks until cancelled.

        Raises:
            ServerUnreachable, SimStalled, SimError: see `Control`.
            EngineFailed: the engine ended with an exception.
        """
        check_loop()
        while True:
            await settle()
            if not self._in_flight and self.clock.next_timer_ns() is None:
                await self._wait_for_activity()
                continue
            granted, until_ns = self._submitted, self.clock.next_timer_ns()
            await self._announce()
            answer = await self._advance(until_ns, granted)
            while _is_heartbeat(answer, until_ns):
                answer = await self._advance(until_ns, granted)
            self._server_ns = answer.now_ns
            await self._apply(answer, granted)

    async def open(self) -> None:
        """Open the session: right before the first request or reading of the clock.

        Not earlier, since a server ends the session of a client that is silent, as one is that
        prepares a large data set. A warm session goes on at the time the server has.

        Raises:
            SessionBusy, ServerUnreachable, SimStalled, SimError: see `Control`.
        """
        self.opened = await self._control.open(self._warm)
        self.clock.move_to(self.opened.now_ns)

    def elapsed_s(self) -> float:
        """Virtual seconds since this session was opened."""
        start_ns = self.opened.now_ns if self.opened else 0
        now_ns = self._server_ns if self.announce else self.clock.now_ns
        return (now_ns - start_ns) / NS_PER_S

    async def close(self) -> None:
        """End the session on the server, if it was opened."""
        if self.opened is not None and self.closed is None:
            self.closed = await self._control.close(self.opened.session)

    async def _wait_for_activity(self) -> None:
        self._activity.clear()
        try:
            await asyncio.wait_for(self._activity.wait(), KEEP_ALIVE_S)
        except TimeoutError:
            if self.opened is not None:
                await self._grant(self.clock.now_ns, self._submitted)

    async def _advance(self, until_ns: int | None, granted: int) -> Advance:
        try:
            answer = await self._grant(until_ns, granted)
        except SimStalled as error:
            raise await self._stalled(f"{error}") from error
        if self._stands_still(answer, granted):
            raise await self._stalled(f"nothing has moved for {self._watchdog_s:g} s of real time")
        return answer

    async def _grant(self, until_ns: int | None, submitted: int) -> Advance:
        """The next grant, or once more the one that was not answered yet."""
        number = self._answered + 1
        answer = await self._control.advance(self.name, number, until_ns, submitted)
        if answer.failure is not None:
            raise failed(answer.failure)
        if not _is_heartbeat(answer, until_ns):
            self._answered = number
        return answer

    async def _apply(self, answer: Advance, granted: int) -> None:
        """Fire timers and release requests in the order of their times, timers first."""
        for time_ns, tickets in self._ended(answer, granted):
            await self._fire_timers(time_ns)
            self._follow(time_ns)
            await self._release(tickets)
            await settle()
        await self._fire_timers(answer.now_ns)
        self._follow(answer.now_ns)

    def _follow(self, time_ns: int) -> None:
        """Move the client's clock to the server's, unless it is ahead to announce requests."""
        if not self.announce or time_ns > self.clock.now_ns:
            self.clock.move_to(time_ns)

    async def _announce(self) -> None:
        """Send requests before their time, so that they are on their way while the engine works.

        The grant that follows does not count them yet: the engine waits for none of them.
        """
        announced = self._announced_ns
        while announced and announced[0] <= self._server_ns:
            announced.popleft()
        while len(announced) < self.announce and self.clock.next_timer_ns() is not None:
            self.clock.fire_next()
            await settle()

    async def _fire_timers(self, until_ns: int) -> None:
        while (timer_ns := self.clock.next_timer_ns()) is not None and timer_ns <= until_ns:
            self.clock.fire_next()
            await settle()

    def _ended(self, answer: Advance, granted: int) -> list[tuple[int, list[Ticket]]]:
        """Requests that the server finished, and those of the grant that failed on their way, by
        the time at which the client sees their end.

        One that fails later than the grant waits for the next answer, however fast it fails: the
        order of releases must not depend on real time.
        """
        times_ns = answer.finished_ns or [answer.now_ns] * len(answer.finished)
        seen = dict(zip(answer.finished, times_ns, strict=True))
        seen = {seq: time_ns for seq, time_ns in seen.items() if seq in self._in_flight}
        for seq in seen:
            self._in_flight[seq].finished = True
        for seq in self._failed:
            if seq < granted:
                seen.setdefault(seq, answer.now_ns)
        by_time: dict[int, list[Ticket]] = {}
        for seq in sorted(seen):
            by_time.setdefault(seen[seq], []).append(self._in_flight[seq])
        return sorted(by_time.items())

    async def _release(self, due: Sequence[Ticket]) -> None:
        pending = [ticket.responded for ticket in due if not ticket.responded.done()]
        if pending:
            _, late = await asyncio.wait(pending, timeout=self._watchdog_s)
            if late:
                raise await self._stalled(
                    f"{len(late)} requests finished on the simulated server, but their HTTP "
                    f"responses have not ended for {self._watchdog_s:g} s"
                )
        for ticket in due:
            del self._in_flight[ticket.seq]
            self._failed.pop(ticket.seq, None)
            if not ticket.released.done():  # cancelled, where the run is ending
                ticket.released.set_result(None)

    def _stands_still(self, answer: Advance, granted: int) -> bool:
        """The server answers and answers, but nothing moves."""
        progress = (answer.now_ns, granted, len(self._in_flight))
        if answer.finished or progress != self._progress:
            self._progress = progress
            self._progress_s = time.monotonic()
        return time.monotonic() - self._progress_s > self._watchdog_s

    async def _stalled(self, what: str) -> SimStalled:
        return SimStalled(f"{what}.\n{self._dump()}\nServer: {await self._control.status()}")

    def _session(self) -> SessionOpened:
        if self.opened is None:
            raise SimError("a request was sent before the simulation session was opened")
        return self.opened

    def _wake(self) -> None:
        self._activity.set()

    def _dump(self) -> str:
        timers = self.clock.timers_ns()
        lines = [
            f"Client's clock: {self.clock.now_ns} ns; requests submitted: {self._submitted}, in "
            f"flight: {len(self._in_flight)}; timers (ns): {timers[:SHOWN] or 'none'}"
        ]
        waiting = sorted(self._in_flight.values(), key=lambda ticket: ticket.seq)
        lines += [f"  {ticket.describe()}" for ticket in waiting[:SHOWN]]
        if len(waiting) > SHOWN:
            lines.append(f"  and {len(waiting) - SHOWN} more")
        return "\n".join(lines)


def failed(failure: Mapping[str, Any]) -> EngineFailed:
    """The error for an engine that ended with an exception."""
    return EngineFailed(
        f"the simulated engine failed after step {failure['step']}, at "
        f"{failure['now_ns'] / NS_PER_S:.6f} s of virtual time: {failure['error']}",
        failure,
    )


def _is_heartbeat(answer: Advance, until_ns: int | None) -> bool:
    """The server only says how far it is; the grant goes on, and its answer is still to come."""
    return answer.reason == "until" and (until_ns is None or answer.now_ns < until_ns)
