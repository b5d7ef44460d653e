"""Time axes, placement, engine steps and counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sendnn_bench.errors import UsageError
from sendnn_bench.report.timeline import default_path, parse_decode_thresholds
from sendnn_bench.report.timeline.counts import Count, counts
from sendnn_bench.report.timeline.model import Axis, Step, build
from sendnn_bench.report.timeline.segments import Kind
from sendnn_bench.results import Result
from tests.timeline import runs

MS = runs.MS
TWO = [(0, 100, 3), (10 * MS, 600, 2)]


def timeline(data):
    return build(Result(Path("run.json"), data))


def test_each_kind_of_result_has_its_own_clock():
    schedule = runs.arrivals(4, 4, gap_ms=50)
    assert timeline(runs.simulated(schedule)).axis is Axis.VIRTUAL
    assert timeline(runs.upstream(schedule)).axis is Axis.SERVER
    assert timeline(runs.plain(schedule)).axis is Axis.CLIENT


def test_virtual_time_is_shown_as_it_is():
    drawn = timeline(runs.simulated([(3 * MS, 100, 2)]))
    assert drawn.requests[0].life.arrival_ns == 3 * MS


def test_server_and_client_axes_begin_with_the_first_request():
    schedule = [(40 * MS, 100, 2), (90 * MS, 100, 2)]
    for make in (runs.upstream, runs.plain):
        first, second = (request.life.arrival_ns for request in timeline(make(schedule)).requests)
        assert first == 0
        assert second == pytest.approx(50 * MS, abs=1000)


def test_steps_of_two_requests_worked_out_by_hand():
    drawn = timeline(runs.simulated(TWO))
    assert drawn.steps == [
        Step(0, 100 * MS, 0, 1, 100, 2),
        Step(100 * MS, 151 * MS, 1, 1, 101, 2),
        Step(151 * MS, 251 * MS, 0, 1, 512, 10),
        Step(251 * MS, 302 * MS, 1, 1, 102, 10),
        Step(302 * MS, 402 * MS, 0, 1, 600, 10),
        Step(402 * MS, 453 * MS, 1, 1, 601, 10),
    ]


def test_a_failed_request_is_placed_only_where_both_clocks_are_one():
    schedule = runs.arrivals(6, 4, gap_ms=50)
    simulated = timeline(runs.simulated(schedule, failed=(2,)))
    assert simulated.unplaced == 0
    assert simulated.requests[2].life.arrival_ns == pytest.approx(schedule[2][0], abs=100)
    assert simulated.requests[2].life.segments == []
    upstream = timeline(runs.upstream(schedule, failed=(2,)))
    assert upstream.requests[2].life is None
    assert upstream.unplaced == 1


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream])
def test_batch_sizes_are_recorded_or_counted_alike(make):
    schedule = runs.arrivals(20, 10, gap_ms=100)
    drawn = timeline(make(schedule, jitter_ns=MS))
    assert drawn.batch_sizes_counted is (make is runs.upstream)
    truth = timeline(runs.simulated(schedule, jitter_ns=MS)).steps
    assert [s[2:5] for s in drawn.steps] == [s[2:5] for s in truth]


def test_a_step_with_a_chunk_and_a_decode_is_both():
    data = runs.simulated([(0, 100, 2), (0, 100, 2)], max_batch=2)
    for name in ("start_times_s", "latencies_s"):
        # Let the second request's chunk run in the first one's decode step.
        data[f"spyre_chunk_prefill_{name}"][1] = data[f"spyre_decode_{name}"][0]
    assert 2 in {step.kind for step in timeline(data).steps}


def test_counts_of_two_requests_worked_out_by_hand():
    drawn = timeline(runs.simulated(TWO))
    assert counts(request.life for request in drawn.requests) == [
        Count(0, 0, 1, 0),
        Count(10 * MS, 1, 1, 0),
        Count(151 * MS, 0, 2, 0),
        Count(302 * MS, 0, 1, 0),
        Count(453 * MS, 0, 0, 0),
    ]


def test_counts_equal_those_of_the_segments_at_any_time():
    drawn = timeline(runs.simulated(runs.arrivals(25, 15, gap_ms=200), tkv_limit=3000))
    lives = [request.life for request in drawn.requests]
    series = counts(lives)
    assert any(count.paused for count in series)
    for count in series:
        at = [
            next((s.kind for s in life.segments if s.start_ns <= count.time_ns < s.end_ns), None)
            for life in lives
        ]
        paused, waiting = at.count(Kind.PAUSE), at.count(Kind.QUEUE)
        running = len(at) - at.count(None) - paused - waiting
        assert count[1:] == (waiting, running, paused)


def test_default_path_lies_beside_the_result():
    assert default_path(Path("a/run.json")) == Path("a/run.timeline.html")
    assert default_path(Path("a/run.v2")) == Path("a/run.v2.timeline.html")


def test_decode_thresholds():
    assert parse_decode_thresholds("60,120.5") == (60.0, 120.5)


@pytest.mark.parametrize(
    "text", ["", "60", "60,", "a,b", "120,60", "60,60", "0,5", "1,2,3", "1,inf"]
)
def test_bad_decode_thresholds_say_what_is_taken(text):
    with pytest.raises(UsageError, match="LOW,HIGH in milliseconds"):
        parse_decode_thresholds(text)
