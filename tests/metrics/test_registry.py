"""Rules that every metric declaration keeps, and the checker that the skill runs."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from sendnn_bench.metrics import METRICS, Metric, Per, Record, Show, Unit, samples, summarise
from sendnn_bench.report import console
from sendnn_bench.save import aggregates, columns

ROOT = Path(__file__).resolve().parents[2]


def load_checker() -> ModuleType:
    path = ROOT / "skills" / "add-bench-metric" / "check.py"
    spec = importlib.util.spec_from_file_location("check_metric", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checker = load_checker()
RECORD: Record = checker.sample_record()

every_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)


def test_keys_and_titles_are_unique() -> None:
    for name in ("key", "title", "column"):
        values = [getattr(metric, name) for metric in METRICS]
        assert len(set(values)) == len(values)


@every_metric
def test_a_metric_is_complete(metric: Metric) -> None:
    assert checker.missing(metric) == []


@every_metric
def test_a_missing_value_gives_no_sample_no_column_and_no_line(metric: Metric) -> None:
    assert metric.read(None) is None
    assert samples(metric, [None, {"unknown": 1}]) == []
    assert metric.column not in columns([{"unknown": 1}])
    report = console.render([{"unknown": 1}], [99])
    assert f"Mean {metric.printed_label}:" not in report


@every_metric
def test_samples_come_in_the_printed_unit(metric: Metric) -> None:
    value = metric.read(RECORD)
    values = [value] if metric.per is Per.REQUEST else value
    if metric.unit is Unit.TEXT:
        assert samples(metric, [RECORD]) == []
    else:
        assert samples(metric, [RECORD]) == [v * metric.unit.scale for v in values]


@every_metric
def test_a_unit_in_the_key_is_the_unit_of_the_values(metric: Metric) -> None:
    suffixes = {"_s": Unit.SECONDS, "_ns": Unit.NANOSECONDS, "_blocks": Unit.BLOCKS}
    for suffix, unit in suffixes.items():
        if metric.key.endswith(suffix) and metric.unit is not Unit.FLAG:
            assert metric.unit is unit


def test_an_older_server_with_fewer_fields_prints_and_merges() -> None:
    old = {
        "queued_time_s": 0.25,
        "num_chunked_prefills": 2,
        "chunk_prefill_latencies_s": [0.1, 0.2],
    }
    report = console.render([old, old], [50, 90, 99, 100])
    assert "Mean Queue Wait Time (ms):               250.00" in report
    assert "Total prefill chunks processed:          4" in report
    assert "P100 Chunk Prefill Latency (ms):         200.00" in report
    for absent in ("Decode Step Latency", "Pause", "Prefix Cache", "missing KV blocks"):
        assert absent not in report
    assert columns([old, None])["spyre_queued_time_s"] == [0.25, None]


def test_unknown_extra_fields_are_ignored() -> None:
    newer = {**RECORD, "photons": 7}
    assert console.render([newer], [99]) == console.render([RECORD], [99])


def test_failed_and_silent_requests_are_counted_and_columns_stay_aligned() -> None:
    records = [None, RECORD, None, RECORD, None]
    report = console.render(records, [99], failed=2)
    assert "Requests without metrics:                3 (2 failed, 1 sent none)" in report
    for metric in METRICS:
        column = columns(records)[metric.column]
        assert len(column) == 5
        assert [column[row] for row in (0, 2, 4)] == [None] * 3


def test_aggregates_are_there_without_details() -> None:
    sums = aggregates([RECORD, RECORD], [99.0])
    assert sums["spyre_total_prefill_chunks"] == 4
    assert sums["spyre_num_requests_missing_blocks"] == 0
    assert sums["spyre_mean_num_pauses"] == 1


def test_summaries_interpolate_as_vllm_does() -> None:
    summary = summarise([1.0, 2.0, 3.0, 10.0], [50, 99.9, 100])
    assert summary is not None
    assert (summary.mean, summary.median, summary.count) == (4.0, 2.5, 4)
    assert dict(summary.percentiles) == pytest.approx({50: 2.5, 99.9: 9.979, 100: 10.0})
    assert summarise([], [50]) is None


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"description": "Short."}, "not declared"),
        ({"computed": "server_plugin.sim.recorder.nothing"}, "not declared"),
        ({"key": "no_such_key"}, "not computed"),
        ({"per": Per.TOKEN}, "not computed"),
        ({"description": "A sentence that no page has."}, "not documented"),
    ],
)
def test_the_checker_names_the_missing_place(change: dict[str, object], place: str) -> None:
    metric = next(metric for metric in METRICS if metric.key == "queued_time_s")
    problems = checker.missing(replace(metric, **change))
    assert any(problem.startswith(place) for problem in problems)


def test_the_checker_says_when_a_metric_is_not_declared(capsys: pytest.CaptureFixture[str]) -> None:
    assert checker.main(["nobody"]) == 1
    assert "not declared" in capsys.readouterr().out
    assert checker.main(["--all"]) == 0


def test_column_only_metrics_have_no_section() -> None:
    report = console.render([RECORD], [99])
    for metric in METRICS:
        shown = f"Mean {metric.printed_label}:" in report
        assert shown is (metric.show is Show.SECTION)
