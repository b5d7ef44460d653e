"""Checks of a request's simulation fields before vLLM works on it, so that a wrong one gets 400."""

from __future__ import annotations

import functools
import os
from typing import Any

from server_plugin import settings
from server_plugin.http.sessions import SESSIONS
from server_plugin.sim import fields as sim_fields

RUNNER_VARIABLE = settings.PREFIX + "RUNNER"

NEEDS_LOGITS = (
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "structured_outputs",
    "logit_bias",
    "bad_words",
    "allowed_token_ids",
    "logits_processors",
)


def problem(request: Any) -> str | None:
    """Why an OpenAI request cannot be simulated here; None where it can."""
    if needs_logits := _needs_logits(request):
        return (
            f"{needs_logits} needs logits, which this server does not have: it runs with "
            f"{RUNNER_VARIABLE}=lean. Start it with --sim-runner full."
        )
    try:
        fields = sim_fields.parse(request.vllm_xargs)
    except ValueError as error:
        return str(error)
    if fields.session is None:
        return None
    return _session_problem(request, fields.session, fields.seq)


def _session_problem(request: Any, session: str, seq: int) -> str | None:
    if session != SESSIONS.current:
        return f"simulation session {session!r} is not open on this server; it may have expired"
    sequences = (request.n or 1) * _prompts(request)
    if sequences > 1:
        return (
            f"this request asks for {sequences} sequences (n, or a list of prompts). In a "
            "simulated run a request is one sequence; send them one by one."
        )
    if getattr(request, "use_beam_search", False):
        return "beam search is not supported in a simulated run"
    if not SESSIONS.take(seq):
        return f"sequence number {seq} was used before in this simulation session"
    return None


@functools.cache
def _lean() -> bool:
    loaded = settings.load(os.environ)
    return loaded.runner == "lean" and settings.resolve_target(loaded) == "spyre"


def _needs_logits(request: Any) -> str | None:
    """The first field of a request that the lean runner cannot honour."""
    if not _lean():
        return None
    asked = (name for name in NEEDS_LOGITS if getattr(request, name, None))
    response_format = getattr(request, "response_format", None)
    if response_format is not None and response_format.type != "text":
        return "response_format"
    return next(asked, None)


def _prompts(request: Any) -> int:
    prompt = getattr(request, "prompt", None)
    many = isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list))
    return len(prompt) if many and prompt is not None else 1
