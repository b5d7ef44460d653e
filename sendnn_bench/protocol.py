"""What travels between the client and a simulated server. Standard library only.

The client owns the arrivals, the server owns the work, and neither runs ahead of the other:

1. ``POST /sim/session`` opens the one session (409 while another is open). Unless ``warm`` is
   asked for, the engine starts cold: prefix cache reset, clock and counters at zero.
2. The client posts its requests to the ordinary OpenAI routes, each with the fields of
   :data:`XARGS` in ``vllm_xargs``.
3. ``POST /sim/session/{id}/advance`` grants: "I have submitted the first ``submitted`` requests
   and no other arrives before ``until_ns``". Those that arrive later may be posted already. It
   answers with :class:`Advance`. Grants are numbered from 1 on (``grant``): the last one, asked
   for again, gets the same answer and is executed once, so that a lost answer costs nothing.
4. ``POST /sim/session/{id}/settle`` names requests that ended without reaching the engine
   (rejected by validation, connection lost), so that no grant waits for them.
5. ``DELETE /sim/session/{id}`` ends the session and answers with its counters.

All times are integer nanoseconds of virtual time since the session began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

PROTOCOL_VERSION = 2
"""Raised when either side changes the meaning of what travels."""

METRICS_KEY = "spyre_metrics"
"""Key of the per-request record in the final SSE usage chunk; upstream's name, kept."""

XARG_SESSION = "sendnn_sim_session"
XARG_SEQ = "sendnn_sim_seq"
XARG_ARRIVAL_NS = "sendnn_sim_arrival_ns"
XARG_OUTPUT_TOKENS = "sendnn_sim_output_tokens"
XARG_OUTPUT_SOURCE = "sendnn_sim_output_source"
XARGS = (XARG_SESSION, XARG_SEQ, XARG_ARRIVAL_NS, XARG_OUTPUT_TOKENS, XARG_OUTPUT_SOURCE)
"""Fields that the client adds to ``vllm_xargs`` of a request to a simulated server.

The last two (the injected output length, and where it came from) also work without a session.
"""

ClockMode = Literal["virtual", "paced", "free"]
AdvanceReason = Literal["until", "finished", "rejected", "idle", "failed"]

INFO_ROUTE = "/sim/info"
STATUS_ROUTE = "/sim/status"
SESSION_ROUTE = "/sim/session"


@dataclass(frozen=True)
class ServerInfo:
    """Answer of ``GET /sim/info``: who simulates what, and how."""

    protocol: int
    clock: ClockMode
    target: str
    """``spyre`` or ``stock``: whose scheduler runs."""
    model: str
    cost_model: dict[str, Any]
    """Kind and parameters of the cost model, for the record."""
    versions: dict[str, str]
    settings: dict[str, Any]
    """Every simulation setting in force, by environment variable."""
    limits: dict[str, Any] = field(default_factory=dict)
    """Scheduler limits in force: KV blocks, max_num_seqs, chunk size, tkv limit."""
    flags: list[str] = field(default_factory=list)
    """The server's command line, without keys."""


@dataclass(frozen=True)
class Pace:
    """How a paced server kept its pace: ``pace`` in the answer of ``GET /sim/status``.

    Counted since the server started, or, as a difference, in one run. A step is late where its end
    comes later than its cost says by more than a tenth of it. Times are real milliseconds.
    """

    steps: int
    late_steps: int
    late_total_ms: float

    def since(self, before: Pace) -> Pace:
        """What came after ``before``."""
        return Pace(
            self.steps - before.steps,
            self.late_steps - before.late_steps,
            self.late_total_ms - before.late_total_ms,
        )


@dataclass(frozen=True)
class SessionOpened:
    """Answer of ``POST /sim/session``."""

    session: str
    start: Literal["cold", "warm"]
    now_ns: int


@dataclass(frozen=True)
class EngineFailure:
    """The exception that ended the engine, and what the engine held when it was raised.

    ``step``: steps that were charged since the session's cold start. ``state``: batch, tkv, free
    KV blocks and requests; see `server_plugin.engine.failure`.
    """

    step: int
    now_ns: int
    error: str
    traceback: str
    state: dict[str, Any]


@dataclass(frozen=True)
class Advance:
    """Answer of ``POST /sim/session/{id}/advance``.

    ``reason`` is ``until`` (the clock reached the limit), ``finished`` (at least one request
    finished in the step that ended at ``now_ns``), ``rejected`` (a submitted request was settled
    without running; the clock did not move), ``idle`` (nothing is left to run and the grant had no
    limit) or ``failed`` (the engine ends with the exception in ``failure``). ``finished`` lists
    ``seq`` numbers, aborted ones included, and ``finished_ns`` when the client sees the end of
    each: at ``now_ns``, or before it within the last step.
    """

    now_ns: int
    reason: AdvanceReason
    finished: list[int] = field(default_factory=list)
    finished_ns: list[int] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    """As :class:`EngineFailure`."""


@dataclass(frozen=True)
class SessionClosed:
    """Answer of ``DELETE /sim/session/{id}``: the session's counters."""

    now_ns: int
    steps: int
    requests: int
    foreign_requests: int
    """Requests of other clients that the engine served meanwhile: not 0 means disturbed."""
    outside_steps: int = 0
    """Steps beyond the domain on which the cost profile was measured."""
    host: dict[str, dict[str, float]] = field(default_factory=dict)
    """Real time of the engine by phase of a step: mean_us, p99_us, total_s. Varies from run to
    run, as the machine does."""
