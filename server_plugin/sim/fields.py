"""The simulation fields of a request, as they come in `vllm_xargs`: parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sendnn_bench.protocol import (
    XARG_ARRIVAL_NS,
    XARG_OUTPUT_SOURCE,
    XARG_OUTPUT_TOKENS,
    XARG_SEQ,
    XARG_SESSION,
    XARGS,
)

MAX_NS = 2**62
"""About 146 years; sums of two such times still fit 64 bits."""

MAX_COUNT = 2**31
MAX_TEXT = 128


@dataclass(frozen=True)
class SimFields:
    """What the client says of a request. ``session`` is None for a request outside any session;
    then ``seq`` and ``arrival_ns`` mean nothing."""

    session: str | None = None
    seq: int = 0
    arrival_ns: int = 0
    output_tokens: int | None = None
    output_source: str = "request"


def parse(extra_args: Mapping[str, Any] | None) -> SimFields:
    """Read the fields.

    Raises:
        ValueError: a field of the wrong type, out of range, or missing; the message names it.
    """
    if not extra_args or not any(name in extra_args for name in XARGS):
        return SimFields()
    session = _text(extra_args, XARG_SESSION)
    output_tokens = _integer(extra_args, XARG_OUTPUT_TOKENS, 1, MAX_COUNT)
    seq = _integer(extra_args, XARG_SEQ, 0, MAX_COUNT)
    arrival_ns = _integer(extra_args, XARG_ARRIVAL_NS, 0, MAX_NS)
    if session is not None and (seq is None or arrival_ns is None):
        raise ValueError(f"{XARG_SESSION} needs {XARG_SEQ} and {XARG_ARRIVAL_NS} beside it")
    return SimFields(
        session=session,
        seq=seq or 0,
        arrival_ns=arrival_ns or 0,
        output_tokens=output_tokens,
        output_source=_text(extra_args, XARG_OUTPUT_SOURCE) or "request",
    )


def _integer(args: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = args.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, not {_shown(value)}")
    return value


def _text(args: Mapping[str, Any], name: str) -> str | None:
    value = args.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise ValueError(
            f"{name} must be a text of 1 to {MAX_TEXT} characters, not {_shown(value)}"
        )
    return value


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except ValueError:  # Python refuses to print such a number
        return "a number of thousands of digits"
