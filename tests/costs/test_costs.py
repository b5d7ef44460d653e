"""What steps cost, against numbers worked out by hand."""

from __future__ import annotations

import json
import logging
import random
import time

import pytest

from sendnn_bench.cost_formula import Work, work_of
from sendnn_bench.profile_spec import (
    ConstantCosts,
    DecodeLine,
    DecodeTable,
    Domain,
    Frontend,
    Host,
    LinearCosts,
    Noise,
    PrefillLine,
    PrefillTable,
    Profile,
    TableCosts,
)
from server_plugin.sim.costs import ConstantCost, StepShape, build

LINEAR = LinearCosts(PrefillLine(40.0, 0.1, 1e-5), DecodeLine(20.0, 2.0, 1e-3))
TABLE = TableCosts(
    PrefillTable((256.0, 512.0), (0.0, 1024.0), ((30.0, 40.0), (50.0, 70.0))),
    DecodeTable((1.0, 4.0), (64.0, 1024.0), ((20.0, 24.0), (26.0, 42.0))),
)


def profile(costs=LINEAR, **parts) -> Profile:
    return Profile(name="by hand", source="a test", costs=costs, **parts)


def prefill(*chunks: tuple[int, int], decode_batch: int = 0, tkv: int = 0) -> StepShape:
    return StepShape(chunks=chunks, decode_batch=decode_batch, tkv=tkv, index=0)


def decode(batch: int, tkv: int, index: int = 0) -> StepShape:
    return StepShape(chunks=(), decode_batch=batch, tkv=tkv, index=index)


CASES = [
    (ConstantCosts(100, 50), prefill((512, 0)), 100.0),
    (ConstantCosts(100, 50), prefill((512, 0), decode_batch=3), 100.0),
    (ConstantCosts(100, 50), decode(4, 128), 50.0),
    (LINEAR, prefill((512, 0)), 40 + 51.2),
    (LINEAR, prefill((512, 1000)), 40 + 51.2 + 5.12),
    (LINEAR, decode(4, 1000), 20 + 8 + 4),
    # a mixed step: p0 stands for the fixed part, d0 is not added
    (LINEAR, prefill((100, 0), (200, 50), decode_batch=2, tkv=500), 40 + 30 + 0.1 + 4 + 1),
    (TABLE, prefill((256, 0)), 30.0),
    (TABLE, prefill((384, 512)), (30 + 40 + 50 + 70) / 4),
    (TABLE, prefill((9999, 9999)), 70.0),
    (TABLE, prefill((1, 0)), 30.0),
    (TABLE, decode(1, 64), 20.0),
    (TABLE, decode(4, 1024), 42.0),
    (TABLE, decode(2, 544), 22 + (34 - 22) / 3),
    (TABLE, decode(99, 99999), 42.0),
    # two chunks count as one of 512 tokens at mean context 512; decoding adds 42 - 20
    (TABLE, prefill((256, 0), (256, 1024), decode_batch=4, tkv=1024), 60 + 22.0),
]


@pytest.mark.parametrize(("costs", "shape", "ms"), CASES)
def test_cost_by_hand(costs, shape: StepShape, ms: float) -> None:
    assert build(profile(costs)).step_ns(shape) == round(ms * 1e6)


def test_constant_profile_equals_the_two_constants() -> None:
    model, plain = build(profile(ConstantCosts(100.5, 50))), ConstantCost(100_500_000, 50_000_000)
    for shape in (prefill((1, 0)), decode(1, 1)):
        assert model.step_ns(shape) == plain.step_ns(shape)


@pytest.mark.parametrize(("ms", "ns"), [(0.5e-6, 0), (1.5e-6, 2), (2.5e-6, 2), (0.0, 0)])
def test_half_a_nanosecond_rounds_to_even(ms: float, ns: int) -> None:
    cost = build(profile(ConstantCosts(ms, ms))).step_ns(decode(1, 1))
    assert cost == ns
    assert isinstance(cost, int)


def test_host_term_counts_every_request_of_the_step() -> None:
    model = build(profile(ConstantCosts(10, 10), host=Host(1.0, 0.25)))
    assert model.step_ns(decode(4, 64)) == 12_000_000
    assert model.step_ns(prefill((64, 0), decode_batch=1)) == 11_500_000


