"""The metrics, one declaration each. Order here is the order of the report.

Keys up to the first comment of "ours" are the field names of sendnn-inference 2.6.3, so that
either client reads either server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sendnn_bench.metrics.spec import Metric, Per, Record, Show, Unit

RECORDER = "server_plugin.sim.recorder.RequestRecord.to_wire"
CLIENT = "sendnn_bench.metrics.builtin"


def _derived(key: str, derive: Callable[[Any], Any]) -> Callable[[Record], Any]:
    """Reader of a metric derived from another field; None where that field is missing."""

    def read(record: Record) -> Any:
        source = record.get(key)
        return None if source is None else derive(source)

    return read


METRICS: tuple[Metric, ...] = (
    Metric(
        key="queued_time_s",
        title="Queue Wait Time",
        label="Queue Wait Time (ms)",
        unit=Unit.SECONDS,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="From the arrival of the request at the API server to the start of its first "
        "prefill chunk.",
        computed=RECORDER,
    ),
    Metric(
        key="num_chunked_prefills",
        title="Chunked Prefill Count",
        label="Num Chunked Prefills",
        unit=Unit.COUNT,
        per=Per.REQUEST,
        show=Show.SECTION,
        total_title="Total prefill chunks processed",
        total_key="spyre_total_prefill_chunks",
        description="Prefill chunks executed for the request; fewer than "
        "ceil(prompt tokens / chunk size) when the prefix cache saved whole chunks.",
        computed=RECORDER,
    ),
    Metric(
        key="was_missing_blocks",
        title="Blocked by Missing KV Blocks",
        unit=Unit.FLAG,
        per=Per.REQUEST,
        show=Show.COLUMN,
        total_title="Requests blocked by missing KV blocks",
        total_key="spyre_num_requests_missing_blocks",
        description="Whether the request was held back at least once because too few KV blocks "
        "were free. A count above 0 means KV cache pressure, not an error.",
        computed=RECORDER,
    ),
    Metric(
        key="chunk_prefill_latencies_s",
        title="Chunked Prefill Latency",
        label="Chunk Prefill Latency (ms)",
        unit=Unit.SECONDS,
        per=Per.CHUNK,
        show=Show.SECTION,
        description="Duration of one prefill chunk. In a step that mixes prefill and decode, the "
        "duration of that step.",
        computed=RECORDER,
    ),
    Metric(
        key="chunk_prefill_start_times_s",
        title="Prefill Chunk Start Times",
        unit=Unit.SECONDS,
        per=Per.CHUNK,
        show=Show.COLUMN,
        description="Start of each prefill chunk on the server's clock (virtual time since the "
        "session began when simulated).",
        computed=RECORDER,
    ),
    Metric(
        key="prefill_elapsed_s",
        title="Prefill Phase Time",
        label="Prefill Phase Time (ms)",
        unit=Unit.SECONDS,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="From the start of the first prefill chunk to the end of the last, which is "
        "when the first token exists.",
        computed=RECORDER,
    ),
    Metric(
        key="prefill_busy_s",
        title="Time Spent Prefilling",
        label="Time Spent Prefilling (ms)",
        unit=Unit.SECONDS,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Sum of the request's prefill chunk latencies.",
        computed=RECORDER,
    ),
    Metric(
        key="prefill_idle_s",
        title="Prefill Phase Idle Time",
        label="Prefill Phase Idle Time (ms)",
        unit=Unit.SECONDS,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Prefill phase time less time spent prefilling: other requests' steps between "
        "this request's chunks. Queue wait is not part of it.",
        computed=RECORDER,
    ),
    Metric(
        key="decode_latencies_s",
        title="Decode Step Latency",
        label="Decode Step Latency (ms)",
        unit=Unit.SECONDS,
        per=Per.DECODE_STEP,
        show=Show.SECTION,
        description="Duration of one decode step of the request. In a step that mixes prefill and "
        "decode, the duration of that step.",
        computed=RECORDER,
    ),
    Metric(
        key="decode_start_times_s",
        title="Decode Step Start Times",
        unit=Unit.SECONDS,
        per=Per.DECODE_STEP,
        show=Show.COLUMN,
        description="Start of each decode step on the server's clock.",
        computed=RECORDER,
    ),
    Metric(
        key="tkvs",
        title="TKV",
        unit=Unit.TOKENS,
        per=Per.STEP,
        show=Show.COLUMN,
        description="Padded length (tkv) of the batch at each step of the request, prefill chunks "
        "first, then decode steps.",
        computed=RECORDER,
    ),
    Metric(
        key="prefix_cache_hit_pct",
        title="Prefix Cache Hit",
        label="Prefix Cache Hit (%)",
        unit=Unit.FRACTION,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Share of the expected prefill chunks, ceil(prompt tokens / chunk size), that "
        "the prefix cache saved. A fraction in the JSON, percent in the report.",
        computed=RECORDER,
    ),
    Metric(
        key="left_padding_blocks",
        title="Left Padding Blocks",
        label="Left Padding Blocks",
        unit=Unit.BLOCKS,
        per=Per.DECODE_STEP,
        show=Show.SECTION,
        description="KV blocks of left padding that the request carries in a decode step because "
        "it is shorter than the longest of the batch: "
        "ceil(tkv / block size) - ceil(computed tokens / block size).",
        computed=RECORDER,
    ),
    Metric(
        key="pause_latencies_s",
        title="Pause Latency",
        label="Pause Latency (ms)",
        unit=Unit.SECONDS,
        per=Per.PAUSE,
        show=Show.SECTION,
        description="Duration of one pause: the scheduler took the request out of the decode "
        "batch because the batch would have exceeded the tkv limit. A pause still open when the "
        "request ends is not counted.",
        computed=RECORDER,
    ),
    Metric(
        key="pause_start_times_s",
        title="Pause Start Times",
        unit=Unit.SECONDS,
        per=Per.PAUSE,
        show=Show.COLUMN,
        description="Start of each pause on the server's clock, one still open at the end "
        "included.",
        computed=RECORDER,
    ),
    Metric(
        key="num_pauses",
        title="Number of Pauses",
        label="Num Pauses",
        unit=Unit.COUNT,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Finished pauses of the request, 0 included.",
        computed=CLIENT,
        value=_derived("pause_latencies_s", len),
    ),
    Metric(
        key="total_pause_s",
        title="Total Time Paused",
        label="Total Time Paused (ms)",
        unit=Unit.SECONDS,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Sum of the request's pauses, 0 included.",
        computed=CLIENT,
        value=_derived("pause_latencies_s", lambda pauses: float(sum(pauses))),
    ),
    # From here on ours: the simulated server adds them, real hardware does not send them.
    Metric(
        key="arrival_ns",
        title="Arrival",
        unit=Unit.NANOSECONDS,
        per=Per.REQUEST,
        show=Show.COLUMN,
        description="Virtual time of arrival since the session began.",
        computed=RECORDER,
    ),
    Metric(
        key="first_scheduled_ns",
        title="First Scheduled",
        unit=Unit.NANOSECONDS,
        per=Per.REQUEST,
        show=Show.COLUMN,
        description="Virtual start of the first step the request took part in.",
        computed=RECORDER,
    ),
    Metric(
        key="token_times_ns",
        title="Token Times",
        unit=Unit.NANOSECONDS,
        per=Per.TOKEN,
        show=Show.COLUMN,
        description="Virtual time at which each output token existed: the end of its step.",
        computed=RECORDER,
    ),
    Metric(
        key="finish_ns",
        title="Finish",
        unit=Unit.NANOSECONDS,
        per=Per.REQUEST,
        show=Show.COLUMN,
        description="Virtual time at which the request ended: the end of its last step.",
        computed=RECORDER,
    ),
    Metric(
        key="injected_output_tokens",
        title="Injected Output Length",
        unit=Unit.TOKENS,
        per=Per.REQUEST,
        show=Show.COLUMN,
        description="Output length at which the mocked model was told to stop, null where none "
        "was injected and max_tokens decides.",
        computed=RECORDER,
    ),
    Metric(
        key="injected_output_source",
        title="Injected Output Length Source",
        unit=Unit.TEXT,
        per=Per.REQUEST,
        show=Show.COLUMN,
        description="Where the injected output length came from, such as `dataset`; `max_tokens` "
        "where none was injected.",
        computed=RECORDER,
    ),
    Metric(
        key="chunk_tokens",
        title="Prefill Chunk Tokens",
        unit=Unit.TOKENS,
        per=Per.CHUNK,
        show=Show.COLUMN,
        description="Prompt tokens computed in each prefill chunk.",
        computed=RECORDER,
    ),
    Metric(
        key="chunk_context_tokens",
        title="Prefill Chunk Context",
        unit=Unit.TOKENS,
        per=Per.CHUNK,
        show=Show.COLUMN,
        description="Tokens of the request already in the KV cache when the chunk began.",
        computed=RECORDER,
    ),
    Metric(
        key="batch_sizes",
        title="Batch Size",
        unit=Unit.COUNT,
        per=Per.STEP,
        show=Show.COLUMN,
        description="Requests in the batch at each step of the request, prefill chunks first, "
        "then decode steps.",
        computed=RECORDER,
    ),
    Metric(
        key="kv_blocks_in_use",
        title="KV Blocks in Use",
        unit=Unit.BLOCKS,
        per=Per.STEP,
        show=Show.COLUMN,
        description="KV blocks taken by all requests at each step of the request, prefill chunks "
        "first, then decode steps.",
        computed=RECORDER,
    ),
    Metric(
        key="scheduler_steps_waited",
        title="Scheduler Steps Waited",
        label="Scheduler Steps Waited",
        unit=Unit.COUNT,
        per=Per.REQUEST,
        show=Show.SECTION,
        description="Engine steps that ran between the arrival of the request and its first own "
        "step.",
        computed=RECORDER,
    ),
    Metric(
        key="num_preemptions",
        title="Preemptions",
        unit=Unit.COUNT,
        per=Per.REQUEST,
        show=Show.COLUMN,
        total_title="Total preemptions",
        total_key="spyre_total_preemptions",
        description="Times the scheduler took the request's KV blocks away, so that its tokens had "
        "to be computed again. Above 0 means that the KV cache is too small for the load. The "
        "Spyre scheduler pauses instead.",
        computed=RECORDER,
    ),
)
