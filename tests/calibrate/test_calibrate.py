"""Calibration against runs whose costs are known."""

from __future__ import annotations

import json
import random
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from sendnn_bench.calibrate import linear
from sendnn_bench.calibrate.command import Options, calibrate, run_calibrate
from sendnn_bench.calibrate.data import observe, works_of
from sendnn_bench.calibrate.steps import MeasuredStep, recover
from sendnn_bench.errors import ResultError, UsageError
from sendnn_bench.profile import load
from sendnn_bench.profile_spec import (
    ConstantCosts,
    DecodeLine,
    Domain,
    LinearCosts,
    Noise,
    PrefillLine,
    Profile,
)
from sendnn_bench.results import Result
from tests.calibrate.engine import CHUNK, Surroundings, result, without

LINEAR = LinearCosts(PrefillLine(40.0, 0.12, 3e-5), DecodeLine(21.0, 1.5, 4e-4))
WHOLE = LinearCosts(PrefillLine(90.0, 0.0, 3e-5), DecodeLine(21.0, 1.5, 4e-4))


def profile(costs=LINEAR, **parts) -> Profile:
    return Profile(name="known", source="a test", costs=costs, **parts)


def load_of(count: int = 40, seed: int = 3) -> tuple[list[int], list[int]]:
    chosen = random.Random(seed)
    prompts = [chosen.randint(20, 4000) for _ in range(count)]
    return prompts, [chosen.randint(5, 60) for _ in range(count)]


def close(found: LinearCosts, known: LinearCosts) -> None:
    for part in ("prefill", "decode"):
        pairs = zip(astuple(getattr(found, part)), astuple(getattr(known, part)), strict=True)
        for value, expected in pairs:
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("mixed", [False, True], ids=["alternating", "mixed"])
def test_a_known_linear_profile_comes_back(mixed: bool) -> None:
    run = result(profile(), *load_of(), concurrency=6, mixed=mixed)
    found = calibrate([run], Options())
    close(found.profile.costs, LINEAR)
    assert found.profile.padded_chunk_tokens is None
    assert found.profile.noise is None
    assert found.profile.host is None
    assert found.profile.frontend is None
    assert found.notes == ()
    assert all(abs(fit.worst) < 1e-6 for fit in found.fits)


@pytest.mark.parametrize("upstream", [False, True], ids=["ours", "upstream"])
def test_a_known_profile_of_whole_chunks_comes_back(upstream: bool) -> None:
    known = profile(WHOLE, padded_chunk_tokens=CHUNK)
    found = calibrate([result(known, *load_of(), concurrency=6, upstream=upstream)])
    close(found.profile.costs, WHOLE)
    assert found.profile.padded_chunk_tokens == CHUNK


def test_a_fitted_profile_simulates_the_same_run(tmp_path: Path) -> None:
    known = profile(WHOLE, padded_chunk_tokens=CHUNK)
    first = result(known, *load_of(), concurrency=6, upstream=True)
    path = tmp_path / "first.json"
    path.write_text(json.dumps(first.data))
    run_calibrate([path], tmp_path / "fitted.toml", Options())
    again = result(load(tmp_path / "fitted.toml"), *load_of(), concurrency=6)
    assert again.data["ttfts"] == pytest.approx(first.data["ttfts"], rel=1e-6)


def test_constant_costs_come_back() -> None:
    costs = ConstantCosts(100.25, 50.5)
    found = calibrate([result(profile(costs), *load_of(), 4)], Options(kind="constant"))
    assert astuple(found.profile.costs) == pytest.approx(astuple(costs))


def test_several_runs_tell_more_than_one() -> None:
    runs = [
        result(profile(), [500 + index] * 12, [40] * 12, concurrency=concurrency)
        for index, concurrency in enumerate((1, 3))
    ]
    with pytest.raises(UsageError, match="batch size of 1"):
        calibrate(runs[:1], Options(drop=("p1", "p2")))
    found = calibrate(runs, Options(drop=("p1", "p2")))
    assert astuple(found.profile.costs.decode) == pytest.approx(astuple(LINEAR.decode), rel=1e-6)
    assert found.profile.costs.prefill.p1_ms_per_token == 0


