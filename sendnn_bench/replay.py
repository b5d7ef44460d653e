"""`serve --replay FILE`: a run under which the simulated engine failed, once more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sendnn_bench.bridge import options as own
from sendnn_bench.bridge.early import early
from sendnn_bench.bridge.http import ask_info
from sendnn_bench.bridge.replay import replay_requests
from sendnn_bench.errors import EngineFailed, UsageError
from sendnn_bench.launch_flags import METRICS_FILE, PREFIX
from sendnn_bench.protocol import EngineFailure, ServerInfo
from sendnn_bench.reproducer import Reproducer, load
from sendnn_bench.rerun import merge
from sendnn_bench.stderr import say

COMPARED = ("clock", "target", "model", "cost_model", "settings", "limits")
"""What a server says of itself and what decides on the steps that it takes."""

WITHOUT_EFFECT = {
    METRICS_FILE,
    PREFIX + "SESSION_EXPIRY_S",
    PREFIX + "PARITY",
}
"""Settings on which no step depends."""


def replay(path: Path, further: Sequence[str]) -> None:
    """Send the recorded requests again; ``further`` flags (--base-url, say) beat recorded ones.

    Raises:
        EngineFailed: the engine failed again; the message says whether in the same way.
        ResultError: the file cannot be read.
        UsageError: the server is not like the recorded one.
        BenchError: what can go wrong in any run.
    """
    recorded = load(path)
    options = own.parse(merge(recorded.command[2:], further))
    where = early(options.vllm_argv)
    info = asyncio.run(ask_info(where.server, where.keep_trying_s))
    check_server(recorded.server, info)
    for note in notes(recorded, info):
        say(f"Note: {note}")
    wanted = recorded.failure
    say(f"Sending {len(recorded.requests)} requests again; recorded: {shown(wanted)}")
    found = asyncio.run(replay_requests(where.server, recorded.requests, options.watchdog_s))
    if found is None:
        say(f"All {len(recorded.requests)} requests ran to their end: the engine did not fail.")
        return
    assert found.failure is not None
    seen = EngineFailure(**found.failure)
    if what(seen) == what(wanted):
        raise EngineFailed(f"reproduced: {shown(seen)}")
    raise EngineFailed(f"the engine failed in another way: {shown(seen)}\n{seen.traceback}")


def what(failure: EngineFailure) -> tuple[int, int, str]:
    """What makes two failures the same."""
    return failure.step, failure.now_ns, failure.error


def shown(failure: EngineFailure) -> str:
    """A failure in one line."""
    return f"after step {failure.step}, at {failure.now_ns} ns of virtual time, {failure.error}"


def check_server(recorded: ServerInfo, found: ServerInfo | None) -> None:
    """Refuse a server on which the same requests would take other steps.

    Raises:
        UsageError: names everything that differs.
    """
    if found is None:
        raise UsageError("the server is not simulated; a replay needs one that is.")
    then, now = comparable(recorded), comparable(found)
    different = [
        f"{name}: {then.get(name)!r} recorded, {now.get(name)!r} here"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    if different:
        raise UsageError(
            "this server differs from the recorded one, so the replay would take other steps. "
            f"Start one with the recorded flags ({' '.join(recorded.flags)}) and settings.\n  "
            + "\n  ".join(different)
        )


def comparable(info: ServerInfo) -> dict[str, Any]:
    """What decides on a server's steps, by name."""
    return {
        name: value
        for key, part in asdict(info).items()
        if key in COMPARED
        for name, value in (part.items() if isinstance(part, Mapping) else [(key, part)])
        if name not in WITHOUT_EFFECT
    }


def notes(recorded: Reproducer, info: ServerInfo | None) -> Iterator[str]:
    """What may make the replay end elsewhere, without being wrong."""
    if info is not None and info.versions != recorded.server.versions:
        yield f"recorded with {recorded.server.versions}, this server runs {info.versions}."
    if recorded.start == "warm":
        yield "the run began on a warm engine; the replay begins cold."
