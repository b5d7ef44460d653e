"""What is to be done where stdout cannot take what was printed: a full disk, or `| head`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from sendnn_bench.errors import BenchError, OutputClosed, ResultError

STDOUT = 1
PACIFIER = "PacifyFlushWrapper"
"""What typer puts in the place of a stdout whose reader went away."""

OF_WRITING = {errno.ENOSPC, errno.EPIPE, errno.EFBIG, errno.EDQUOT, errno.EIO}


def say(text: str) -> None:
    """Print now; where stdout cannot take it, `unwritten` tells so at the end of the command."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


def unwritten() -> BenchError | None:
    """Write what is left to write; the error where that cannot be done.

    Nothing is left to write afterwards: the interpreter would try again as it ends.
    """
    try:
        if sys.__stdout__ is not None:
            sys.__stdout__.flush()
    except OSError as error:
        return lost(error)
    return OutputClosed("") if PACIFIER in type(sys.stdout).__name__ else None


def lost(error: OSError) -> BenchError | None:
    """The error where it was stdout that could not be written; None where it was something else.

    Whatever this program writes elsewhere ends in a `ResultError` of its own.
    """
    if error.filename is not None or error.errno not in OF_WRITING:
        return None
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)
    if isinstance(error, BrokenPipeError):
        return OutputClosed("")
    return ResultError(f"stdout cannot be written: {error.strerror}.")
