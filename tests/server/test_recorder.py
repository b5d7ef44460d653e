"""Records against values worked out by hand."""

from __future__ import annotations

import pytest

from sendnn_bench.metrics import METRICS
from server_plugin.sim.metrics_file import line
from server_plugin.sim.recorder import (
    PartInStep,
    Recorder,
    RequestRecord,
    Step,
    left_padding_blocks,
)

MS = 1_000_000


def two_chunks_and_two_decodes() -> RequestRecord:
    """600 prompt tokens in chunks of 128 and 472 from 40 ms on; another's step in between."""
    recorder = Recorder(block_size=64)
    recorder.steps = 4
    recorder.arrive(RequestRecord("a", arrival_ns=30 * MS, arrival_step=3, prompt_tokens=600))

    def step(start_ms: int, end_ms: int, tkv: int, *parts: PartInStep, **tokens: int) -> None:
        index = recorder.steps
        done = Step(index, start_ms * MS, end_ms * MS, parts, tkv, kv_blocks_in_use=index)
        recorder.step(done, tokens)

    step(40, 140, 600, PartInStep("a", 128, 0, decode=False))
    step(140, 190, 900, PartInStep("b", 1, 899, decode=True), b=1)
    step(190, 290, 600, PartInStep("a", 472, 128, decode=False), a=1)
    both = (PartInStep("b", 1, 900, decode=True), PartInStep("a", 1, 600, decode=True))
    step(290, 340, 921, *both, a=1, b=1)
    step(340, 390, 602, PartInStep("a", 1, 601, decode=True), a=1)
    record = recorder.finish("a", 390 * MS, "stop")
    assert record is not None
    assert recorder.finish("a", 390 * MS, "stop") is None
    return record


def test_the_wire_form_of_a_request() -> None:
    wire = two_chunks_and_two_decodes().to_wire(chunk_size_tokens=512)
    expected = {
        "queued_time_s": 0.01,
        "num_chunked_prefills": 2,
        "chunk_prefill_latencies_s": [0.1, 0.1],
        "chunk_prefill_start_times_s": [0.04, 0.19],
        "decode_latencies_s": [0.05, 0.05],
        "decode_start_times_s": [0.29, 0.34],
        "tkvs": [600, 600, 921, 602],
        "prefill_elapsed_s": 0.25,
        "prefill_busy_s": 0.2,
        "prefill_idle_s": 0.05,
        "prefix_cache_hit_pct": 0.0,
        "left_padding_blocks": [5, 0],
        "token_times_ns": [290 * MS, 340 * MS, 390 * MS],
        "first_scheduled_ns": 40 * MS,
        "finish_ns": 390 * MS,
        "batch_sizes": [1, 1, 2, 1],
        "kv_blocks_in_use": [4, 6, 7, 8],
        "chunk_tokens": [128, 472],
        "chunk_context_tokens": [0, 128],
        "scheduler_steps_waited": 1,
        "injected_output_source": "max_tokens",
        "num_preemptions": 0,
        "arrival_ns": 30 * MS,
        "was_missing_blocks": False,
        "injected_output_tokens": None,
    }
    assert {key: wire[key] for key in expected} == expected


def test_every_declared_wire_key_is_sent() -> None:
    wire = two_chunks_and_two_decodes().to_wire(512)
    declared = {metric.key for metric in METRICS if metric.value is None}
    assert declared <= set(wire)


def test_saved_chunks_show_as_prefix_cache_hit() -> None:
    record = two_chunks_and_two_decodes()
    record.prompt_tokens = 4 * 512
    assert record.to_wire(512)["prefix_cache_hit_pct"] == 0.5


def test_preemptions_are_counted() -> None:
    record = RequestRecord("a", 0, 0, 10)
    record.preemptions = 2
    assert record.to_wire(512)["num_preemptions"] == 2


def test_an_open_pause_has_a_start_and_no_latency() -> None:
    record = RequestRecord("a", 0, 0, 10)
    record.pause(100 * MS)
    record.resume(150 * MS)
    record.pause(300 * MS)
    wire = record.to_wire(512)
    assert wire["pause_latencies_s"] == [0.05]
    assert wire["pause_start_times_s"] == [0.1, 0.3]


def test_a_request_that_never_ran_has_no_times() -> None:
    wire = RequestRecord("a", 5, 0, 10).to_wire(512)
    assert wire["queued_time_s"] == 0.0
    assert wire["first_scheduled_ns"] is None
    assert wire["scheduler_steps_waited"] is None


@pytest.mark.parametrize(
    ("tkv", "context", "blocks"),
    [(64, 63, 0), (65, 64, 0), (128, 63, 1), (1000, 0, 15), (64, 64, 0)],
)
def test_left_padding(tkv: int, context: int, blocks: int) -> None:
    assert left_padding_blocks(tkv, context + 1, 64) == blocks


def test_the_metrics_line_s_durations_add_up() -> None:
    entry = line(two_chunks_and_two_decodes())
    assert entry["timestamp"] == "1970-01-01T00:00:00.390"
    assert entry["e2e_latency_seconds"] == 0.36
    assert entry["queued_time_seconds"] == 0.01
    assert entry["prefill_time_seconds"] == 0.25
    assert entry["decode_time_seconds"] == 0.1
    assert entry["inference_time_seconds"] == 0.35
    assert entry["prefill_interrupt_seconds"] == 0.0
    assert entry["mean_time_per_output_token_seconds"] == 0.05
