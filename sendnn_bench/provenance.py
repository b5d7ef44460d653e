"""What a result says about its run beside the numbers: the `sendnn` block, names, partial runs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sendnn_bench import __version__
from sendnn_bench.bridge.backend import asked_tokens_of, record_of
from sendnn_bench.bridge.bench_run import BenchRun
from sendnn_bench.report.findings import HOST_OVERHEAD, RunFacts, server_tokens
from sendnn_bench.results import SCHEMA_VERSION

SECRET = {"authorization", "proxy-authorization", "api-key", "x-api-key", "cookie"}
"""Headers that are left out of the recorded command line."""


def describe_run(run: BenchRun, argv: Sequence[str]) -> dict[str, Any]:
    """The `sendnn` block of the result."""
    info = run.info
    block: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "partial": False,
        "mode": "real" if info is None else info.clock,
        "command": ["sendnn-bench", "serve", *without_secrets(argv)],
        "versions": {
            "sendnn-bench": __version__,
            **{name: _version(name) for name in ("vllm", "sendnn-inference")},
            "server": {} if info is None else info.versions,
        },
    }
    if info is not None:
        block |= {
            "target": info.target,
            "cost_model": info.cost_model,
            "settings": info.settings,
            "limits": info.limits,
        }
    if run.virtual:
        block["start"] = run.opened.start if run.opened else None
        block["session"], host = _split_host(run)
    wall: dict[str, Any] = {"started": run.started, "duration_s": run.wall_s}
    if run.virtual:
        wall["engine"] = host
    else:
        wall["clock_anchor"] = run.anchor
    if run.pace is not None:
        wall["pace"] = asdict(run.pace)
    return block | {"wall": wall}


def without_secrets(argv: Sequence[str]) -> list[str]:
    """A command line without the headers that carry keys: results are passed around."""
    return [
        word
        for word in argv
        if word.removeprefix("--header=").partition("=")[0].lower() not in SECRET
    ]


def _split_host(run: BenchRun) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The session's counters, and apart from them what varies with the machine."""
    if run.closed is None:
        return None, {}
    session = asdict(run.closed)
    return session, session.pop("host")


def named_by_user(run: BenchRun) -> dict[str, Any]:
    """vLLM's result under the names that the user gave: backend, and a built-in model's."""
    result = dict(run.result or {})
    result["endpoint_type"] = result["backend"] = run.args.backend
    if result.get("tokenizer_id") is not None:
        result["tokenizer_id"] = run.args.tokenizer or result["model_id"]
    return result


def facts_of(run: BenchRun) -> RunFacts:
    """What `findings` looks at, for a run that reached its end."""
    outputs, result = run.outputs or [], run.result or {}
    return RunFacts(
        errors=[output.error if not output.success else "" for output in outputs],
        output_tokens=[int(output.output_tokens or 0) for output in outputs],
        asked_tokens=[asked_tokens_of(output) for output in outputs],
        percentiles=run.percentiles,
        rate=run.args.request_rate,
        throughput=float(result.get("request_throughput") or 0),
        foreign_requests=run.closed.foreign_requests if run.closed else 0,
        warm=run.opened is not None and run.opened.start == "warm",
        steps=run.closed.steps if run.closed else 0,
        outside_steps=run.closed.outside_steps if run.closed else 0,
        clock=run.info.clock if run.info else "real",
        host_overhead=str(run.info.settings.get(HOST_OVERHEAD, "off")) if run.info else "off",
        server_tokens=[server_tokens(record_of(output)) for output in outputs],
        pace=run.pace,
    )


def partial_head(run: BenchRun) -> dict[str, Any]:
    """The keys that vLLM would have put before its numbers, for a run that did not get there."""
    args = run.args
    return {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": args.backend,
        "backend": args.backend,
        "label": args.label,
        "model_id": args.model,
        "tokenizer_id": args.tokenizer or args.model,
        "num_prompts": args.num_prompts,
        **dict(item.split("=", 1) for item in args.metadata or []),
        "request_rate": args.request_rate if args.request_rate < float("inf") else "inf",
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
