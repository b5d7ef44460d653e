"""vLLM's own command line: its parser with our backend, and faults found before the run."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vllm.benchmarks import serve as vllm_serve
from vllm.benchmarks.lib.endpoint_request_func import (
    ASYNC_REQUEST_FUNCS,
    OPENAI_COMPATIBLE_BACKENDS,
)
from vllm.utils.argparse_utils import FlexibleArgumentParser

from sendnn_bench.bridge.backend import BACKEND
from sendnn_bench.bridge.bench_run import percentiles_of
from sendnn_bench.errors import UsageError
from sendnn_bench.models import resolve

CHAT_BACKEND = "openai-chat"
COMPLETIONS_BACKEND = "openai"


def vllm_backend(args: argparse.Namespace) -> str:
    """The backend of vLLM that does the work.

    `spyre-chat` takes the one that fits the endpoint, and for the run goes by that name, so that
    it passes every check of data sets on backends.
    """
    if args.backend != BACKEND:
        return str(args.backend)
    chat = args.endpoint.endswith("chat/completions")
    return CHAT_BACKEND if chat else COMPLETIONS_BACKEND


async def spyre_chat(request_func_input: Any, session: Any, pbar: Any = None) -> Any:
    """The backend's registered function: chat or completions, by the URL."""
    chat = request_func_input.api_url.endswith("chat/completions")
    send = ASYNC_REQUEST_FUNCS[CHAT_BACKEND if chat else COMPLETIONS_BACKEND]
    return await send(request_func_input=request_func_input, session=session, pbar=pbar)


def build_parser() -> argparse.ArgumentParser:
    """vLLM's parser, with `spyre-chat` as one more backend and the default."""
    ASYNC_REQUEST_FUNCS.setdefault(BACKEND, spyre_chat)
    if BACKEND not in OPENAI_COMPATIBLE_BACKENDS:
        OPENAI_COMPATIBLE_BACKENDS.append(BACKEND)
    parser = FlexibleArgumentParser(prog="sendnn-bench serve")
    vllm_serve.add_cli_args(parser)
    parser.set_defaults(backend=BACKEND)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse vLLM's flags; an unknown one ends in vLLM's own message and SystemExit."""
    args = build_parser().parse_args(list(argv))
    check(args)
    return args


def run_arguments(args: argparse.Namespace) -> argparse.Namespace:
    """The flags as vLLM gets them for the run; the user's own stay as they are.

    vLLM saves nothing (we do), keeps the per-request columns, and a built-in model finds its
    tokenizer.
    """
    changed = vars(args) | {
        "backend": vllm_backend(args),
        "save_result": False,
        "append_result": False,
        "save_detailed": True,
    }
    if args.tokenizer or args.model:
        changed["tokenizer"] = resolve(args.tokenizer or args.model)
    return argparse.Namespace(**changed)


def check(args: argparse.Namespace) -> None:
    """Find what vLLM would only find after the run, or in a traceback.

    Raises:
        UsageError: a flag that cannot be right.
    """
    for rule in _RULES:
        rule(args)


def _check_pairs(args: argparse.Namespace) -> None:
    for flag, items in (("--metadata", args.metadata), ("--header", args.header)):
        for item in items or []:
            if "=" not in item:
                raise UsageError(f"{flag} {item!r} is not KEY=VALUE.")


def _check_percentiles(args: argparse.Namespace) -> None:
    try:
        good = all(0 <= value <= 100 for value in percentiles_of(args))
    except ValueError:
        good = False
    if not good:
        raise UsageError(
            f"--metric-percentiles {args.metric_percentiles!r} is not a list of numbers from 0 to "
            "100, such as 50,99,100."
        )


def _check_goodput(args: argparse.Namespace) -> None:
    try:
        vllm_serve.check_goodput_args(args)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--goodput: {error}") from error


def _check_rates(args: argparse.Namespace) -> None:
    for flag in ("request_rate", "burstiness"):
        value = getattr(args, flag)
        if not value > 0:
            raise UsageError(f"--{flag.replace('_', '-')} {value:g} is not above 0.")


def _check_plots(args: argparse.Namespace) -> None:
    if args.plot_dataset_stats and not (
        args.save_result or args.append_result or args.plot_timeline
    ):
        raise UsageError(
            "--plot-dataset-stats needs a result file to lie beside: add --save-result."
        )


def _check_result_dir(args: argparse.Namespace) -> None:
    if not (args.save_result or args.append_result or args.plot_timeline):
        return
    name = os.path.join(args.result_dir or "", args.result_filename or "result.json")
    if args.result_filename and Path(name).is_dir():
        raise UsageError(f"the result file {name} is a directory.")
    directory = Path(name).absolute().parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {directory} ({error.strerror}); choose another "
            "--result-dir."
        ) from error


_RULES: tuple[Callable[[argparse.Namespace], None], ...] = (
    _check_pairs,
    _check_percentiles,
    _check_goodput,
    _check_rates,
    _check_plots,
    _check_result_dir,
)


def check_virtual(args: argparse.Namespace) -> None:
    """Find what cannot be done in virtual time.

    Raises:
        UsageError: a backend or a flag that only makes sense in real time.
    """
    if args.profile:
        raise UsageError("--profile measures real time; a simulated server has none to measure.")
    if args.backend not in OPENAI_COMPATIBLE_BACKENDS:
        raise UsageError(
            f"--backend {args.backend} cannot run in virtual time. A simulated server takes "
            f"{', '.join(sorted(OPENAI_COMPATIBLE_BACKENDS))}."
        )
