"""One simulated engine: its clock, gate, costs and recorder, and the rules that join them.

Pure: knows requests by id, never imports vLLM. The engine's hooks call it; it calls nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sendnn_bench.errors import SessionBusy, SimError
from sendnn_bench.protocol import Advance, SessionClosed
from server_plugin.settings import SimSettings
from server_plugin.sim.clock import PacedClock, VirtualClock
from server_plugin.sim.costs import CostModel, StepShape
from server_plugin.sim.fields import SimFields
from server_plugin.sim.gate import Gate
from server_plugin.sim.host_times import HostTimes
from server_plugin.sim.metrics_file import MetricsFile
from server_plugin.sim.recorder import PartInStep, Recorder, RequestRecord, Step

T = TypeVar("T")


@dataclass(frozen=True)
class OpenStep:
    """A step between `schedule` and its result."""

    start_ns: int
    parts: tuple[PartInStep, ...]
    kv_blocks_in_use: int


@dataclass
class _Session(Generic[T]):
    name: str
    gate: Gate[T]
    foreign_total: int = 0


class EngineSim(Generic[T]):
    """State of the simulation in one engine process. ``T`` is a request as the engine holds it."""

    def __init__(
        self,
        settings: SimSettings,
        costs: CostModel,
        block_size_tokens: int,
        chunk_size_tokens: int,
    ) -> None:
        self.clock = PacedClock(settings.speed) if settings.clock == "paced" else VirtualClock()
        self.recorder = Recorder(block_size_tokens)
        self.host_times = HostTimes()
        self._settings = settings
        self._costs = costs
        self._chunk_size_tokens = chunk_size_tokens
        self._metrics_file = MetricsFile(settings.metrics_file)
        self._session: _Session[T] | None = None
        self._foreign: set[str] = set()

    # Session

    @property
    def session(self) -> str | None:
        """Name of the open session."""
        return self._session.name if self._session else None

    @property
    def virtual(self) -> bool:
        """True where the clock waits for the grants of a client of ours."""
        return self._settings.clock == "virtual"

    @property
    def may_run(self) -> bool:
        """True while the engine may run a step: no session, an open gate, or a request of another
        client, which is never held."""
        return self._session is None or self._session.gate.open or bool(self._foreign)

    def begin(self, name: str, cold: bool) -> None:
        """Open the session, with clock and counters at zero unless warm.

        Raises:
            SessionBusy: one is open, or other clients' requests are running.
            SimError: the clock is not virtual.
        """
        if not self.virtual:
            raise SimError(
                f"this server runs on a {self._settings.clock} clock, which has no sessions"
            )
        if self._session is not None:
            raise SessionBusy(
                "another client holds this server's one simulation session. Wait until its run "
                "ends, or start a second server."
            )
        if self._foreign:
            raise SessionBusy(
                f"{len(self._foreign)} requests of other clients are running. Try again when they "
                "have finished."
            )
        if cold:
            self.clock.reset()
            self.recorder.reset()
            self._costs.outside_steps = 0
        self.host_times.reset()
        self._session = _Session(name, Gate(self.clock))

    def end(self) -> SessionClosed:
        """Close the session; its requests must have been aborted before."""
        session = self._open_session()
        self._session = None
        return SessionClosed(
            now_ns=self.clock.now_ns,
            steps=self.recorder.steps,
            requests=session.gate.requests,
            foreign_requests=session.foreign_total,
            outside_steps=self._costs.outside_steps,
            host=self.host_times.summary(),
        )

    def session_requests(self) -> list[str]:
        """Ids of the session's requests that have not finished."""
        return [
            request_id
            for request_id, record in self.recorder.records.items()
            if record.seq is not None
        ]

    def grant(
        self, until_ns: int | None, submitted: int, answer: Callable[[Advance], None]
    ) -> None:
        """See `Gate.grant`."""
        self._open_session().gate.grant(until_ns, submitted, answer)

    def settle(self, seq: int) -> None:
        """See `Gate.settle`."""
        self._open_session().gate.settle(seq)

    def turn(self, idle: bool) -> list[T]:
        """Between two steps: the requests to admit now (see `Gate.turn`)."""
        if idle:
            self.clock.idle()
        return self._session.gate.turn(idle) if self._session else []

    def describe(self) -> dict[str, Any]:
        """State for a status call and for the dump of a stall."""
        return {
            "now_ns": self.clock.now_ns,
            "steps": self.recorder.steps,
            "session": self.session,
            "gate": self._session.gate.describe() if self._session else "no session",
            "requests": sorted(self.recorder.records)[:50],
            "foreign": len(self._foreign),
            "host": self.host_times.summary(),
            "pace": self.clock.describe_pace(),
        }

    # Requests

    def arrive(
        self,
        request_id: str,
        prompt_tokens: int,
        fields: SimFields,
        item: T,
        stamp_s: float | None = None,
    ) -> bool:
        """A request came in. True: admit it now; False: it is staged, or refused.

        ``stamp_s``: see `VirtualClock.arrival_ns`.

        A refused one (its session is gone, or its sequence number is taken) has no record.
        """
        staged = fields.session is not None
        record = RequestRecord(
            request_id=request_id,
            arrival_ns=fields.arrival_ns if staged else self.clock.arrival_ns(stamp_s),
            arrival_step=self.recorder.steps,
            prompt_tokens=prompt_tokens,
            injected_output_tokens=fields.output_tokens,
            injected_output_source=(
                "max_tokens" if fields.output_tokens is None else fields.output_source
            ),
            seq=fields.seq if staged else None,
        )
        if not staged:
            self._foreign.add(request_id)
            if self._session:
                self._session.foreign_total += 1
            self.recorder.arrive(record)
            return True
        session = self._session
        if session is None or session.name != fields.session:
            return False
        reaches_engine_ns = fields.arrival_ns + self._costs.frontend_request_ns
        if session.gate.receive(fields.seq, reaches_engine_ns, item):
            self.recorder.arrive(record)
        return False

    def known(self, request_id: str) -> bool:
        """True for a request that is staged or running."""
        return request_id in self.recorder.records

    def admit(self, request_id: str) -> int:
        """A staged request goes to the scheduler now; returns its arrival."""
        record = self.recorder.records[request_id]
        record.arrival_step = self.recorder.steps
        return record.arrival_ns

    def drop_staged(self, condition: Callable[[T], bool]) -> list[T]:
        """Requests that end before they were admitted."""
        return self._session.gate.drop_staged(condition) if self._session else []

    def finish(self, request_id: str, reason: str) -> dict[str, Any] | None:
        """A request ended now; its record as it travels, or None where none was kept."""
        self._foreign.discard(request_id)
        record = self.recorder.finish(request_id, self.clock.now_ns, reason)
        if record is None:
            return None
        token_delay_ns = self._costs.frontend_token_ns
        if record.seq is not None and self._session is not None:
            self._session.gate.finish(record.seq, self.clock.now_ns + token_delay_ns)
        self._metrics_file.write(record)
        return record.to_wire(self._chunk_size_tokens, token_delay_ns)

    def abandon(self, request_id: str) -> None:
        """A staged request was dropped; the gate has told its end by then."""
        record = self.recorder.finish(request_id, self.clock.now_ns, "abort")
        if record is not None:
            self._metrics_file.write(record)

    def fail(self, failure: dict[str, Any]) -> None:
        """The engine ends with an exception, which answers an open grant."""
        if self._session is not None:
            self._session.gate.fail(failure)

    # Steps

    def begin_step(self, parts: Sequence[PartInStep], kv_blocks_in_use: int) -> OpenStep:
        """The scheduler decided on a step."""
        return OpenStep(self.clock.begin_step(), tuple(parts), kv_blocks_in_use)

    def end_step(self, step: OpenStep, tkv: int, new_tokens: dict[str, int]) -> None:
        """The step's result is there: charge its cost and record it."""
        index = self.recorder.steps
        chunks = tuple((part.tokens, part.context_tokens) for part in step.parts if not part.decode)
        decode_batch = len(step.parts) - len(chunks)
        shape = StepShape(chunks=chunks, decode_batch=decode_batch, tkv=tkv, index=index)
        end_ns = self.clock.charge(self._costs.step_ns(shape) + self._overhead_ns())
        done = Step(
            index=index,
            start_ns=step.start_ns,
            end_ns=end_ns,
            parts=step.parts,
            tkv=tkv,
            kv_blocks_in_use=step.kv_blocks_in_use,
        )
        self.recorder.step(done, new_tokens)

    def _overhead_ns(self) -> int:
        overhead = self._settings.host_overhead
        if overhead.measured:
            return self.host_times.take_uncharged_ns()
        return round(overhead.constant_ms * 1e6)

    def _open_session(self) -> _Session[T]:
        if self._session is None:
            raise SimError("no simulation session is open; it may have expired")
        return self._session
