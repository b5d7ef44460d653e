"""Our log lines, where and as vLLM's are shown."""

from __future__ import annotations

import logging


def show_with_vllm() -> None:
    """Give this package's loggers the level and the handlers of vLLM's.

    Left to the root logger they would be lost: what vLLM's API server imports sets that one to
    ERROR. Does nothing where the user has told vLLM not to set up logging.
    """
    theirs, ours = logging.getLogger("vllm"), logging.getLogger(__package__)
    if theirs.handlers:
        ours.setLevel(theirs.level)
        ours.handlers = list(theirs.handlers)
        ours.propagate = False
