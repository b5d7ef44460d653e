"""`sendnn-bench sweep`: its flags and help, and what it does from the first word to the page."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from sendnn_bench import own_server
from sendnn_bench.bridge.early import early
from sendnn_bench.bridge.http import ask_info
from sendnn_bench.errors import Interrupted, UsageError
from sendnn_bench.results import write_atomically
from sendnn_bench.stderr import say
from sendnn_bench.sweep import summary as summaries
from sendnn_bench.sweep.analysis import analyse
from sendnn_bench.sweep.grid import Point
from sendnn_bench.sweep.identity import Surroundings, name_of, server_facts
from sendnn_bench.sweep.plan import Parts, Plan, command_line_parts, plan_of, read_file
from sendnn_bench.sweep.progress import Progress
from sendnn_bench.sweep.run import Start, Sweep, given_server, started_server
from sendnn_bench.sweep.slo import Slo, parse_slo
from sendnn_bench.sweep.summary import Summary
from sendnn_bench.sweep.table import render as render_table

DEFAULT_DIRECTORY = Path("results/sweep")
LIMIT_S = 3600.0

USAGE = "sendnn-bench sweep [FILE.toml] [options] [any flag of `sendnn-bench serve`]"
ABOUT = """
Run many loads against many server settings, each server started once, and compare: a table, a CSV,
a JSON file and a page with the Pareto front and the knee of every curve. What is measured already
is not measured again. Flags of `serve` and of the simulator (--sim-*, --target) apply to all
points.

  sendnn-bench sweep --vary request-rate=1,2,4,8 --vary-server max-num-seqs=16,32 \\
      --num-prompts 200 --goodput ttft:1000 tpot:60
"""


def parser() -> argparse.ArgumentParser:
    """The flags of the sweep itself."""
    found = _Parser(prog="sendnn-bench sweep", add_help=False, allow_abbrev=False, usage=USAGE)
    group = found.add_argument_group("options of the sweep")
    group.add_argument("-h", "--help", action="store_true", help="Show this and exit.")
    _add_what(group)
    _add_how(group)
    return found


def _add_what(group: argparse._ArgumentGroup) -> None:
    """What is run: the points, their server, their objectives."""
    group.add_argument(
        "--vary",
        metavar="NAME=V1,V2",
        nargs="+",
        action="append",
        default=[],
        help="Flag of `serve` that varies. Several --vary give all combinations; pairs of one "
        "--vary go together: --vary request-rate=1,2 num-prompts=60,120.",
    )
    group.add_argument(
        "--vary-server",
        metavar="NAME=V1,V2",
        nargs="+",
        action="append",
        default=[],
        help="The same for flags of `sim-server` and `vllm serve`.",
    )
    group.add_argument(
        own_server.SERVER_ARGS,
        metavar='"FLAGS"',
        help='Flags of the server that do not vary, such as "--max-model-len 32768".',
    )
    group.add_argument(
        "--base-url",
        metavar="URL",
        help="Run the loads against this server, simulated or real; start none.",
    )
    group.add_argument(
        "--goodput",
        metavar="NAME:MS",
        nargs="+",
        default=[],
        help="Objectives by which goodput counts: ttft, tpot, e2el, in ms.",
    )


def _add_how(group: argparse._ArgumentGroup) -> None:
    """How it is run, and where everything goes."""
    group.add_argument(
        "--result-dir",
        type=Path,
        metavar="DIR",
        help=f"Where everything is written. Default: {DEFAULT_DIRECTORY}.",
    )
    group.add_argument(
        "--fresh", action="store_true", help="Measure every point, also those in DIR already."
    )
    group.add_argument(
        "--limit-s",
        type=float,
        default=LIMIT_S,
        metavar="SECONDS",
        help=f"Real time that one point may take. Default: {LIMIT_S:g}.",
    )
    group.add_argument(
        "--dry-run", action="store_true", help="Print the commands of every point; run nothing."
    )
    group.add_argument(
        "--report-only",
        type=Path,
        metavar="DIR",
        help="Only write table, CSV and page of DIR again, with other --goodput if you like.",
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `sendnn-bench sweep --help`.")


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    plan: Plan
    directory: Path
    base_url: str | None
    fresh: bool
    limit_s: float


def run_sweep(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code of the first point that failed, 0 without one.

    Raises:
        UsageError: a flag, a value or the file cannot be right.
        ServerUnreachable: nobody answers at --base-url.
        ResultError: the directory cannot be written, or --report-only finds nothing to read.
        Interrupted: Ctrl-C; what was measured is in the directory.
    """
    if {"-h", "--help"} & set(argv):
        sys.stdout.write(help_text())
        return 0
    file = Path(argv[0]) if argv and not argv[0].startswith("-") else None
    words = own_server.split(argv[1:] if file else argv)
    known, client = parser().parse_known_args(list(words.client))
    if known.report_only is not None:
        return _report_only(known.report_only, parse_slo(known.goodput))
    over = command_line_parts(
        own_server.Words(words.server, tuple(client)), known.vary, known.vary_server, known.goodput
    )
    plan = plan_of(read_file(file) if file else Parts(), over)
    _check(plan, known)
    if known.dry_run:
        sys.stdout.write(commands_text(plan, known.base_url))
        return 0
    directory = known.result_dir or DEFAULT_DIRECTORY
    return _run(Request(plan, directory, known.base_url, known.fresh, known.limit_s))


