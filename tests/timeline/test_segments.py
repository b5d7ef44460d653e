"""Segments of a request tile its life, and say what the timestamps say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.report.timeline.segments import (
    Kind,
    Life,
    Segment,
    arrival_s,
    client_life,
    has_server_times,
    server_life,
)
from sendnn_bench.results import RequestRow, Result, load
from tests.timeline import runs

MS = 1_000_000


def assert_tiles(life: Life) -> None:
    """Each segment begins where the one before ended, from arrival to finish."""
    cursor = life.arrival_ns
    for segment in life.segments:
        assert segment.start_ns == cursor
        assert segment.end_ns >= segment.start_ns
        cursor = segment.end_ns
    assert cursor == life.finish_ns


def record_of(
    arrival_ns: int,
    finish_ns: int | None,
    chunks: list[tuple[int, int]],
    decodes: list[tuple[int, int]],
    pauses: list[tuple[int, int | None]] = (),  # type: ignore[assignment]
) -> dict[str, Any]:
    """A record from (start, end) pairs in ns; an end of None is a pause that stayed open."""
    pairs = {"chunk_prefill": chunks, "decode": decodes, "pause": pauses}
    record: dict[str, Any] = {"arrival_ns": arrival_ns, "finish_ns": finish_ns}
    for name, spans in pairs.items():
        closed = [(start, end) for start, end in spans if end is not None]
        record[f"{name}_start_times_s"] = [start / 1e9 for start, _ in spans]
        record[f"{name}_latencies_s"] = [(end - start) / 1e9 for start, end in closed]
    return record


def test_every_kind_of_segment_of_a_request_worked_out_by_hand():
    record = record_of(
        arrival_ns=5 * MS,
        finish_ns=400 * MS,
        chunks=[(10 * MS, 110 * MS), (160 * MS, 260 * MS)],
        decodes=[(270 * MS, 300 * MS), (360 * MS, 390 * MS)],
        pauses=[(310 * MS, 350 * MS)],
    )
    expected = [
        (Kind.QUEUE, 5, 10),
        (Kind.PREFILL, 10, 110),
        (Kind.WAIT_PREFILL, 110, 160),
        (Kind.PREFILL, 160, 260),
        (Kind.WAIT_DECODE, 260, 270),
        (Kind.DECODE, 270, 300),
        (Kind.WAIT_DECODE, 300, 310),
        (Kind.PAUSE, 310, 350),
        (Kind.WAIT_DECODE, 350, 360),
        (Kind.DECODE, 360, 390),
        (Kind.WAIT_END, 390, 400),
    ]
    life = server_life(record, base_s=0.0)
    assert life.segments == [Segment(kind, a * MS, b * MS) for kind, a, b in expected]
    assert life.clipped_ns == 0


def test_a_gap_of_one_nanosecond_is_kept():
    record = record_of(0, 201, [(0, 100)], [(101, 201)])
    assert server_life(record, 0.0).segments[1] == (Kind.WAIT_DECODE, 100, 101)


def test_prefill_again_after_preemption_is_waited_for_as_prefill():
    record = record_of(0, 500, [(0, 100), (300, 400)], [(100, 200), (400, 500)])
    kinds = [segment.kind for segment in server_life(record, 0.0).segments]
    assert kinds == [Kind.PREFILL, Kind.DECODE, Kind.WAIT_PREFILL, Kind.PREFILL, Kind.DECODE]


def test_a_pause_still_open_at_the_end_lasts_until_the_finish():
    record = record_of(0, 500, [(0, 100)], [(100, 200)], [(200, None)])
    assert server_life(record, 0.0).segments[-1] == (Kind.PAUSE, 200, 500)


def test_a_request_that_never_ran_only_queued():
    life = server_life(record_of(7, 90, [], []), 0.0)
    assert life.segments == [(Kind.QUEUE, 7, 90)]


def test_overlapping_steps_are_clipped_and_counted():
    record = record_of(0, 40_000, [(0, 20_000)], [(10_000, 40_000)])
    life = server_life(record, 0.0)
    assert_tiles(life)
    assert life.clipped_ns == 10_000


def test_lists_of_unequal_length_are_an_error():
    record = record_of(0, 500, [(0, 100)], [(100, 200)])
    record["decode_latencies_s"] = []
    with pytest.raises(ValueError, match="1 decode start times, but 0 latencies"):
        server_life(record, 0.0)


def test_upstream_s_record_is_placed_by_its_queue_wait():
    record = record_of(0, None, [(2_000_000_000, 3_000_000_000)], [])
    del record["arrival_ns"]
    record["queued_time_s"] = 0.5
    life = server_life(record, base_s=1.0)
    assert life.segments == [(Kind.QUEUE, MS * 500, MS * 1000), (Kind.PREFILL, 10**9, 2 * 10**9)]


def test_the_empty_values_of_a_failed_upstream_row_place_nothing():
    assert not has_server_times({"prefill_busy_s": 0.0, "chunk_prefill_start_times_s": []})
    assert not has_server_times(None)


LENGTHS = st.integers(min_value=0, max_value=10**11)
STRETCHES = st.lists(
    st.tuples(st.sampled_from(["gap", "chunk", "decode", "pause"]), LENGTHS), max_size=40
)


@given(arrival_ns=LENGTHS, stretches=STRETCHES)
def test_simulated_segments_tile_a_life_exactly(arrival_ns, stretches):
    spans: dict[str, list[tuple[int, int]]] = {"chunk": [], "decode": [], "pause": []}
    cursor = arrival_ns
    for name, length in stretches:
        if name != "gap":
            spans[name].append((cursor, cursor + length))
        cursor += length
    record = record_of(arrival_ns, cursor, spans["chunk"], spans["decode"], spans["pause"])
    life = server_life(record, 0.0)
    assert_tiles(life)
    assert (life.arrival_ns, life.finish_ns, life.clipped_ns) == (arrival_ns, cursor, 0)
    for kind, name in ((Kind.PREFILL, "chunk"), (Kind.DECODE, "decode"), (Kind.PAUSE, "pause")):
        drawn = [(s.start_ns, s.end_ns) for s in life.segments if s.kind is kind]
        assert drawn == spans[name]


@given(
    ttft=st.floats(0, 1e4), itls=st.lists(st.floats(0, 1e3), max_size=50), start=st.floats(0, 1e6)
)
def test_client_segments_tile_a_life(ttft, itls, start):
    row = RequestRow(0, start, ttft, itls, 1, len(itls) + 1, "", None)
    life = client_life(row, base_s=0.0)
    assert_tiles(life)
    assert life.finish_ns == pytest.approx((start + row.e2el_s) * 1e9, rel=1e-12, abs=2)


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream])
def test_lives_of_a_whole_run_tile_and_keep_every_step(make, tmp_path):
    schedule = runs.arrivals(30, 20, gap_ms=400)
    data = make(schedule, tkv_limit=4000, jitter_ns=MS)
    rows = Result(tmp_path, data).rows()
    assert any(row.record["pause_latencies_s"] for row in rows)
    base_s = min(arrival_s(row.record) for row in rows)
    for row in rows:
        life = server_life(row.record, base_s)
        assert_tiles(life)
        assert life.clipped_ns == 0
        kinds = [segment.kind for segment in life.segments]
        assert kinds.count(Kind.PREFILL) == row.record["num_chunked_prefills"]
        assert kinds.count(Kind.DECODE) == len(row.record["decode_latencies_s"])
        drawn = sum(s.end_ns - s.start_ns for s in life.segments if s.kind is Kind.DECODE)
        # Epoch seconds in a double are good to 238 ns at each end of a step.
        allowed_ns = 0.5 if make is runs.simulated else 500 * kinds.count(Kind.DECODE)
        assert abs(drawn - sum(row.record["decode_latencies_s"]) * 1e9) <= allowed_ns + 1
        # Arrival to last token: the server's own figures add up to the life.
        queue = next(s.start_ns for s in life.segments if s.kind is Kind.PREFILL) - life.arrival_ns
        assert queue == pytest.approx(row.record["queued_time_s"] * 1e9, abs=500)


def test_client_lives_of_a_whole_run_tile(tmp_path):
    rows = Result(tmp_path, runs.plain(runs.arrivals(10, 20, gap_ms=400))).rows()
    for row in rows:
        life = client_life(row, rows[0].start_s)
        assert_tiles(life)
        assert [s.kind for s in life.segments] == [Kind.FIRST_TOKEN] + [Kind.TOKEN] * 19


def test_lives_of_a_recorded_run_end_their_steps_when_the_tokens_came():
    """The first ten requests of a recorded run; token times are recorded apart from the steps."""
    rows = load(Path(__file__).parent / "data" / "ours.json").rows()
    assert len(rows) == 10
    for row in rows:
        life = server_life(row.record, 0.0)
        assert_tiles(life)
        assert (life.arrival_ns, life.finish_ns) == (
            row.record["arrival_ns"],
            row.record["finish_ns"],
        )
        last_chunk = [s.end_ns for s in life.segments if s.kind is Kind.PREFILL][-1]
        decodes = [s.end_ns for s in life.segments if s.kind is Kind.DECODE]
        assert [last_chunk, *decodes] == row.record["token_times_ns"]
        # In virtual time the client saw what the server did.
        assert life.finish_ns - life.arrival_ns == pytest.approx(row.e2el_s * 1e9, abs=1)


def test_lives_of_a_run_recorded_from_a_real_server_tile():
    """Six requests at sendnn-inference itself, on the CPU: its clock, its gaps, its field names."""
    rows = load(Path(__file__).parent / "data" / "real.json").rows()
    assert len(rows) == 6
    for row in rows:
        life = server_life(row.record, 0.0)
        assert_tiles(life)
        kinds = [segment.kind for segment in life.segments]
        assert (kinds.count(Kind.PREFILL), kinds.count(Kind.DECODE)) == (2, 7)
        assert life.finish_ns - life.arrival_ns < row.e2el_s * 1e9


def test_hand_checked_run_of_two_requests():
    """Two one-chunk prompts at 0 and 10 ms: a chunk, a decode step, a chunk, both decode."""
    data = runs.simulated([(0, 100, 3), (10 * MS, 100, 2)])
    rows = Result(Path("x"), data).rows()
    lives = [server_life(row.record, 0.0) for row in rows]
    spans = [[(s.kind, s.start_ns // MS, s.end_ns // MS) for s in life.segments] for life in lives]
    assert spans == [
        [
            (Kind.PREFILL, 0, 100),
            (Kind.DECODE, 100, 151),
            (Kind.WAIT_DECODE, 151, 251),
            (Kind.DECODE, 251, 303),
        ],
        [(Kind.QUEUE, 10, 151), (Kind.PREFILL, 151, 251), (Kind.DECODE, 251, 303)],
    ]
