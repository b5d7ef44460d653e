"""One benchmark: ask the server, run, report, save."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sendnn_bench import provenance, save, stderr, stdout
from sendnn_bench.bridge import options as own
from sendnn_bench.bridge.backend import record_of
from sendnn_bench.bridge.bench_run import BenchRun
from sendnn_bench.bridge.early import early as early_flags
from sendnn_bench.bridge.early import server_of
from sendnn_bench.bridge.http import Server, ask_info, served_models
from sendnn_bench.errors import AllRequestsFailed, BenchError, EngineFailed, UsageError
from sendnn_bench.metrics import Record
from sendnn_bench.protocol import EngineFailure
from sendnn_bench.report import console, findings
from sendnn_bench.report.compact import print_compact
from sendnn_bench.report.overview import overview
from sendnn_bench.reproducer import SUFFIX, Reproducer
from sendnn_bench.results import Result

NOISY_LOGGERS = ("torch.utils.cpp_extension",)
"""Loggers that warn, at import, of accelerators that a client does not need."""


def serve(options: own.Options, argv: list[str]) -> None:
    """Run the benchmark; ``argv`` is the command line for the record.

    Raises:
        BenchError: any error of the tree; what was measured before it has been saved.
    """
    early = early_flags(options.vllm_argv)
    server = early.server
    info = asyncio.run(ask_info(server, early.keep_trying_s))
    if info is not None and early.hub_model is not None:
        _check_model(server, early.hub_model)
    prepare_vllm(options.verbose)
    from sendnn_bench.bridge import arguments, bench

    args = arguments.parse(options.vllm_argv)
    if server_of(args) != server:  # named in a --config file
        server = server_of(args)
        info = asyncio.run(ask_info(server, args.ready_check_timeout_sec))
    if args.dataset_name == "timed_trace" and "PYTHONHASHSEED" not in os.environ:
        stderr.say(
            "Note: vLLM makes the prompts of a trace from hash(); PYTHONHASHSEED=0 repeats them."
        )
    if options.describe_metrics:
        _describe_metrics(args.result_dir)
    run = bench.run_bench(
        args,
        server,
        info,
        warm=options.warm,
        verbose=options.verbose,
        watchdog_s=options.watchdog_s,
    )
    _finish(run, options, argv)


def _finish(run: BenchRun, options: own.Options, argv: list[str]) -> None:
    """Report and save a run, complete or not."""
    block = provenance.describe_run(run, argv)
    if run.result is None:
        error = run.error or BenchError("the benchmark ended without a result.")
        saved = [_save_partial(run, block), *_save_reproducer(run, block)]
        raise type(error)("\n".join([str(error), *saved])) from error
    outputs = run.outputs or []
    records = [record_of(output) for output in outputs]
    failed = sum(not output.success for output in outputs)
    _report(run, records, failed, section=not options.compact)
    block["findings"] = findings.find(provenance.facts_of(run))
    _save(run, records, block)
    if options.compact:
        print_compact(overview(_full_result(run, records, block), run.percentiles), sys.stdout)
    if run.error is not None:
        raise run.error
    if outputs and failed == len(outputs):
        kinds = findings.failures_by_kind([output.error for output in outputs])
        raise AllRequestsFailed("\n  ".join([f"all {failed} requests failed:", *kinds]))
    for text in block["findings"]:
        stderr.say(f"Note: {text}")
    if options.timeline:
        _write_timeline(run, options, records, block)


def _report(run: BenchRun, records: Sequence[Record | None], failed: int, *, section: bool) -> None:
    text = console.render(records, run.percentiles, failed)
    if text and section:
        stdout.say(text + "\n")
    elif not text and failed < len(records):
        stderr.say(
            "The server sent no SenDNN metrics. A sendnn-inference server sends them when it runs "
            "with SENDNN_INFERENCE_BENCH_METRICS_ENABLED=1."
        )
    host = console.render_host(run.closed.host if run.closed else {})
    if host and section:
        stdout.say(host + "\n")
    if run.virtual and run.wall_s > 0:
        stderr.say(
            f"Simulated {run.virtual_s:.2f} s of virtual time in {run.wall_s:.2f} s of wall time "
            f"({run.virtual_s / run.wall_s:.1f} virtual s per s)."
        )


def _save(run: BenchRun, records: list[Record | None], block: dict[str, Any]) -> None:
    from sendnn_bench.bridge import bench

    args = run.args
    vllm_result = provenance.named_by_user(run)
    result = save.compose(vllm_result, records, run.percentiles, block, args.save_detailed)
    asked = args.save_result or args.append_result
    if asked and run.file_name is not None:
        save.save(result, run.file_name, append=args.append_result)
        bench.save_pytorch_format(run)
        stderr.say(f"Result: {run.file_name}")
    elif args.save_detailed:
        stderr.say("Nothing was saved: --save-detailed needs --save-result beside it.")


def _write_timeline(
    run: BenchRun, options: own.Options, records: list[Record | None], block: dict[str, Any]
) -> None:
    """The timeline shows all requests, whether or not the result file does."""
    from sendnn_bench.report.timeline import default_path, write_timeline

    full = _full_result(run, records, block)
    page = write_timeline(full, default_path(full.path), options.decode_thresholds_ms)
    stderr.say(f"Timeline: {page}")


def _full_result(run: BenchRun, records: list[Record | None], block: dict[str, Any]) -> Result:
    """The detailed result, under the name that a saved one has or would have."""
    from sendnn_bench.bridge import bench

    path = run.file_name or bench.result_name(run.args, always=True)
    assert path is not None
    vllm_result = provenance.named_by_user(run)
    return Result(path, save.compose(vllm_result, records, run.percentiles, block, detailed=True))


def _save_partial(run: BenchRun, block: dict[str, Any]) -> str:
    """Save what a run that did not reach its end has measured; says where."""
    outputs = run.outputs or []
    if not outputs:
        return "Nothing was measured."
    head = provenance.partial_head(run)
    path = _beside_result(run, ".partial.json")
    result = save.compose(
        head | save.partial_columns(outputs),
        [record_of(output) for output in outputs],
        run.percentiles,
        block | {"partial": True, "reason": str(run.error)},
        detailed=True,
    )
    save.save(result, path, append=False)
    return f"{len(outputs)} requests had ended; they are saved in {path}."


def _save_reproducer(run: BenchRun, block: dict[str, Any]) -> list[str]:
    """Where the engine failed, save what it takes to see that again; says where."""
    if not isinstance(run.error, EngineFailed) or run.error.failure is None or run.info is None:
        return []
    path = _beside_result(run, SUFFIX)
    Reproducer(
        command=block["command"],
        start=str(block["start"]),
        server=run.info,
        failure=EngineFailure(**run.error.failure),
        requests=sorted(run.sent, key=lambda request: request.seq),
    ).write(path)
    return [
        f"The engine's traceback and state, and every request as it was sent, are in {path}. "
        "See it again: sendnn-bench serve --replay FILE, against a server started in the same way."
    ]


def _beside_result(run: BenchRun, suffix: str) -> Path:
    """A file that takes its name from the result's; from the date where none was asked for."""
    from sendnn_bench.bridge import bench

    name = bench.result_name(run.args)
    if name is not None:
        return name.with_name(name.stem + suffix)
    date = f"{datetime.now():%Y%m%d-%H%M%S}"
    return Path(run.args.result_dir or ".") / f"sendnn-bench-{date}{suffix}"


def _check_model(server: Server, model: str) -> None:
    """A mistyped name would send vLLM to a model hub for its tokenizer."""
    served = asyncio.run(served_models(server))
    if served and model not in served:
        raise UsageError(
            f"the simulated server does not serve {model!r}, but {', '.join(served)}. Correct "
            "--model, or name a --tokenizer to use with it."
        )


def prepare_vllm(verbose: bool) -> None:
    """Set what vLLM reads while it is imported: no server plugins here, and no noise without -v."""
    os.environ["VLLM_PLUGINS"] = ""
    if sys.stderr.isatty() and "vllm" not in sys.modules:
        stderr.say("Loading vLLM ...")
    if not verbose:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        for name in NOISY_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)


def _describe_metrics(result_dir: str | None) -> None:
    from sendnn_bench.report.describe import write_description

    path = Path(result_dir or ".") / "sendnn_bench_metrics_description.txt"
    write_description(path)
    stderr.say(f"Metric descriptions: {path}")