def _check(plan: Plan, known: argparse.Namespace) -> None:
    if known.base_url and any(point.server_flags for point in plan.points):
        raise UsageError(
            "--base-url names a server that runs already, so its settings cannot be set or varied. "
            "Leave out --base-url, or --vary-server, --server-args and --sim-*."
        )
    if not known.limit_s > 0:
        raise UsageError(f"--limit-s {known.limit_s:g} is not above 0.")


def _run(request: Request) -> int:
    plan, directory = request.plan, request.directory
    around = Surroundings.here(_server_identity(request))
    names = [name_of(point, plan.model, around) for point in plan.points]
    progress = Progress(len(plan.points), say)
    sweep = Sweep(
        plan,
        names,
        directory,
        limit_s=request.limit_s,
        on_row=lambda summary: summaries.write(summary, directory),
        progress=progress,
    )
    if not request.fresh:
        progress.taken(sweep.take_earlier(), directory)
    summaries.write(sweep.summary(), directory)  # a directory that cannot be written is told now
    try:
        with own_server.ended_by_sigterm():
            sweep.run(_start(request))
    except (KeyboardInterrupt, Interrupted) as error:
        done = len(sweep.summary().done)
        _write_report(sweep.summary(), directory)
        raise Interrupted(
            f"interrupted; {done} of {len(plan.points)} points are done. The same command goes on."
        ) from error
    return _write_report(sweep.summary(), directory)


def _start(request: Request) -> Start:
    if request.base_url is None:
        return partial(started_server, request.plan.model)
    url = request.base_url
    return lambda _flags, _log: given_server(url)


def _server_identity(request: Request) -> Any:
    """What tells a server that runs already from another; None for servers of our own."""
    if request.base_url is None:
        return None
    words = (*request.plan.points[0].client_flags, "--base-url", request.base_url)
    info = asyncio.run(ask_info(early(words).server, 0))
    return {"url": request.base_url} if info is None else server_facts(info)


def _report_only(directory: Path, slo: Slo) -> int:
    summary = summaries.read(directory, slo)
    summaries.write(summary, directory)
    return _write_report(summary, directory)


def _write_report(summary: Summary, directory: Path) -> int:
    """Print the table, write the page; the exit code of the first point that failed."""
    from sendnn_bench.sweep.page import render as render_page

    analysis = analyse(summary)
    sys.stdout.write(render_table(summary, analysis))
    sys.stdout.flush()
    write_atomically(directory / summaries.PAGE, render_page(summary, analysis))
    say(f"Page: {directory / summaries.PAGE}")
    failed = [row.exit_code for row in summary.rows if row.status == "failed"]
    return (failed[0] or 1) if failed else 0


def commands_text(plan: Plan, base_url: str | None) -> str:
    """Every server with its runs, as commands."""
    lines: list[str] = []
    previous: Point | None = None
    for point in plan.points:
        if previous is None or previous.server_flags != point.server_flags:
            flags = ("sendnn-bench", "sim-server", plan.model, *point.server_flags)
            lines.append(f"# {base_url}" if base_url else shlex.join(flags))
        lines.append("  " + shlex.join(("sendnn-bench", "serve", *point.client_flags)))
        previous = point
    return "\n".join(lines) + "\n"


def help_text() -> str:
    """The sweep's own flags; those of client and server are told by their commands."""
    own = parser().format_help().partition("\n\n")[2]
    return (
        f"Usage: {USAGE}\n{ABOUT}\n{own}\n"
        "FILE.toml holds the same as tables: see docs/sweep.md. Flags of the loads: `sendnn-bench\n"
        "serve --help`; of the simulator: `sendnn-bench sim-server --help`.\n"
    )
