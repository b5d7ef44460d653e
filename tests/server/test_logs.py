"""The plugin's log lines are shown although vLLM's API server silences the root logger."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from server_plugin import logs

NAMES = ("", "vllm", "server_plugin")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Loggers as they were before."""
    loggers = [logging.getLogger(name or None) for name in NAMES]
    before = [(one, one.level, list(one.handlers), one.propagate) for one in loggers]
    yield
    for one, level, handlers, propagate in before:
        one.setLevel(level)
        one.handlers, one.propagate = handlers, propagate


def theirs(*handlers: logging.Handler) -> None:
    """vLLM's logger as its API server has it, over a root logger that shows errors only."""
    logging.getLogger().setLevel(logging.ERROR)
    vllm = logging.getLogger("vllm")
    vllm.setLevel(logging.INFO)
    vllm.handlers = list(handlers)


def test_warnings_are_shown_where_the_root_logger_is_silenced() -> None:
    shown = io.StringIO()
    theirs(logging.StreamHandler(shown))
    logger = logging.getLogger("server_plugin.sim.metrics_file")
    logger.warning("lost")
    logs.show_with_vllm()
    logger.warning("a warning")
    logger.info("a fact")
    logger.debug("a detail")
    assert shown.getvalue() == "a warning\na fact\n"


def test_a_user_who_sets_up_logging_keeps_it() -> None:
    theirs()
    ours = logging.getLogger("server_plugin")
    before = (ours.level, ours.handlers, ours.propagate)
    logs.show_with_vllm()
    assert (ours.level, ours.handlers, ours.propagate) == before
