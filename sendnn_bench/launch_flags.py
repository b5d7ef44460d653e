"""Flags of `sendnn-bench sim-server` beside those of `vllm serve`: one declaration each."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from sendnn_bench import models
from sendnn_bench.errors import UsageError

PREFIX = "SENDNN_INFERENCE_SIM_"
TARGET = PREFIX + "TARGET"
METRICS_FILE = PREFIX + "METRICS_FILE"

USAGE = "sendnn-bench sim-server MODEL [options] [any vllm serve flag]"


@dataclass(frozen=True)
class Flag:
    """One flag of ours: the variable it sets, the values it takes."""

    name: str
    variable: str
    metavar: str
    check: Callable[[str], bool]
    help: str


def _among(*choices: str) -> Callable[[str], bool]:
    return lambda text: text in choices


def _number_from(low: float) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            value = float(text)
        except ValueError:
            return False
        return math.isfinite(value) and value >= low

    return check


def _overhead(text: str) -> bool:
    kind, _, value = text.partition(":")
    return text in ("off", "measured") or (kind == "constant" and _number_from(0)(value))


def _is_file(text: str) -> bool:
    return Path(text).is_file()


FLAGS: tuple[Flag, ...] = (
    Flag(
        "--target",
        TARGET,
        "auto|spyre|stock",
        _among("auto", "spyre", "stock"),
        "Whose scheduler runs: sendnn-inference's (spyre) or vLLM's own (stock). "
        "Default: spyre where sendnn-inference is installed.",
    ),
    Flag(
        "--sim-prefill-ms",
        PREFIX + "PREFILL_MS",
        "MILLISECONDS",
        _number_from(0),
        "Virtual cost of a step that holds a prefill chunk. Default: 100.",
    ),
    Flag(
        "--sim-decode-ms",
        PREFIX + "DECODE_MS",
        "MILLISECONDS",
        _number_from(0),
        "Virtual cost of a decode step. Default: 50.",
    ),
    Flag(
        "--sim-runner",
        PREFIX + "RUNNER",
        "full|lean",
        _among("full", "lean"),
        "full: upstream's model runner and sampler run; lean: only what the scheduler needs of "
        "them, several times faster. Default: full.",
    ),
    Flag(
        "--sim-host-overhead",
        PREFIX + "HOST_OVERHEAD",
        "off|constant:MS|measured",
        _overhead,
        "What the host adds to each step; measured: the real time of schedule, input preparation "
        "and update, which does not repeat. Default: off.",
    ),
    Flag(
        "--sim-profile",
        PREFIX + "PROFILE",
        "EXISTING_FILE",
        _is_file,
        "Cost profile that replaces the two constants.",
    ),
    Flag(
        "--sim-clock",
        PREFIX + "CLOCK",
        "virtual|paced|free",
        _among("virtual", "paced", "free"),
        "virtual: exact, for `sendnn-bench serve`. paced: each step really takes its time, for any "
        "client. free: as fast as it goes, closed-loop clients only. Default: virtual.",
    ),
    Flag(
        "--sim-speed",
        PREFIX + "SPEED",
        "FACTOR",
        _number_from(1e-3),
        "Virtual seconds per wall second in paced mode. Default: 1.",
    ),
    Flag(
        "--sim-memory-gb",
        PREFIX + "MEMORY_GB",
        "GIB",
        _number_from(1e-3),
        "Memory of one simulated device, which sizes the KV cache of target stock. Default: 80.",
    ),
)
"""Defaults are the server's (see docs/settings.md): a flag that is not given sets nothing."""


def split_flags(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """Our flags as variables with their values, and the rest of the arguments in their order.

    Raises:
        UsageError: a flag of ours lacks its value or has one that is not allowed.
    """
    parser = _Parser(add_help=False, allow_abbrev=False, usage=USAGE)
    for flag in FLAGS:
        parser.add_argument(flag.name, dest=flag.variable)
    known, passed = parser.parse_known_args(argv)
    own = {name: value for name, value in vars(known).items() if value is not None}
    for flag in FLAGS:
        value = own.get(flag.variable)
        if value is not None and not flag.check(value):
            raise UsageError(f"{flag.name} {value!r} is not allowed; it takes {flag.metavar}.")
    return own, passed


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `sendnn-bench sim-server --help`.")


def help_text() -> str:
    """Our flags; vLLM's own take `vllm serve` half a minute to list."""
    about = (
        "Start `vllm serve` with the real scheduler, a mocked model and a virtual clock. MODEL is "
        f"{', '.join(models.BUILTIN)} (built in), a directory with config.json and tokenizer (no "
        "weights are read), or a hub id."
    )
    lines = [f"Usage: {USAGE}", "", *textwrap.wrap(about, 88), "", "Options:"]
    for flag in FLAGS:
        lines.append(f"  {flag.name} {flag.metavar}")
        lines += textwrap.wrap(
            f"{flag.help} [{flag.variable}]",
            88,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
        )
    lines += ["", "Every flag of `vllm serve` passes through; `vllm serve --help` lists them.", ""]
    return "\n".join(lines)
