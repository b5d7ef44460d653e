"""Built-in simulated models: a shape, a tokenizer and a chat template, without weights."""

from __future__ import annotations

from pathlib import Path

_DIRECTORY = Path(__file__).parent

BUILTIN: tuple[str, ...] = ("sim-granite-8b",)
"""Names that `--model` takes beside directories and hub ids."""


def resolve(name: str) -> str:
    """Directory of a built-in model as an absolute path; any other name unchanged."""
    return str(_DIRECTORY / name) if name in BUILTIN else name
