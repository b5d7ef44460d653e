"""The gate: the engine runs only while the client has granted time.

Conservative co-simulation. The client owns the arrivals and promises, with each grant, to do
nothing before a time; the engine owns the work and runs no further than that. Requests of one
virtual time can come in over the network in any order: they are staged, and handed on sorted by
(arrival, sequence) when all that the client submitted have come in or been settled. Requests that
arrive later than the grant reaches may come in before they are due, and are waited for only when
a grant counts them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from sendnn_bench.errors import SimError
from sendnn_bench.protocol import Advance, AdvanceReason
from server_plugin.sim.clock import VirtualClock

T = TypeVar("T")

SHOWN = 20
"""Sequence numbers listed in a description."""


@dataclass(order=True)
class _Staged(Generic[T]):
    arrival_ns: int
    seq: int
    item: T = field(compare=False)


@dataclass
class _Grant:
    until_ns: int | None
    submitted: int
    answer: Callable[[Advance], None]


class Gate(Generic[T]):
    """State of one session. ``T`` is a request as the engine holds it.

    Raises:
        SimError: from `grant`, when a grant is already open or goes back behind an earlier one.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._staged: list[_Staged[T]] = []
        self._grant: _Grant | None = None
        self._submitted = 0
        self._resolved: set[int] = set()
        self._first_missing = 0
        self._ended: list[tuple[int, int]] = []
        self._rejected = False

    @property
    def open(self) -> bool:
        """True while the engine may run steps."""
        return self._grant is not None and not self._waiting_for_requests()

    @property
    def requests(self) -> int:
        """Requests resolved so far: received or settled."""
        return len(self._resolved)

    def grant(
        self, until_ns: int | None, submitted: int, answer: Callable[[Advance], None]
    ) -> None:
        """The client's promise; ``answer`` is called once, possibly within the next `turn`."""
        if self._grant is not None:
            raise SimError("a grant is already open; wait for its answer before the next one")
        if submitted < self._submitted:
            raise SimError(f"submitted went back from {self._submitted} to {submitted}")
        self._submitted = submitted
        self._grant = _Grant(until_ns, submitted, answer)

    def receive(self, seq: int, arrival_ns: int, item: T) -> bool:
        """Stage a request; False where its sequence number is taken (or was settled)."""
        if seq in self._resolved:
            return False
        self._resolve(seq)
        heapq.heappush(self._staged, _Staged(arrival_ns, seq, item))
        return True

    def settle(self, seq: int) -> None:
        """The request ended before the engine saw it; nothing waits for it any more."""
        if seq not in self._resolved:
            self._resolve(seq)
            self._end(seq, self._clock.now_ns)
            self._rejected = True

    def finish(self, seq: int, seen_ns: int) -> None:
        """The request finished or was aborted; the client sees that at ``seen_ns``."""
        self._end(seq, seen_ns)

    def drop_staged(self, condition: Callable[[T], bool]) -> list[T]:
        """Take requests out that are not admitted yet (aborted ones); they count as finished."""
        dropped = [entry for entry in self._staged if condition(entry.item)]
        self._staged = [entry for entry in self._staged if not condition(entry.item)]
        heapq.heapify(self._staged)
        for entry in dropped:
            self._end(entry.seq, self._clock.now_ns)
        return [entry.item for entry in dropped]

    def turn(self, idle: bool) -> list[T]:
        """Decide what happens next, between two steps.

        Returns the requests to admit now, in order. Where there are none, the grant was answered
        (`open` is False), or the engine has work and may run a step (`open` is True).
        """
        if not self.open:
            return []
        while True:
            if self._rejected or self._seen():
                self._answer("rejected" if self._rejected else "finished")
                return []
            if self._reached_limit():
                self._answer("until")
                return []
            due = self._take_due()
            if due or not idle:
                return due
            target_ns = self._next_event_ns()
            if target_ns is None:
                self._answer("idle")
                return []
            self._clock.jump(target_ns)

    def fail(self, failure: dict[str, Any]) -> None:
        """The engine ends with an exception: tell it to whoever waits for an open grant."""
        grant, self._grant = self._grant, None
        if grant is not None:
            grant.answer(Advance(self._clock.now_ns, "failed", failure=failure))

    def describe(self) -> str:
        """State in one line, for the dump of a stall."""
        grant = self._grant
        # Lazily: a client may announce more requests than could ever be listed.
        missing = islice(
            (s for s in range(self._first_missing, self._submitted) if s not in self._resolved),
            SHOWN,
        )
        wanted = "no grant" if grant is None else f"grant until {grant.until_ns}"
        return (
            f"clock {self._clock.now_ns} ns, {wanted}, submitted {self._submitted}, "
            f"not yet received {list(missing)}, "
            f"staged {[entry.seq for entry in self._staged[:SHOWN]]}"
        )

    def _end(self, seq: int, seen_ns: int) -> None:
        heapq.heappush(self._ended, (seen_ns, seq))

    def _seen(self) -> bool:
        return bool(self._ended) and self._ended[0][0] <= self._clock.now_ns

    def _resolve(self, seq: int) -> None:
        self._resolved.add(seq)
        while self._first_missing in self._resolved:
            self._first_missing += 1

    def _waiting_for_requests(self) -> bool:
        # By number: requests announced for after the grant may have come in before these.
        return self._first_missing < self._submitted

    def _reached_limit(self) -> bool:
        until_ns = self._grant.until_ns if self._grant else None
        return until_ns is not None and self._clock.now_ns >= until_ns

    def _take_due(self) -> list[T]:
        due = []
        while self._staged and self._staged[0].arrival_ns <= self._clock.now_ns:
            due.append(heapq.heappop(self._staged).item)
        return due

    def _next_event_ns(self) -> int | None:
        until_ns = self._grant.until_ns if self._grant else None
        staged_ns = self._staged[0].arrival_ns if self._staged else None
        seen_ns = self._ended[0][0] if self._ended else None
        times = [time_ns for time_ns in (until_ns, staged_ns, seen_ns) if time_ns is not None]
        return min(times, default=None)

    def _answer(self, reason: AdvanceReason) -> None:
        grant, self._grant = self._grant, None
        self._rejected = False
        ended = []
        while self._seen():
            ended.append(heapq.heappop(self._ended))
        assert grant is not None
        grant.answer(
            Advance(
                now_ns=self._clock.now_ns,
                reason=reason,
                finished=[seq for _, seq in ended],
                finished_ns=[seen_ns for seen_ns, _ in ended],
            )
        )
