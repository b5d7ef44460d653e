"""What a reader should know before trusting a run's numbers, found in the numbers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sendnn_bench.metrics import Record, percentile_word
from sendnn_bench.protocol import Pace
from sendnn_bench.report.compare_samples import number
from sendnn_bench.results import RequestRow, Result

HOST_OVERHEAD = "SENDNN_INFERENCE_SIM_HOST_OVERHEAD"
"""The server's setting, as a result records it."""

KINDS_SHOWN = 3
RATE_TOLERANCE = 0.1
LATE_SHARE = 0.01
RATE_MIN_REQUESTS = 20


@dataclass(frozen=True)
class RunFacts:
    """Facts of one finished run; per-request sequences are in the order of submission.

    ``asked_tokens`` holds the output length that was asked for, or None where unknown, and
    ``server_tokens`` the number of output tokens that the server counted;
    ``rate`` is the request rate asked for in 1/s, infinite for none; ``foreign_requests`` counts
    those of other clients that a simulated server served meanwhile; ``outside_steps`` of its
    ``steps`` lay beyond what its cost profile was measured on; ``pace`` is how a paced one kept
    its pace meanwhile.
    """

    errors: Sequence[str]
    output_tokens: Sequence[int]
    asked_tokens: Sequence[int | None]
    percentiles: Sequence[float]
    rate: float
    throughput: float
    foreign_requests: int = 0
    warm: bool = False
    steps: int = 0
    outside_steps: int = 0
    clock: str = "real"
    host_overhead: str = "off"
    server_tokens: Sequence[int | None] = ()
    pace: Pace | None = None


def facts_of_rows(
    result: Result, rows: Sequence[RequestRow], percentiles: Sequence[float]
) -> RunFacts:
    """What a saved result tells."""
    records = [row.record or {} for row in rows]
    session = result.block.get("session")
    counters = session if isinstance(session, dict) else {}
    return RunFacts(
        errors=[row.error for row in rows],
        output_tokens=[row.output_tokens for row in rows],
        asked_tokens=[record.get("injected_output_tokens") for record in records],
        percentiles=percentiles,
        rate=_number(result.data.get("request_rate"), float("inf")),
        throughput=_number(result.data.get("request_throughput"), 0.0),
        foreign_requests=_count(counters, "foreign_requests"),
        warm=result.block.get("start") == "warm",
        clock=str(result.block.get("mode", "real")),
        host_overhead=str((result.block.get("settings") or {}).get(HOST_OVERHEAD, "off")),
        steps=_count(counters, "steps"),
        outside_steps=_count(counters, "outside_steps"),
        server_tokens=[server_tokens(record) for record in records],
        pace=_pace(result.block.get("wall")),
    )


def _pace(wall: Any) -> Pace | None:
    pace = wall.get("pace") if isinstance(wall, dict) else None
    if not isinstance(pace, dict):
        return None
    return Pace(
        _count(pace, "steps"), _count(pace, "late_steps"), _number(pace.get("late_total_ms"), 0.0)
    )


def server_tokens(record: Record | None) -> int | None:
    """Output tokens that the server counted, None where it did not tell."""
    times = None if record is None else record.get("token_times_ns")
    return None if times is None else len(times)


def _count(counters: dict[str, Any], name: str) -> int:
    return int(_number(counters.get(name), 0))


def _number(value: Any, default: float) -> float:
    known = number(value)
    return default if known is None else known


def find(facts: RunFacts) -> list[str]:
    """One sentence for each thing found."""
    return [text for rule in _RULES for text in rule(facts)]


def failures_by_kind(errors: Sequence[str]) -> list[str]:
    """One line per kind of failure, the most frequent first."""
    kinds = Counter(error.strip().rsplit("\n", 1)[-1] for error in errors if error).most_common()
    lines = [f"{count} x {kind}" for kind, count in kinds[:KINDS_SHOWN]]
    if len(kinds) > KINDS_SHOWN:
        lines.append(f"and {len(kinds) - KINDS_SHOWN} other kinds")
    return lines


