"""Pareto front, knee, curves, goodput: against answers worked out by hand or by brute force."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.results import Result
from sendnn_bench.sweep.analysis import analyse, curves, knee, load_name, pareto_front
from sendnn_bench.sweep.measures import COLUMNS, measure
from sendnn_bench.sweep.slo import good
from sendnn_bench.sweep.summary import Row, Summary
from tests.sweep.results import detailed


def row(load: str, server: str = "", **numbers: float) -> Row:
    pairs = [tuple(pair.split("=")) for pair in load.split()]
    servers = [tuple(pair.split("=")) for pair in server.split()]
    return Row(server=tuple(servers), load=tuple(pairs), status="done", numbers=dict(numbers))


def test_a_front_by_hand() -> None:
    points = [(1.0, 9.0), (3.0, 9.0), (5.0, 4.0), (4.0, 4.0), (5.0, 4.0), (6.0, 1.0), (2.0, 1.0)]
    assert pareto_front(points) == [1, 2, 4, 5]
    assert pareto_front([]) == []


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
def test_the_front_is_what_nothing_dominates(points: list[tuple[int, int]]) -> None:
    def dominated(p: tuple[int, int]) -> bool:
        return any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in points)

    front = pareto_front([(float(x), float(y)) for x, y in points])
    assert sorted(front) == [i for i, p in enumerate(points) if not dominated(p)]
    assert [points[i][0] for i in front] == sorted(points[i][0] for i in front)


@pytest.mark.parametrize(
    ("ys", "place"),
    [
        ([100, 110, 130, 2000], 2),
        ([100, 110, 900, 1900], 1),
        ([100, 200, 300, 400], None),  # a straight line
        ([100, 390, 399, 400], None),  # bends the other way
        ([400, 300, 200, 100], None),  # falls
        ([100, 100, 100, 100], None),
    ],
)
def test_the_knee(ys: list[float], place: int | None) -> None:
    assert knee([1, 2, 3, 4], ys) == place


def test_three_points_have_no_knee() -> None:
    assert knee([1, 2, 3], [1, 1, 9]) is None


@pytest.mark.parametrize(
    ("loads", "name"),
    [
        (["seed=0 request-rate=1", "seed=1 request-rate=2"], "request-rate"),
        (
            ["max-concurrency=1 seed=2", "max-concurrency=4 seed=2"],
            "max-concurrency",
        ),
        (["input-len=1", "input-len=2"], "input-len"),
        (["dataset-name=random", "dataset-name=sonnet"], ""),
        (["request-rate=inf", "request-rate=1"], ""),
        ([], ""),
    ],
)
def test_what_curves_are_drawn_over(loads: list[str], name: str) -> None:
    assert load_name([row(load) for load in loads]) == name


def test_curves_leave_out_what_goes_with_the_load() -> None:
    rows = [
        row(f"request-rate={rate} num-prompts={60 * rate} seed={seed}", f"max-num-seqs={size}")
        for size in (8, 16)
        for seed in (0, 1)
        for rate in (2, 1, 4)
    ]
    found = list(curves(rows, "request-rate"))
    assert [curve.name for curve in found] == [
        "max-num-seqs=8 seed=0",
        "max-num-seqs=8 seed=1",
        "max-num-seqs=16 seed=0",
        "max-num-seqs=16 seed=1",
    ]
    assert all(curve.loads == (1.0, 2.0, 4.0) for curve in found)


def test_an_infinite_rate_is_on_no_curve() -> None:
    rows = [row(f"request-rate={rate}") for rate in (1, 2, "inf")]
    (curve,) = curves(rows, "request-rate")
    assert curve.loads == (1.0, 2.0)


def test_an_analysis() -> None:
    rows = (
        *(
            row(
                f"request-rate={rate}",
                "max-num-seqs=8",
                p99_ttft_ms=ttft,
                output_throughput=10.0 * rate,
                user_throughput=20.0 / rate,
                request_goodput=goodput,
                good_share=goodput / rate,
            )
            for rate, ttft, goodput in ((1, 100, 1.0), (2, 110, 2.0), (3, 130, 2.9), (4, 2000, 0.5))
        ),
        Row(server=(("max-num-seqs", "9"),), load=(("request-rate", "1"),), status="failed"),
    )
    found = analyse(Summary("m", {"ttft": 500}, rows))
    assert found.over == "request-rate"
    assert found.pareto == (0, 1, 2, 3)
    assert found.knees() == [rows[2]]
    assert found.best == (rows[2],)


def test_numbers_of_a_result() -> None:
    result = Result(Path("r.json"), detailed(ttfts_s=[0.1, 0.2, 0.3, 0.8]))
    numbers = measure(result, {"ttft": 300, "tpot": 50})
    assert numbers["mean_ttft_ms"] == pytest.approx(350)
    assert numbers["median_ttft_ms"] == pytest.approx(250)
    assert numbers["median_tpot_ms"] == pytest.approx(50)
    assert numbers["user_throughput"] == pytest.approx(20)
    assert numbers["good_share"] == pytest.approx(0.75)
    assert numbers["request_goodput"] == pytest.approx(0.3)
    assert numbers["spyre_median_queued_time_ms"] is None
    assert set(numbers) == {column.key for column in COLUMNS}
    assert len(numbers) == len(COLUMNS)


def test_without_objectives_there_is_no_goodput() -> None:
    numbers = measure(Result(Path("r.json"), detailed(ttfts_s=[0.1])), {})
    assert numbers["request_goodput"] is None
    assert numbers["good_share"] is None


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        ({"ttft": 100}, True),
        ({"ttft": 99.9}, False),
        ({"tpot": 10}, True),  # ten gaps of 10 ms sum to a little more than 100 ms
        ({"tpot": 9.9}, False),
        ({"e2el": 200}, True),
        ({"e2el": 199, "ttft": 100}, False),
        ({}, True),
    ],
)
def test_a_request_in_time(slo: dict[str, float], met: bool) -> None:
    data = detailed(ttfts_s=[0.1], gap_s=0.01, tokens=11)
    (request,) = Result(Path("r.json"), data).rows()
    assert good(request, slo) is met


def test_failed_requests_and_single_tokens() -> None:
    data = detailed(ttfts_s=[0.1, 0.1], tokens=1)
    data["errors"] = ["", "reset"]
    first, second = Result(Path("r.json"), data).rows()
    assert good(first, {"tpot": 1e-3})
    assert not good(second, {"ttft": math.inf})