# 600 tokens in chunks of 512 and blocks of 64 are 384 tokens of padding, then 128 and 472 tokens
@pytest.mark.parametrize(
    ("tokens", "context", "prompt", "padded_context"),
    [
        (128, 0, 600, 0),
        (472, 128, 600, 512),
        (512, 0, 512, 0),
        (1, 0, 1, 0),
        (476, 1024, 1500, 1024),
    ],
)
def test_padded_chunks_count_whole(
    tokens: int, context: int, prompt: int, padded_context: int
) -> None:
    shape = prefill((tokens, context), tkv=prompt)
    work = work_of(shape.chunks, 0, shape.tkv, 512)
    assert work == Work(512, 512 * padded_context, 0, prompt)
    assert work_of(shape.chunks, 0, shape.tkv) == Work(tokens, tokens * context, 0, prompt)
    padded = build(profile(padded_chunk_tokens=512))
    assert padded.step_ns(shape) == build(profile()).step_ns(prefill((512, padded_context)))


def test_noise_depends_on_seed_and_index_alone() -> None:
    ratios = tuple(0.9 + 0.001 * k for k in range(200))
    noise = Noise(seed=7, prefill_ratio=(2.0,), decode_ratio=ratios)
    model = build(profile(ConstantCosts(100, 100), noise=noise))
    forward = [model.step_ns(decode(1, 64, index)) for index in range(500)]
    order = list(range(500))
    random.Random(1).shuffle(order)
    shuffled = {index: model.step_ns(decode(1, 64, index)) for index in order}
    assert forward == [shuffled[index] for index in range(500)]
    assert model.step_ns(prefill((1, 0))) == 200_000_000
    other = build(profile(ConstantCosts(100, 100), noise=Noise(8, (2.0,), ratios)))
    assert forward != [other.step_ns(decode(1, 64, index)) for index in range(500)]


def test_noise_draws_every_ratio_about_as_often() -> None:
    ratios = (1.0, 2.0, 3.0, 4.0)
    model = build(profile(ConstantCosts(1, 1), noise=Noise(0, ratios, ratios)))
    drawn = [model.step_ns(decode(1, 1, index)) for index in range(8000)]
    counts = [drawn.count(round(ratio * 1e6)) for ratio in ratios]
    assert sum(counts) == 8000
    assert all(1850 < count < 2150 for count in counts), counts


def test_noise_of_one_phase_leaves_the_other_alone() -> None:
    model = build(profile(ConstantCosts(10, 10), noise=Noise(0, (), (3.0,))))
    assert model.step_ns(prefill((1, 0))) == 10_000_000
    assert model.step_ns(decode(1, 1)) == 30_000_000


def test_outside_the_domain_is_counted_and_warned_of_once(caplog) -> None:
    domain = Domain((64, 512), (0, 1000), (1, 8), (64, 2048))
    model = build(profile(domain=domain))
    inside = [prefill((512, 1000)), decode(8, 2048), decode(1, 64), prefill((64, 0))]
    outside = [decode(9, 64), decode(1, 4096), prefill((512, 1001)), prefill((32, 0))]
    with caplog.at_level(logging.WARNING):
        for shape in inside:
            model.step_ns(shape)
        assert (model.outside_steps, caplog.messages) == (0, [])
        for shape in outside:
            model.step_ns(shape)
    assert model.outside_steps == 4
    assert len(caplog.messages) == 1
    assert "9 decoding requests" in caplog.messages[0]


def test_frontend_terms_are_left_to_others() -> None:
    model = build(profile(ConstantCosts(10, 10), frontend=Frontend(1.5, 0.25)))
    assert (model.frontend_request_ns, model.frontend_token_ns) == (1_500_000, 250_000)
    assert model.step_ns(decode(1, 1)) == 10_000_000
    bare = build(profile())
    assert (bare.frontend_request_ns, bare.frontend_token_ns) == (0, 0)


def test_description_is_json_and_tells_profiles_apart() -> None:
    parts = {"host": Host(1.0), "noise": Noise(0, (1.0, 1.1), ()), "domain": Domain(batch=(1, 2))}
    described = build(profile(**parts)).describe()
    assert json.loads(json.dumps(described))["costs"]["decode"]["d0_ms"] == 20.0
    assert described["kind"] == "linear"
    assert described["noise"] == {"seed": 0, "prefill_ratios": 2, "decode_ratios": 0}
    other = profile(**(parts | {"noise": Noise(0, (1.0, 1.2), ())}))
    assert build(other).describe()["sha256"] != described["sha256"]


@pytest.mark.parametrize("costs", [LINEAR, TABLE], ids=["linear", "table"])
def test_a_step_is_priced_in_microseconds(costs) -> None:
    noise = Noise(0, (1.0, 1.1), (1.0, 1.1))
    domain = Domain((1, 512), (0, 4096), (1, 64), (1, 4096))
    model = build(profile(costs, noise=noise, domain=domain, host=Host(1.0, 0.1)))
    shape = decode(8, 777)
    best_s = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(100):
            model.step_ns(shape)
        best_s = min(best_s, (time.perf_counter() - begin) / 100)
    assert best_s < 20e-6
