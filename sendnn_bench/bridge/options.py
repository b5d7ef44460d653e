"""The flags of `sendnn-bench serve` that are ours. Fast to import: the help needs nothing else."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sendnn_bench.errors import UsageError

WATCHDOG_VARIABLE = "SENDNN_BENCH_WATCHDOG_S"
WATCHDOG_DEFAULT_S = 120.0

SOURCE = "source"
"""Destination of --from, which is no name in Python."""


@dataclass(frozen=True)
class Options:
    """Our own flags, validated. ``vllm_argv`` is everything else, untouched."""

    vllm_argv: tuple[str, ...]
    help: bool = False
    help_all: bool = False
    describe_metrics: bool = False
    timeline: bool = False
    decode_thresholds_ms: tuple[float, float] | None = None
    warm: bool = False
    verbose: bool = False
    watchdog_s: float = WATCHDOG_DEFAULT_S
    compact: bool = False
    """One table of all percentiles in place of the SenDNN section."""


def own_parser() -> argparse.ArgumentParser:
    """Parser of our own flags; its help text is the first part of ours."""
    parser = argparse.ArgumentParser(
        prog="sendnn-bench serve",
        add_help=False,
        allow_abbrev=False,
        usage="sendnn-bench serve [our options] [any option of `vllm bench serve`]",
    )
    group = parser.add_argument_group("options of sendnn-bench")
    group.add_argument("-h", "--help", action="store_true", help="Show this and exit.")
    group.add_argument(
        "--help-all", action="store_true", help="Show vLLM's own options too (imports vLLM)."
    )
    group.add_argument(
        "--from",
        dest=SOURCE,
        metavar="RESULT.json",
        help="Run again with the flags of the run that made this result; further flags replace "
        "them. The earlier result is not overwritten: its name is not reused.",
    )
    group.add_argument(
        "--replay",
        metavar="FILE.reproducer.json",
        help="Send the requests of a run under which the simulated engine failed once more, each "
        "at its virtual arrival, to a server with the same settings. Exit code 7 while the engine "
        "fails, 0 when it does not any more.",
    )
    group.add_argument(
        "--report",
        choices=("table", "rich"),
        default="table",
        help="Below vLLM's table, print SenDNN metrics as another such table, or all metrics as "
        "one compact table of all percentiles (rich). Default: table.",
    )
    group.add_argument(
        "--describe-metrics",
        action="store_true",
        help="Also write sendnn_bench_metrics_description.txt, which explains every metric.",
    )
    group.add_argument(
        "--timeline",
        "--detailed-timeline",
        action="store_true",
        help="Also write a timeline of all requests as one HTML file beside the result.",
    )
    group.add_argument(
        "--decode-thresholds",
        metavar="LOW,HIGH",
        help="Colour decode steps of the timeline by latency in ms: below LOW, up to HIGH, above.",
    )
    group.add_argument(
        "--warm",
        action="store_true",
        help="Simulated server: go on with its clock and prefix cache as the last run left them.",
    )
    group.add_argument(
        "-v", "--verbose", action="store_true", help="Show vLLM's log, arguments, tracebacks."
    )
    return parser


def parse(argv: Sequence[str]) -> Options:
    """Split our flags from vLLM's.

    Raises:
        UsageError: a value of ours cannot be right.
    """
    known, rest = own_parser().parse_known_args(list(argv))
    return Options(
        vllm_argv=tuple(rest),
        help=known.help,
        help_all=known.help_all,
        describe_metrics=known.describe_metrics,
        timeline=known.timeline,
        decode_thresholds_ms=parse_thresholds(known.decode_thresholds),
        warm=known.warm,
        verbose=known.verbose,
        watchdog_s=watchdog_s(os.environ.get(WATCHDOG_VARIABLE)),
        compact=known.report == "rich",
    )


def split_file(argv: Sequence[str], flag: str) -> tuple[Path | None, list[str]]:
    """The file of ``flag`` (--from or --replay), None without, and all other words.

    Raises:
        UsageError: the flag without a file.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(flag, dest=SOURCE, type=Path)
    try:
        known, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise UsageError(f"{flag} needs a file: {flag} FILE.json.") from error
    return getattr(known, SOURCE), rest


def parse_thresholds(text: str | None) -> tuple[float, float] | None:
    """Two rising numbers of milliseconds.

    Raises:
        UsageError: something else.
    """
    if text is None:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        low, high = 0.0, -1.0
    if not 0 <= low <= high:
        raise UsageError(
            f"--decode-thresholds {text!r} is not LOW,HIGH: two numbers of milliseconds, LOW not "
            "above HIGH, such as 50,80."
        )
    return low, high


def watchdog_s(text: str | None) -> float:
    """Real seconds without progress after which a simulated run is ended.

    Raises:
        UsageError: not a positive number.
    """
    if not text:
        return WATCHDOG_DEFAULT_S
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{WATCHDOG_VARIABLE}={text!r} is not a positive number of seconds.")
    return value
