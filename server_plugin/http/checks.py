"""Checks of a request's simulation fields before vLLM works on it, so that a wrong one gets 400."""

from __future__ import annotations

from typing import Any

from server_plugin.http.sessions import SESSIONS
from server_plugin.sim import fields as sim_fields


def problem(request: Any) -> str | None:
    """What is wrong with the simulation fields of an OpenAI request; None where nothing is."""
    try:
        fields = sim_fields.parse(request.vllm_xargs)
    except ValueError as error:
        return str(error)
    if fields.session is None:
        return None
    if fields.session != SESSIONS.current:
        return (
            f"simulation session {fields.session!r} is not open on this server; it may have expired"
        )
    sequences = (request.n or 1) * _prompts(request)
    if sequences > 1:
        return (
            f"this request asks for {sequences} sequences (n, or a list of prompts). In a "
            "simulated run a request is one sequence; send them one by one."
        )
    if getattr(request, "use_beam_search", False):
        return "beam search is not supported in a simulated run"
    return None


def _prompts(request: Any) -> int:
    prompt = getattr(request, "prompt", None)
    many = isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list))
    return len(prompt) if many and prompt is not None else 1
