"""How the plugin ends a server that must not start: one message, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sendnn_bench.errors import BenchError


def stop(error: BenchError) -> NoReturn:
    """End this process with the one message; vLLM would bury an exception in tracebacks."""
    sys.stderr.write(f"sendnn-bench: {error}\n")
    sys.stderr.flush()
    sys.exit(error.exit_code)


@contextmanager
def stopping() -> Iterator[None]:
    """An error of ours inside ends the process."""
    try:
        yield
    except BenchError as error:
        stop(error)
