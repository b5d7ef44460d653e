"""`serve --from RESULT.json`: the command line of an earlier run, with further flags over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sendnn_bench.command_words import RESULT_FLAGS, groups
from sendnn_bench.errors import ResultError
from sendnn_bench.results import load

COMMAND = ["sendnn-bench", "serve"]

_OUTPUT_LENGTHS = "random sonnet sharegpt custom hf spec-bench prefix-repetition"

REPLACED_BY = {
    "--base-url": ("--host", "--port"),
    "--host": ("--base-url",),
    "--port": ("--base-url",),
    **{f"--{name}-input-len": ("--input-len",) for name in ("random", "sonnet")},
    **{f"--{name}-output-len": ("--output-len",) for name in _OUTPUT_LENGTHS.split()},
}
"""Earlier flags that would win over a later one of another name."""


def command_line(path: Path, further: Sequence[str]) -> list[str]:
    """The flags saved in a result, those of ``further`` in place of earlier ones.

    Raises:
        ResultError: the file cannot be read, or tells no command.
    """
    command = load(path).block.get("command")
    words = command if isinstance(command, list) else []
    if words[:2] != COMMAND or not all(isinstance(word, str) for word in words):
        raise ResultError(
            f"{path} does not say which command made it. Only results of `sendnn-bench serve` can "
            "be run again."
        )
    return merge(words[2:], further)


def merge(saved: Sequence[str], further: Sequence[str]) -> list[str]:
    """One command line of two; the flags of ``further`` win."""
    given = {name for name, _ in groups(further)}
    dropped = {*given, *RESULT_FLAGS}  # the earlier result is to stay as it is
    for name in given:
        dropped.update(REPLACED_BY.get(name, ()))
    words: list[str] = []
    for name, group in groups(saved):
        if name == "--append-result" and "--save-result" not in given:
            words.append("--save-result")
        elif name not in dropped:
            words += group
    return [*words, *further]