def test_table_follows_costs_that_no_line_follows() -> None:
    bent = profile(LINEAR)
    run = result(bent, *load_of(60), concurrency=8)
    slow = _bend(run)
    line, table = (calibrate([slow], Options(kind=kind)) for kind in ("linear", "table"))
    error = {
        found.profile.kind: next(f for f in found.fits if f.region == "decode steps").mean_size
        for found in (line, table)
    }
    assert error["table"] < 0.01 < error["linear"]


def _bend(run: Result) -> Result:
    """Decode steps of five requests and more cost half as much again."""
    data = dict(run.data)
    data["spyre_decode_latencies_s"] = [
        [
            latency * (1.5 if batch >= 5 else 1.0)
            for latency, batch in zip(latencies, batches[-len(latencies) :], strict=True)
        ]
        for latencies, batches in zip(
            data["spyre_decode_latencies_s"], data["spyre_batch_sizes"], strict=True
        )
    ]
    return replace(run, data=data)


def test_table_of_straight_costs_is_exact_and_needs_no_variety() -> None:
    run = result(profile(), [512] * 30, [40] * 30, concurrency=1)
    found = calibrate([run], Options(kind="table"))
    assert all(fit.p95_size < 2e-3 for fit in found.fits)
    assert len(found.profile.costs.decode.batch) == 1


def test_noise_leaves_means_where_they_are() -> None:
    ratios = tuple(np.random.default_rng(1).lognormal(0, 0.15, 300))
    noisy = profile(noise=Noise(5, ratios, ratios))
    found = calibrate([result(noisy, *load_of(200), concurrency=6)], Options(seed=9))
    assert found.profile.noise is not None
    assert found.profile.noise.seed == 9
    assert len(found.profile.noise.decode_ratio) == 256
    assert np.std(found.profile.noise.decode_ratio) == pytest.approx(np.std(ratios), rel=0.1)
    for fit in found.fits:
        assert abs(fit.mean) < 0.03, fit
    bare = calibrate([result(noisy, *load_of(), concurrency=6)], Options(noise=False))
    assert bare.profile.noise is None


def test_gaps_become_the_host_term_and_transit_the_frontend() -> None:
    around = Surroundings(
        entry_ns=7_000_000, transit_ns=9_000_000, gap_ns=1_000_000, gap_ns_per_request=500_000
    )
    busy = result(profile(), *load_of(), concurrency=5, around=around)
    alone = result(profile(), *load_of(12), concurrency=1, around=around)
    found = calibrate([busy, alone]).profile
    assert astuple(found.host) == pytest.approx((1.0, 0.5), rel=1e-6)
    assert found.frontend.request_ms == pytest.approx(7.0, rel=1e-6)
    gaps = [gap for run in (busy, alone) for _, gap in recover(run).gaps]
    assert found.frontend.token_ms == pytest.approx(9.0 - 1e3 * np.mean(gaps), rel=1e-6)
    close(found.costs, LINEAR)


def test_the_domain_is_what_was_seen() -> None:
    # 1300 tokens are chunks of 320, 512 and 468; their last decode step is the ninth
    run = result(profile(), [100, 1300] * 20, [10] * 40, concurrency=2)
    assert calibrate([run]).profile.domain == Domain(
        chunk_tokens=(100.0, 512.0),
        context_tokens=(0.0, 832.0),
        batch=(1.0, 2.0),
        tkv_tokens=(101.0, 1309.0),
    )


