"""Every error that a user can meet, with the exit code it ends the command with.

BenchError                 1  anything below that has no code of its own
├── UsageError             2  a flag or a value that cannot be right
├── ServerUnreachable      3  no server answers at the address, or it died in mid-run
├── AllRequestsFailed      4  the run finished and not one request succeeded
├── ResultError            5  a result file cannot be read, understood or written
├── SimError               6  the simulated server and this client cannot go on together
│   ├── SessionBusy           another client holds the server's one simulation session
│   └── SimStalled            neither side can move: the message says who waits for what
├── EngineFailed           7  the simulated engine raised an exception: a finding, with its state
├── Interrupted          130  Ctrl-C; what was measured is saved
└── OutputClosed         141  the reader of stdout went away, as `| head` does; nothing is said

A message has up to three parts: what happened, the value that was seen, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BenchError(Exception):
    """Base of all errors shown to the user without a traceback."""

    exit_code = 1


class UsageError(BenchError):
    """A flag or value that cannot be right."""

    exit_code = 2


class ServerUnreachable(BenchError):
    """No server answers, or the server died in mid-run."""

    exit_code = 3


class AllRequestsFailed(BenchError):
    """The run finished, but not one request succeeded."""

    exit_code = 4


class ResultError(BenchError):
    """A result file cannot be read, understood or written; stdout cannot be written."""

    exit_code = 5


class SimError(BenchError):
    """The simulated server and this client cannot go on together."""

    exit_code = 6


class SessionBusy(SimError):
    """Another client holds the server's one simulation session."""


class SimStalled(SimError):
    """Neither side can move; the message names who waits for what."""


class EngineFailed(BenchError):
    """The simulated engine raised an exception in a step; its state is in a reproducer."""

    exit_code = 7

    def __init__(self, message: str, failure: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        """As `sendnn_bench.protocol.EngineFailure` travels."""


class Interrupted(BenchError):
    """Ctrl-C; what was measured has been saved."""

    exit_code = 130


class OutputClosed(BenchError):
    """The reader of stdout went away, as `| head` does; nothing is said."""

    exit_code = 141
