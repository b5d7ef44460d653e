"""What a command says beside its report: on stderr, at once, so that stdout stays the report's."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print one line."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