def _failed(facts: RunFacts) -> list[str]:
    failed = sum(map(bool, facts.errors))
    if not failed:
        return []
    kinds = "; ".join(failures_by_kind(facts.errors))
    return [f"{failed} of {len(facts.errors)} requests failed: {kinds}."]


def _lengths(facts: RunFacts) -> list[str]:
    rows = zip(facts.errors, facts.output_tokens, facts.asked_tokens, strict=True)
    asked = [(tokens, want) for error, tokens, want in rows if not error and want]
    other = sum(tokens != want for tokens, want in asked)
    if not other:
        return []
    return [f"{other} of {len(asked)} requests got another output length than asked for."]


def _counts(facts: RunFacts) -> list[str]:
    rows = zip(facts.errors, facts.output_tokens, facts.server_tokens, strict=False)
    known = [(ours, theirs) for error, ours, theirs in rows if not error and theirs is not None]
    other = [(ours, theirs) for ours, theirs in known if ours != theirs]
    if not other:
        return []
    ours, theirs = other[0]
    return [
        f"In {len(other)} of {len(known)} requests client and server count different numbers of "
        f"output tokens (the first: {ours} and {theirs}); token latencies and throughput are off."
    ]


def _samples(facts: RunFacts) -> list[str]:
    return too_few(sum(not error for error in facts.errors), facts.percentiles)


def too_few(count: int, percentiles: Sequence[float]) -> list[str]:
    """Whether ``count`` requests are too few for some of the percentiles."""
    rare = [p for p in percentiles if p < 100 and count * (1 - p / 100) < 1]
    if not rare or not count:
        return []
    names = ", ".join(f"P{percentile_word(p)}" for p in rare)
    return [f"{count} requests are few for {names}: it lies at or near the maximum."]


def _rate(facts: RunFacts) -> list[str]:
    enough = len(facts.errors) >= RATE_MIN_REQUESTS and facts.rate < float("inf")
    if not enough or facts.throughput >= facts.rate * (1 - RATE_TOLERANCE):
        return []
    return [
        f"{facts.rate:g} requests/s were asked for, {facts.throughput:.3g} were served: the server "
        "was saturated, or the run too short for its last requests not to count."
    ]


def _foreign(facts: RunFacts) -> list[str]:
    if not facts.foreign_requests:
        return []
    return [f"{facts.foreign_requests} requests of other clients disturbed this run."]


def _warm(facts: RunFacts) -> list[str]:
    return ["The prefix cache held what earlier runs had left in it (--warm)."] * facts.warm


def _outside(facts: RunFacts) -> list[str]:
    if not facts.outside_steps or not facts.steps:
        return []
    share = facts.outside_steps / facts.steps
    return [
        f"{facts.outside_steps} of {facts.steps} steps ({share:.1%}) lie outside what the cost "
        "profile was measured on; their cost is extrapolated."
    ]


def _clock(facts: RunFacts) -> list[str]:
    if facts.clock != "free":
        return []
    return [
        "The server's clock runs free: its metrics are virtual time, but requests came when this "
        "client's real time let them. Only the server's metrics mean something, and only for a "
        "closed loop."
    ]


def _late(facts: RunFacts) -> list[str]:
    pace = facts.pace
    if pace is None or pace.late_steps <= LATE_SHARE * pace.steps:
        return []
    return [
        f"{pace.late_steps} of {pace.steps} steps of the paced server "
        f"({pace.late_steps / pace.steps:.1%}) ended late, by "
        f"{pace.late_total_ms / pace.late_steps:.1f} ms on average: latencies came out longer than "
        "its costs say. Lower its --sim-speed, or leave it more of the machine."
    ]


def _host_overhead(facts: RunFacts) -> list[str]:
    if facts.host_overhead != "measured":
        return []
    return [
        "Host overhead was measured and charged: the numbers depend on this machine, and the run "
        "does not repeat."
    ]


_RULES: tuple[Callable[[RunFacts], list[str]], ...] = (
    _failed,
    _lengths,
    _counts,
    _rate,
    _samples,
    _foreign,
    _warm,
    _outside,
    _clock,
    _late,
    _host_overhead,
)
