"""The table of `vllm bench serve`, printed again from a saved result.

The lines, their order and their format are vLLM's, so that what parses one parses the other. A
line whose number the result does not hold is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sendnn_bench.report.compare_samples import number
from sendnn_bench.report.console import WIDTH, block
from sendnn_bench.report.overview import Overview

Data = Mapping[str, Any]

COUNT = "<10"
FLOAT = "<10.2f"


def _always(_data: Data) -> bool:
    return True


def _with_tokenizer(data: Data) -> bool:
    """vLLM counts no output tokens without a tokenizer."""
    return data.get("tokenizer_id") is not None


def _autoregressive(data: Data) -> bool:
    return "diffusion_steps_per_canvas" not in data


@dataclass(frozen=True)
class Line:
    """A printed line: its text, the key of its number, how that is printed, and when."""

    text: str
    key: str
    form: str = FLOAT
    shown: Callable[[Data], bool] = _always


HEAD = (
    Line("Successful requests:", "completed", COUNT),
    Line("Failed requests:", "failed", COUNT),
    Line("Maximum request concurrency:", "max_concurrency", COUNT),
    Line("Request rate configured (RPS):", "request_rate"),
    Line("Benchmark duration (s):", "duration"),
    Line("Total input tokens:", "total_input_tokens", COUNT),
    Line("Total generated tokens:", "total_output_tokens", COUNT, _with_tokenizer),
    Line("Request throughput (req/s):", "request_throughput"),
    Line("Request goodput (req/s):", "request_goodput"),
    Line("Output token throughput (tok/s):", "output_throughput", FLOAT, _with_tokenizer),
    Line("Peak output token throughput (tok/s):", "max_output_tokens_per_s", shown=_with_tokenizer),
    Line("Peak concurrent requests:", "max_concurrent_requests"),
    Line("RTFx (Inverse Real-Time Factor):", "rtfx", shown=lambda data: data["rtfx"] > 0),
    Line("Total token throughput (tok/s):", "total_token_throughput", shown=_with_tokenizer),
)

PROBES = (
    Line("Probe requests completed:", "probe_completed", COUNT),
    Line("Probe requests failed:", "probe_failed", COUNT),
    Line("Median probe E2EL (ms):", "probe_median_e2el_ms"),
    Line("P99 probe E2EL (ms):", "probe_p99_e2el_ms"),
    Line("Max probe E2EL (ms):", "probe_max_e2el_ms"),
)

DIFFUSION = (
    Line("Committed throughput (tok/s):", "diffusion_committed_throughput"),
    Line("Denoising steps per canvas:", "diffusion_steps_per_canvas"),
    Line("Committed per denoising step:", "diffusion_committed_per_step"),
    Line("Committed tokens:", "diffusion_committed_tokens", COUNT),
    Line("Denoising steps:", "diffusion_denoising_steps", COUNT),
    Line("Canvas positions evaluated:", "diffusion_canvas_positions", COUNT),
)

SPECULATION = (
    Line("Acceptance rate (%):", "spec_decode_acceptance_rate", FLOAT, _autoregressive),
    Line("Acceptance length:", "spec_decode_acceptance_length", FLOAT, _autoregressive),
    Line("Drafts:", "spec_decode_num_drafts", COUNT, _autoregressive),
    Line("Draft tokens:", "spec_decode_draft_tokens", COUNT, _autoregressive),
    Line("Accepted tokens:", "spec_decode_accepted_tokens", COUNT, _autoregressive),
)


def render_vllm(view: Overview) -> str:
    """The whole table, without a newline at its end."""
    data = view.result.data
    parts = [f"{' Serving Benchmark Result ':=^{WIDTH}}", *_lines(HEAD, data)]
    parts += _titled("Probe Requests", list(_lines(PROBES, data)))
    for metric, summary in view.vllm:
        parts += block(metric.title, metric.label, summary)
    parts += _titled("Diffusion Decoding", list(_lines(DIFFUSION, data)))
    parts += _titled("Speculative Decoding", [*_lines(SPECULATION, data), *_positions(data)])
    return "\n".join([*parts, "=" * WIDTH])


def _lines(lines: tuple[Line, ...], data: Data) -> Iterator[str]:
    for line in lines:
        value = data.get(line.key)
        if number(value) is not None and line.shown(data):
            yield f"{line.text:<40} {value:{line.form}}"


def _titled(title: str, lines: list[str]) -> list[str]:
    return [f"{title:-^{WIDTH}}", *lines] if lines else []


def _positions(data: Data) -> list[str]:
    rates = data.get("spec_decode_per_position_acceptance_rates")
    if not rates or not isinstance(rates, list) or not _autoregressive(data):
        return []
    percent = [number(rate) for rate in rates]
    return [
        "Per-position acceptance (%):",
        *(
            f"{f'  Position {index}:':<40} {100 * rate:<10.2f}"
            for index, rate in enumerate(percent)
            if rate is not None
        ),
    ]
