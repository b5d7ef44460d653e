"""The `sendnn-bench` command: parses, then calls one function per command.

Importing this module must stay fast: vLLM and plotly are imported inside the command that needs
them. Errors are shown in one place, `main`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from sendnn_bench import __version__
from sendnn_bench.errors import BenchError
from sendnn_bench.stdout import lost, unwritten

app = typer.Typer(
    name="sendnn-bench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than the help to read
    help="Benchmark a vLLM deployment before the hardware runs it.",
)

PASS_THROUGH = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}
"""Context of a command whose flags belong to vLLM: all of them reach it untouched."""


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"sendnn-bench {__version__}")
        raise typer.Exit


@app.command(context_settings=PASS_THROUGH)
def serve(context: typer.Context) -> None:
    """Run `vllm bench serve` against a server, simulated or real, and report SenDNN metrics."""
    from sendnn_bench.serve_command import run_serve

    run_serve(context.args)


@app.command("sim-server", context_settings=PASS_THROUGH)
def sim_server(context: typer.Context) -> None:
    """Start `vllm serve MODEL [any vllm serve flag]` with the mocked model on a virtual clock."""
    from sendnn_bench.launch import run_sim_server

    run_sim_server(context.args)


@app.command(context_settings=PASS_THROUGH)
def sim(context: typer.Context) -> None:
    """Start a simulated server, run one `serve` against it, stop it: one experiment."""
    from sendnn_bench.sim_command import run_sim

    run_sim(context.args)


@app.command(context_settings=PASS_THROUGH)
def sweep(context: typer.Context) -> None:
    """Run many loads against many server settings; table, CSV, JSON and a page of all."""
    from sendnn_bench.sweep.command import run_sweep

    raise typer.Exit(run_sweep(context.args))


@app.command()
def demo(
    result_dir: Annotated[
        Path, typer.Option(help="Directory for results and the server's log.")
    ] = Path("results"),
    requests: Annotated[int, typer.Option(min=1, help="Requests in each of the two runs.")] = 200,
) -> None:
    """Start a simulated server, benchmark it in open and closed loop, stop it."""
    from sendnn_bench.demo import run_demo

    run_demo(directory=result_dir, requests=requests)


@app.command()
def doctor(
    base_url: Annotated[
        str | None, typer.Option(help="Also ask this server whether it is simulated.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to be free.")] = 8000,
    result_dir: Annotated[Path, typer.Option(help="Directory to be writable.")] = Path("results"),
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Also check the plugin's hook points (30 s).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the installation, and what may get in the way; exit code 1 if a check fails."""
    from sendnn_bench.doctor import Options, run_doctor

    options = Options(port=port, result_dir=result_dir, base_url=base_url, hooks=hooks)
    raise typer.Exit(run_doctor(options, as_json=as_json))


@app.command("describe-metrics")
def describe_metrics(
    as_format: Annotated[
        Literal["text", "md", "json"], typer.Option("--format", help="How to print.")
    ] = "text",
) -> None:
    """Explain every metric of the report. Needs no server."""
    from sendnn_bench.report.describe import FORMATS

    sys.stdout.write(FORMATS[as_format]())


@app.command()
def calibrate(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULT.json...", help="Detailed results of real runs.")
    ],
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Profile to write; stdout without.")
    ] = None,
    kind: Annotated[
        Literal["constant", "linear", "table"], typer.Option(help="Kind of profile to fit.")
    ] = "linear",
    chunk_size: Annotated[
        int | None,
        typer.Option(min=64, help="Prefill chunk size in tokens, where results do not tell it."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="Leave a term out: p1, p2, d1 or d2. Repeatable.")
    ] = None,
    noise: Annotated[bool, typer.Option(help="Keep residuals as noise.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise.")] = 0,
    name: Annotated[str, typer.Option(help="Name of the profile; the model's without.")] = "",
) -> None:
    """Fit a cost profile to the steps of measured runs, and say how well it fits."""
    from sendnn_bench.calibrate.command import Options, run_calibrate

    options = Options(kind, chunk_size, tuple(drop or ()), noise, seed, name)
    profile, report = run_calibrate(results, output, options)
    sys.stdout.write(report if output else profile)
    sys.stderr.write(f"Profile: {output}\n" if output else report)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(metavar="RESULT.json", help="A saved result.")],
    percentiles: Annotated[
        str | None,
        typer.Option(metavar="50,90,99", help="Percentiles to show; those saved without."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the report of a saved result again. Needs no server."""
    from sendnn_bench.report.report_command import report as report_of

    sys.stdout.write(report_of(result, percentiles, as_json))


@app.command()
def timeline(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT.json", help="Result of a run with --save-detailed.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Page to write; RESULT.timeline.html without."),
    ] = None,
    decode_thresholds: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="Colour decode steps by two limits in ms."),
    ] = None,
) -> None:
    """Draw every request of a result: one HTML page that works offline. Needs no server."""
    from sendnn_bench.report.timeline import timeline_of_file

    typer.echo(f"Timeline: {timeline_of_file(result, output, decode_thresholds)}")


@app.command()
def compare(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="A.json B.json...", help="A is what others are set against."),
    ],
    *,
    tolerance: Annotated[
        float, typer.Option(min=0, metavar="PCT", help="Mark differences of more than PCT percent.")
    ] = 5.0,
    fail_over: Annotated[
        bool, typer.Option("--fail-over", help="Exit with 1 where a difference is marked.")
    ] = False,
    as_format: Annotated[
        Literal["table", "json", "md", "html"] | None,
        typer.Option("--format", help="How to print; by the suffix of FILE without."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write.")
    ] = None,
    replicates: Annotated[
        int, typer.Option("--bootstrap", min=1, help="Draws for the confidence intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws.")] = 0,
    identical: Annotated[
        bool,
        typer.Option(
            "--identical",
            help="Only check that all are the same to the last digit but for dates, real times and "
            "places; exit with 1 and name the first difference where they are not.",
        ),
    ] = False,
) -> None:
    """Set results beside each other: differences, their confidence, distributions."""
    from sendnn_bench.report.compare import Options
    from sendnn_bench.report.compare_command import run_compare
    from sendnn_bench.report.identical import run_identical

    if identical:
        raise typer.Exit(run_identical(results))
    options = Options(tolerance=tolerance / 100, replicates=replicates, seed=seed)
    form = "json" if as_json else as_format
    raise typer.Exit(run_compare(results, options, form, output, fail_over))


def main() -> None:
    """Entry point of the script; shows every expected error as one message and its exit code."""
    code: int | str | None = 0
    try:
        app(standalone_mode=True, prog_name="sendnn-bench")
    except SystemExit as ended:
        code = ended.code
    except BenchError as error:
        sys.exit(_show(error))
    except OSError as error:
        shown = lost(error)
        if shown is None:
            raise
        sys.exit(_show(shown))
    shown = unwritten()
    sys.exit(code if shown is None else _show(shown))


def _show(error: BenchError) -> int:
    """One message on stderr, none where it is empty; the exit code."""
    if str(error):
        # Plain write: rich would read `[/v1/models]` in a message as markup.
        sys.stderr.write(f"sendnn-bench: {error}\n")
    unwritten()
    return error.exit_code
