"""Write the reference pages that come from the code: docs/{cli,settings,exit-codes,metrics,
hooks}.md.

python scripts/make_docs.py [DIRECTORY]
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from sendnn_bench import errors, launch_flags
from sendnn_bench.bridge import options
from sendnn_bench.cli import PASS_THROUGH, app
from sendnn_bench.report import describe
from server_plugin import hooks, settings

DEFAULT_DIRECTORY = Path(__file__).parents[1] / "docs"
MADE = "<!-- Made by `make docs`; edit the code it comes from. -->\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    escaped = (tuple(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped) + "\n"


def settings_page() -> str:
    """Every environment variable, with the flag of `sim-server` that sets it."""
    flags = {flag.variable: f"`{flag.name}`" for flag in launch_flags.FLAGS}
    rows = [
        (f"`{settings.MODE_VARIABLE}`", "`0`", "0 or 1", "set to 1", "1 switches simulation on.")
    ]
    rows += [
        (
            f"`{variable.name}`",
            f"`{variable.default}`" if variable.default else "none",
            variable.allowed,
            flags.get(variable.name, ""),
            variable.meaning,
        )
        for variable in settings.VARIABLES
    ]
    head = ("variable", "default", "allowed", "`sim-server` flag", "meaning")
    watchdog = (
        f"`{options.WATCHDOG_VARIABLE}`",
        f"`{options.WATCHDOG_DEFAULT_S:g}`",
        "a positive number of seconds",
        "Real time without progress after which a simulated run is ended with exit code "
        f"{errors.SimStalled.exit_code}.",
    )
    return f"""\
{MADE}
# Settings

## The simulated server

`sendnn-bench sim-server` sets these from its flags; a flag beats the environment. A plain
`vllm serve` reads the same variables. All are checked when the server starts: a value that is not
allowed, or a variable with this prefix that is not in the table, stops it with one message.

{table(head, rows)}
`VLLM_PLUGINS`, where it is set, is vLLM's allow-list for all plugins at once: it has to name
`sendnn_bench_sim`, and for target spyre `sendnn_inference` as well. Leave it unset otherwise.

## The client

{table(("variable", "default", "allowed", "meaning"), [watchdog])}"""


def error_rows(kind: type[errors.BenchError]) -> Iterator[tuple[str, ...]]:
    """The error tree, parents before children."""
    summary = (kind.__doc__ or "").strip().splitlines()[0]
    yield str(kind.exit_code), f"`{kind.__name__}`", summary
    for child in kind.__subclasses__():
        yield from error_rows(child)


def exit_codes_page() -> str:
    """Exit codes by number."""
    rows = sorted(error_rows(errors.BenchError), key=lambda row: int(row[0]))
    rows = [("0", "", "The command did what it was asked to."), *rows]
    return f"""\
{MADE}
# Exit codes

Every error is one message on stderr: what happened, the value that was seen, what to do.

{table(("code", "error", "meaning"), rows)}
`vllm bench serve` exits with 0 when every request failed; `sendnn-bench serve` does not.
`sendnn-bench doctor` exits with 1 when a check failed. `sendnn-bench demo` exits with the code of
the first part that failed, `sendnn-bench sweep` with that of the first point that failed once the
others have run. `sendnn-bench sim-server` becomes the server: its exit code is vLLM's.
"""


def shown_by(*argv: str) -> str:
    """What a command prints, at a fixed width."""
    os.environ.update({"COLUMNS": "100", "NO_COLOR": "1"})
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        app(list(argv), standalone_mode=False)
    return output.getvalue().strip()


def command_section(name: str, command: typer.core.TyperCommand) -> str:
    """One command: its own help where flags pass through to vLLM, else a table of options."""
    summary = (command.help or "").strip()
    if command.context_settings == PASS_THROUGH:
        return f"## {name}\n\n{summary}\n\n```text\n{shown_by(name, '--help')}\n```\n"
    rows = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        names = ", ".join(f"`{flag}`" for flag in parameter.opts)
        default = parameter.default
        shown = "" if default is None or isinstance(default, bool) else f"`{default}`"
        rows.append((names if is_option else f"`{parameter.name}`", shown, parameter.help or ""))
    options_table = "\n" + table(("option", "default", "meaning"), rows) if rows else ""
    return f"## {name}\n\n{summary}\n{options_table}"


def cli_page() -> str:
    """Every command."""
    group = typer.main.get_command(app)
    sections = [command_section(name, found) for name, found in group.commands.items()]
    return f"""\
{MADE}
# Commands

`python -m sendnn_bench` is the same as `sendnn-bench`; use it where another package's script of
that name comes first on PATH (`sendnn-bench doctor` tells).

""" + "\n".join(sections)


def hook_rows(hooks_: tuple[hooks.Hook, ...]) -> list[tuple[str, ...]]:
    """Where a name is, where newer versions have it, and what it is needed for."""
    later = [f"; later `{hook.later}`" if hook.later else "" for hook in hooks_]
    return [(f"`{hook.place}`{more}", hook.why) for hook, more in zip(hooks_, later, strict=True)]


def hooks_page() -> str:
    """Every name of vLLM and sendnn-inference that the plugin touches."""
    targets = (
        ("Both targets", hooks.COMMON),
        ("Target spyre", hooks.SPYRE),
        ("Target stock", hooks.STOCK),
    )
    return f"""\
{MADE}
# Hooks

What the plugin replaces or relies on in vLLM and sendnn-inference. Every row is checked when a
simulated server starts; `sendnn-bench doctor --hooks` checks without one. Versions taken:
{hooks.supported()}.

""" + "\n".join(
        f"## {title}\n\n{table(('name', 'use'), hook_rows(rows))}" for title, rows in targets
    )


PAGES = {
    "settings.md": settings_page,
    "exit-codes.md": exit_codes_page,
    "cli.md": cli_page,
    "metrics.md": describe.render_markdown,
    "hooks.md": hooks_page,
}


def write(directory: Path) -> None:
    """Write every page into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (directory / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_DIRECTORY)
