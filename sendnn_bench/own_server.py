"""A simulated server of a command's own: its flags among the command's words, its start, its end.

`sim` and `sweep` start servers themselves. Of their words, the simulator's flags (`--sim-*`,
`--target`) and those inside `--server-args "..."` are the server's, all others the client's.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sendnn_bench import models
from sendnn_bench.command_words import groups
from sendnn_bench.errors import UsageError
from sendnn_bench.launch_flags import FLAGS, METRICS_FILE, split_flags
from sendnn_bench.server_process import ServerProcess, free_port, own_command, running
from sendnn_bench.stderr import say

SERVER_ARGS = "--server-args"
HOST = "127.0.0.1"
PROGRESS_EVERY_S = 5.0

SAVED_RUN_FLAGS = frozenset({"--from", "--replay"})
"""The flags of an earlier run, its server among them, come from a file."""

_NOT_FOR_SERVER = frozenset({"--host", "--port", "--uds", "--model"})


@dataclass(frozen=True)
class Words:
    """A command line, taken apart: ``server`` are flags of `sim-server`, without the model."""

    server: tuple[str, ...]
    client: tuple[str, ...]


def split(argv: Sequence[str]) -> Words:
    """Whose flag each word belongs to.

    Raises:
        UsageError: a value of the simulator's flags is missing or not allowed, or the server is
            told what the command itself decides.
    """
    given, rest = _take_server_args(argv)
    inside = check_server([word for text in given for word in _split_text(text)])
    simulator, client = split_flags(rest)
    named = {flag.variable: flag.name for flag in FLAGS}
    own = [word for variable, value in simulator.items() for word in (named[variable], value)]
    return Words(server=(*inside, *own), client=tuple(client))


def check_server(flags: Sequence[str]) -> tuple[str, ...]:
    """The server's flags, checked as far as that goes without a start.

    Raises:
        UsageError: a value of the simulator's flags is not allowed, or the server is told what the
            command itself decides.
    """
    for name, _ in groups(flags):
        if name in _NOT_FOR_SERVER:
            raise UsageError(
                f"{name} is no flag for this server: it gets an address of its own, and the model "
                "that --model names."
            )
    split_flags(list(flags))
    return tuple(flags)


def with_model(client: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The model that both sides use, and the client's words with it; built in where none is named.

    Raises:
        UsageError: `--model` without a name.
    """
    for name, words in groups(client):
        if name == "--model":
            value = words[0].partition("=")[2] if "=" in words[0] else " ".join(words[1:2])
            if not value:
                raise UsageError("--model needs a name.")
            return value, tuple(client)
    return models.BUILTIN[0], ("--model", models.BUILTIN[0], *client)


def refuse(client: Sequence[str], flags: frozenset[str], why: str) -> None:
    """Raises UsageError where the client's words hold one of ``flags``."""
    for name, _ in groups(client):
        if name in flags:
            raise UsageError(f"{name} {why}")


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag, the last one where it is repeated; None where it is not given."""
    found = None
    for name, group in groups(words):
        if name == flag:
            found = group[0].partition("=")[2] if "=" in group[0] else " ".join(group[1:2])
    return found


@contextmanager
def starting(model: str, flags: Sequence[str], log: Path) -> Iterator[ServerProcess]:
    """A simulated server on its way up, stopped in any event; its output goes to ``log``."""
    port = free_port()
    command = own_command("sim-server", model, *flags, "--host", HOST, "--port", str(port))
    environ = {METRICS_FILE: str(log.with_suffix(".jsonl"))}
    with running(command, f"http://{HOST}:{port}", log, environ) as server:
        yield server


def wait_until_up(server: ServerProcess) -> float:
    """Wait for /health and say on stderr that one waits; returns the seconds since the call."""
    return server.wait_until_healthy(progress(say))


def progress(tell: Callable[[str], None]) -> Callable[[float], None]:
    """Tells every few seconds that the server is still on its way."""
    last_s = 0.0

    def on_wait(waited_s: float) -> None:
        nonlocal last_s
        if waited_s - last_s >= PROGRESS_EVERY_S:
            last_s = waited_s
            tell(f"  waiting for the server, {waited_s:.0f} s (it imports vLLM)")

    return on_wait


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does, so that the server is stopped then too."""
    before = signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _take_server_args(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of `--server-args`, which begin with a hyphen as a rule, and all other words."""
    given, rest = list[str](), list[str]()
    words = iter(argv)
    for word in words:
        if word == SERVER_ARGS:
            value = next(words, None)
            if value is None:
                raise UsageError(f'{SERVER_ARGS} needs flags: {SERVER_ARGS} "--max-num-seqs 32".')
            given.append(value)
        elif word.startswith(SERVER_ARGS + "="):
            given.append(word.partition("=")[2])
        else:
            rest.append(word)
    return given, rest


def _split_text(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{SERVER_ARGS} {text!r} cannot be read: {error}.") from error