@pytest.mark.parametrize(
    ("prompts", "outputs", "concurrency", "named"),
    [
        ([100], [30], 1, "1 prefill chunks, at least 10"),
        ([100] * 20, [1] * 20, 2, "0 decode steps, at least 10"),
        ([512 + 3 * k for k in range(30)], [9] * 30, 1, "batch size of 1, so that d1"),
        ([512] * 30, [9] * 30, 4, "p1 cannot be told from p0"),
        ([60 + 3 * k for k in range(30)], [9] * 30, 4, "context of 0 tokens, so that p2"),
    ],
)
def test_data_that_cannot_tell_are_refused(prompts, outputs, concurrency, named) -> None:
    with pytest.raises(UsageError) as caught:
        calibrate([result(profile(), prompts, outputs, concurrency)])
    assert named in str(caught.value)


def test_terms_that_vary_only_together_are_refused() -> None:
    steps = [MeasuredStep(0, 0.1, ((size, 0),), 0, size) for size in (100, 200)]
    # batch and tkv both vary, but batch * tkv is the same in every decode step
    steps += [MeasuredStep(0, 0.05, (), batch, 1200 // batch) for batch in (1, 2, 3, 4)]
    untold = linear.untold(observe(steps, works_of(steps, None)), ["p2"])
    assert untold == {"d2": "d0 and d2 vary only together; measure loads of other shapes"}


def test_a_term_that_is_no_term() -> None:
    with pytest.raises(UsageError, match="--drop d0 is not a term"):
        calibrate([], Options(drop=("d0",)))


def test_upstream_chunk_size_is_derived_or_asked_for() -> None:
    known = profile(WHOLE, padded_chunk_tokens=CHUNK)
    short = result(known, [100 + k for k in range(30)], [9] * 30, 4, upstream=True)
    with pytest.raises(ResultError, match=r"129 tokens or more.*--chunk-size"):
        recover(short)
    assert recover(short, 512).chunk_size_tokens == 512
    long = result(known, *load_of(), concurrency=4, upstream=True)
    assert recover(long).chunk_size_tokens == CHUNK
    ours = result(known, *load_of(), concurrency=4)
    assert recover(long).steps == recover(ours).steps


def test_steps_with_requests_that_left_no_record_are_left_out() -> None:
    run = result(profile(), *load_of(), concurrency=6)
    holey = without(run, 3, 4)
    found = calibrate([holey])
    close(found.profile.costs, LINEAR)
    assert any("2 requests failed" in note for note in found.notes)
    assert any("without a record" in note for note in found.notes)


def test_a_result_without_steps() -> None:
    run = result(profile(), *load_of(), concurrency=2)
    plain = {key: v for key, v in run.data.items() if not key.startswith("spyre_")}
    with pytest.raises(ResultError, match="chunk_prefill_start_times_s"):
        recover(replace(run, data=plain))
    with pytest.raises(ResultError, match="--save-detailed"):
        recover(replace(run, data={"model_id": "x"}))


def test_a_damaged_result() -> None:
    run = result(profile(), *load_of(), concurrency=2)
    run.data["spyre_tkvs"][3] = [1]
    with pytest.raises(ResultError, match="and 1 tkvs"):
        recover(run)


def test_rare_slow_steps_do_not_bend_a_line_but_count_in_the_total() -> None:
    spikes = (1.0,) * 98 + (4.0,) * 2
    known = profile(noise=Noise(2, spikes, spikes))
    run = result(known, *load_of(150), concurrency=6)
    found = calibrate([run], Options(noise=False)).profile.costs
    mean_of_spikes = 1.06
    for phase in ("prefill", "decode"):
        values, expected = (astuple(getattr(costs, phase)) for costs in (found, LINEAR))
        for index in range(3):
            assert values[index] == pytest.approx(mean_of_spikes * expected[index], rel=0.03)
    measured_s = sum(step.duration_s for step in recover(run).steps)
    again = result(profile(found), *load_of(150), concurrency=6)
    assert sum(s.duration_s for s in recover(again).steps) == pytest.approx(measured_s, rel=1e-6)
