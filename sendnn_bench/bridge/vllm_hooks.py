"""Every name in vLLM that a run replaces, in one table, and what takes its place."""

from __future__ import annotations

import argparse
import builtins
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from vllm.benchmarks import serve as vllm_serve

from sendnn_bench.bridge.backend import Backend
from sendnn_bench.bridge.bench_run import BenchRun
from sendnn_bench.bridge.hooks import Hook
from sendnn_bench.bridge.progress import bar_class
from sendnn_bench.bridge.session import SimSession
from sendnn_bench.bridge.virtual_time import VirtualClock, asyncio_stand_in, time_stand_in

SERVE = "vllm.benchmarks.serve"
REQUESTS = "vllm.benchmarks.lib.endpoint_request_func"
READY = "vllm.benchmarks.lib.ready_checker"

ANNOUNCED = 64
"""Requests of an open loop that are sent ahead of the server's clock."""


def run_hooks(run: BenchRun, backend: Backend, sim: SimSession | None, verbose: bool) -> list[Hook]:
    """Every name of vLLM's that is replaced during a run."""
    hooks = [
        Hook(SERVE, "calculate_metrics", _keep_outputs(run)),
        Hook(SERVE, "compute_result_filename", _keep_file_name(run)),
        Hook(SERVE, "get_request", _note_main_run(run, backend, sim)),
    ]
    if not verbose:
        hooks.append(Hook(SERVE, "print", _print_but_arguments, shadows_builtin=True))
    if sim is not None:
        hooks += [
            Hook(SERVE, "benchmark", _open_first(sim)),
            Hook(SERVE, "tqdm", bar_class(sim.elapsed_s)),
            *_time_hooks(sim.clock),
        ]
    return hooks


def _time_hooks(clock: VirtualClock) -> list[Hook]:
    stand_ins = (("time", time_stand_in(clock)), ("asyncio", asyncio_stand_in(clock)))
    hooks = [Hook(module, name, value) for module in (SERVE, READY) for name, value in stand_ins]
    return [*hooks, Hook(REQUESTS, "time", time_stand_in(clock))]


def _keep_outputs(run: BenchRun) -> Callable[..., Any]:
    original = vllm_serve.calculate_metrics

    def calculate_metrics(*args: Any, **kwargs: Any) -> Any:
        run.outputs = kwargs["outputs"]
        if kwargs["dur_s"] == 0:
            kwargs["dur_s"] = float("inf")  # every request was rejected at once: all rates are 0
        return original(*args, **kwargs)

    return calculate_metrics


def _keep_file_name(run: BenchRun) -> Callable[..., Any]:
    original = vllm_serve.compute_result_filename

    def compute_result_filename(_args: Any, *args: Any, **kwargs: Any) -> str | None:
        name: str | None = original(run.args, *args, **kwargs)
        run.file_name = None if name is None else Path(name)
        return name

    return compute_result_filename


def _note_main_run(run: BenchRun, backend: Backend, sim: SimSession | None) -> Callable[..., Any]:
    original = vllm_serve.get_request

    def get_request(*args: Any, **kwargs: Any) -> Any:
        backend.main_run = True
        if sim is not None and is_open_loop(run.args):
            sim.announce = ANNOUNCED
        return original(*args, **kwargs)

    return get_request


def is_open_loop(args: argparse.Namespace) -> bool:
    """True where no answer of the server changes when a request is sent, or whether it is."""
    return args.max_concurrency is None and not args.probe_request_rate


def _open_first(sim: SimSession) -> Callable[..., Coroutine[Any, Any, Any]]:
    original = vllm_serve.benchmark

    async def benchmark(*args: Any, **kwargs: Any) -> Any:
        await sim.open()
        return await original(*args, **kwargs)

    return benchmark


def _print_but_arguments(*values: Any, **kwargs: Any) -> None:
    """vLLM begins by printing all of its arguments; -v shows them."""
    if not (len(values) == 1 and isinstance(values[0], argparse.Namespace)):
        builtins.print(*values, **kwargs)  # noqa: T201 - on vLLM's behalf
