#!/usr/bin/env python3
"""Verify that a metric is complete: declared, computed, printed, described, documented, tested.

Usage: check.py NAME [NAME ...]   (the metric's key, such as queued_time_s)
       check.py --all
Exit code 1 when a place is missing; each is named.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from sendnn_bench.metrics import METRICS, Metric, Per, Record, Show  # noqa: E402
from sendnn_bench.report import console, describe  # noqa: E402
from sendnn_bench.save import columns  # noqa: E402
from server_plugin.sim.recorder import PartInStep, Recorder, RequestRecord, Step  # noqa: E402

TESTS = ("metrics", "server")
DOCS_PAGE = ROOT / "docs" / "metrics.md"


def sample_record() -> Record:
    """A request that went through everything once, as the server would send it."""
    recorder = Recorder(block_size=64)
    request = RequestRecord("sample", arrival_ns=0, arrival_step=0, prompt_tokens=600)
    request.injected_output_tokens = 3
    request.injected_output_source = "dataset"
    recorder.arrive(request)
    parts = [
        PartInStep("sample", 128, 0, decode=False),
        PartInStep("sample", 472, 128, decode=False),
        PartInStep("sample", 1, 600, decode=True),
        PartInStep("sample", 1, 601, decode=True),
    ]
    for index, part in enumerate(parts):
        step = Step(index, index * 100, index * 100 + 100, (part,), tkv=640, kv_blocks_in_use=9)
        recorder.step(step, {"sample": int(index > 0)})
    request.pause(250)
    request.resume(300)
    recorder.finish("sample", 400, "stop")
    return request.to_wire(chunk_size_tokens=512)


def declared(metric: Metric, _record: Record) -> str | None:
    """Title, description and a place of computation are there."""
    if len(metric.description.split()) < 4 or not metric.title:
        return "its declaration lacks a title or a description of a sentence"
    module, _, name = metric.computed.rpartition(".")
    while module:
        try:
            found = importlib.import_module(module)
        except ImportError:
            module, _, outer = module.rpartition(".")
            name = f"{outer}.{name}"
            continue
        for part in name.split("."):
            found = getattr(found, part, None)
        return None if found is not None else f"computed={metric.computed!r} names nothing"
    return f"computed={metric.computed!r} names nothing"


def computed(metric: Metric, record: Record) -> str | None:
    """A request that went through everything has a value of the declared shape."""
    value = metric.read(record)
    if value is None:
        return (
            "a complete record gives no value: neither RequestRecord.to_wire sends the key nor the "
            "declaration derives it"
        )
    if isinstance(value, list) is (metric.per is Per.REQUEST):
        return f"per={metric.per.name}, but the value is a {type(value).__name__}"
    return None


def printed(metric: Metric, record: Record) -> str | None:
    """The report has its line, and the detailed JSON its column."""
    if metric.column not in columns([record]):
        return f"the detailed JSON has no column {metric.column}"
    report = console.render([record], [99.0])
    if metric.show is Show.SECTION and f"Mean {metric.printed_label}:" not in report:
        return f"the report has no line 'Mean {metric.printed_label}:'"
    return None


def described(metric: Metric, _record: Record) -> str | None:
    """`describe-metrics` tells of it."""
    text = re.sub(r"\s+", " ", describe.render_text())
    return None if metric.description in text else "describe-metrics does not show its description"


def documented(metric: Metric, _record: Record) -> str | None:
    """The docs page tells of it."""
    if metric.description in DOCS_PAGE.read_text(encoding="utf-8"):
        return None
    return f"{DOCS_PAGE.relative_to(ROOT)} is not current; run scripts/make_docs.py"


def tested(metric: Metric, _record: Record) -> str | None:
    """A unit test of what computes metrics names its key."""
    key = re.compile(rf"[\"'](spyre_)?{re.escape(metric.key)}[\"']")
    tests = (path for room in TESTS for path in (ROOT / "tests" / room).glob("test_*.py"))
    if any(key.search(path.read_text(encoding="utf-8")) for path in tests):
        return None
    return f"no test in tests/{{{','.join(TESTS)}}} names the key {metric.key!r}"


PLACES: tuple[Callable[[Metric, Record], str | None], ...] = (
    declared,
    computed,
    printed,
    described,
    documented,
    tested,
)


def missing(metric: Metric) -> list[str]:
    """What is missing, each with the name of its place."""
    record = sample_record()
    found = [(place.__name__, place(metric, record)) for place in PLACES]
    return [f"not {place}: {problem}" for place, problem in found if problem]


def main(argv: Sequence[str] | None = None) -> int:
    """Check the metrics named; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="key of a metric")
    parser.add_argument("--all", action="store_true", help="every metric")
    arguments = parser.parse_args(argv)
    by_key = {metric.key: metric for metric in METRICS}
    names = list(by_key) if arguments.all else arguments.names
    if not names:
        parser.error("name a metric, or --all")
    failed = False
    for name in names:
        if name not in by_key:
            problems = ["not declared: sendnn_bench/metrics/builtin.py has no metric of that key"]
        else:
            problems = missing(by_key[name])
        failed |= bool(problems)
        print("\n  ".join([f"{name}: {'incomplete' if problems else 'complete'}", *problems]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
