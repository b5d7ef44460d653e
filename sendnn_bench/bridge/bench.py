"""Run vLLM's own `main_async` with our backend, in real or in virtual time."""

from __future__ import annotations

import argparse
import asyncio
import time
import traceback
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from vllm.benchmarks import serve as vllm_serve
from vllm.benchmarks.lib.endpoint_request_func import (
    ASYNC_REQUEST_FUNCS,
    OPENAI_COMPATIBLE_BACKENDS,
)

from sendnn_bench.bridge import arguments
from sendnn_bench.bridge.backend import BACKEND, Backend
from sendnn_bench.bridge.bench_run import BenchRun
from sendnn_bench.bridge.control import Control
from sendnn_bench.bridge.hooks import applied, replaced_items
from sendnn_bench.bridge.http import Server
from sendnn_bench.bridge.session import SimSession
from sendnn_bench.bridge.vllm_hooks import run_hooks
from sendnn_bench.errors import BenchError, Interrupted, SimError, UsageError
from sendnn_bench.protocol import ServerInfo

CLOSE_TIMEOUT_S = 10.0

USER_FAULTS = (
    ValueError,
    AssertionError,
    OSError,
    NotImplementedError,
    argparse.ArgumentTypeError,
)
"""What vLLM raises for flags, data sets and tokenizers that cannot be right."""


def run_bench(
    args: argparse.Namespace,
    server: Server,
    info: ServerInfo | None,
    *,
    warm: bool,
    verbose: bool,
    watchdog_s: float,
) -> BenchRun:
    """Run the benchmark; errors of the run are in the answer, with what was measured.

    Raises:
        UsageError: the flags ask for what virtual time cannot give.
    """
    run = BenchRun(args, info)
    if run.virtual:
        arguments.check_virtual(args)
    begin = time.monotonic()
    asyncio.run(_run(run, server, warm=warm, verbose=verbose, watchdog_s=watchdog_s))
    run.wall_s = time.monotonic() - begin
    return run


def save_pytorch_format(run: BenchRun) -> None:
    """vLLM's additional file, which it writes where SAVE_TO_PYTORCH_BENCHMARK_FORMAT is set."""
    vllm_serve.save_to_pytorch_benchmark_format(run.args, run.result, str(run.file_name))


def result_name(args: argparse.Namespace, always: bool = False) -> Path | None:
    """The name that vLLM would give to the result now; None where none was asked for."""
    now = datetime.now().strftime("%Y%m%d-%H%M%S")
    asked = argparse.Namespace(**vars(args) | ({"save_result": True} if always else {}))
    name = vllm_serve.compute_result_filename(asked, args.model or "model", args.label, now)
    return None if name is None else Path(name)


async def _run(
    run: BenchRun, server: Server, *, warm: bool, verbose: bool, watchdog_s: float
) -> None:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=server.connector(), timeout=timeout, trust_env=True
    ) as http:
        control = Control(http, server, watchdog_s)
        sim = SimSession(control, warm, watchdog_s) if run.virtual else None
        backend = Backend(server, http, simulated=run.info is not None, sim=sim)
        hooks = run_hooks(run, backend, sim, verbose)
        before = await control.pace() if run.paced else None
        with applied(hooks), replaced_items(ASYNC_REQUEST_FUNCS, _wrapped_backends(backend)):
            await _drive(run, backend, sim, verbose)
        run.sent = backend.sent
        await _close(run, backend, sim)
        after = await control.pace() if before else None
        run.pace = after.since(before) if before and after else None


async def _drive(run: BenchRun, backend: Backend, sim: SimSession | None, verbose: bool) -> None:
    """Run vLLM's main beside whatever can end it early: the grant loop, or the server's death."""
    run_args = arguments.run_arguments(run.args)
    main = asyncio.create_task(vllm_serve.main_async(run_args))
    guard: asyncio.Task[None] = asyncio.create_task(_guard(backend, sim))
    try:
        await asyncio.wait({main, guard}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            run.result = main.result()
        else:
            guard.result()
    except asyncio.CancelledError:
        run.error = Interrupted("interrupted.")
    except BenchError as error:
        run.error = error
    except Exception as error:  # vLLM's: shown as one message, with its traceback on request
        if verbose:
            traceback.print_exc()
        run.error = _as_bench_error(error)
    finally:
        await _cancel_all()
    if run.result is None:
        ended = sorted(backend.measured, key=lambda measured: measured.order)
        run.outputs = [measured.output for measured in ended]


async def _guard(backend: Backend, sim: SimSession | None) -> None:
    """Ends, with its error, when the run cannot go on."""
    if sim is not None:
        await sim.run()
    raise await backend.died


async def _cancel_all() -> None:
    """End every task but this one: vLLM's requests outlive its main when that is cancelled."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def _close(run: BenchRun, backend: Backend, sim: SimSession | None) -> None:
    for session in backend.vllm_sessions:
        await session.close()
    if sim is None:
        return
    run.opened = sim.opened
    run.virtual_s = sim.elapsed_s()
    try:
        await asyncio.wait_for(sim.close(), CLOSE_TIMEOUT_S)
    except BenchError as error:
        run.error = run.error or error
    except TimeoutError:
        run.error = run.error or SimError("the simulated server does not end its session.")
    run.closed = sim.closed


def _as_bench_error(error: Exception) -> BenchError:
    message = str(error) or type(error).__name__
    if isinstance(error, USER_FAULTS):
        return UsageError(message)
    return BenchError(
        f"vLLM's benchmark failed with {type(error).__name__}: {message}. -v shows where."
    )


def _wrapped_backends(backend: Backend) -> dict[str, Any]:
    return {
        name: backend.wrap(ASYNC_REQUEST_FUNCS[name])
        for name in OPENAI_COMPATIBLE_BACKENDS
        if name != BACKEND
    }
